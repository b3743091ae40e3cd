"""Background processes, through the tools `terminal` and `process`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time

import pytest

from hermes_agent.adapters.adapter_state import get_process_start_time
from hermes_agent.core.redaction import redactor
from hermes_agent.core.untrusted import mark_untrusted, split_marked
from hermes_agent.workspace.background_processes import BackgroundProcesses
from hermes_agent.workspace.process_tool import ProcessWatcher

HELLO = mark_untrusted("echo hello\nhello", "")


def begin(workplace, command: str, **more) -> str:
    """Start a background process and return its name."""
    result = workplace.call("terminal", command=command, background=True, **more)
    assert result["output"] == "Background process started", result
    return result["session_id"]


def ask(workplace, action: str, name: str = "", **more) -> dict:
    return workplace.call("process", action=action, **({"session_id": name} if name else {}), **more)


def poll_until(workplace, name: str, text: str) -> str:
    """Poll until the text was printed."""
    output = ""
    for _ in range(500):
        output += ask(workplace, "poll", name)["output"]
        if text in output:
            return output
        time.sleep(0.02)
    raise AssertionError(output)


def processes_of(workplace) -> BackgroundProcesses:
    return workplace.registry.get("process").handler.loaded.processes


def zombies() -> list[str]:
    found = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "stat=,args="], capture_output=True, text=True)
    return [line for line in found.stdout.splitlines() if line.startswith("Z")]


def test_a_process_runs_on_and_says_how_it_ended(workplace):
    name = begin(workplace, "echo begun; until [ -e go ]; do sleep 0.02; done; echo done; exit 5")
    assert poll_until(workplace, name, "begun") == "begun\n"
    assert ask(workplace, "poll", name)["status"] == "running"

    (workplace.cwd / "go").touch()
    result = ask(workplace, "wait", name)

    assert (result["status"], result["exit_code"], result["output"]) == ("exited", 5, "done\n")
    assert [p["session_id"] for p in ask(workplace, "list")["processes"]] == [name]
    assert zombies() == []


def test_it_begins_where_the_shell_of_the_conversation_stands(workplace):
    workplace.call("terminal", command="mkdir sub; cd sub; export WORD=kept; hello() { echo hello; }")
    name = begin(workplace, "pwd; echo $WORD; hello")

    assert ask(workplace, "wait", name)["output"] == f"{workplace.cwd}/sub\nkept\nhello\n"


def test_input_is_written_and_ended(workplace):
    name = begin(workplace, 'while read -r line; do echo "got $line"; done; echo end')
    ask(workplace, "write", name, data="one\ntw")
    ask(workplace, "submit", name, data="o")
    poll_until(workplace, name, "got two")
    ask(workplace, "close", name)

    assert ask(workplace, "wait", name)["output"] == "end\n"
    assert "reads no more" in ask(workplace, "write", name, data="x")["error"]


def test_it_may_have_a_terminal(workplace):
    name = begin(
        workplace, 'test -t 0 && echo terminal; (echo x > /dev/tty) && read -r line; echo "got $line"', pty=True
    )
    poll_until(workplace, name, "terminal")
    ask(workplace, "submit", name, data="hello")

    assert "got hello" in ask(workplace, "wait", name)["output"]


def test_kill_ends_the_whole_tree(workplace):
    name = begin(workplace, "trap '' TERM; setsid -f sleep 4801; sleep 4802 & echo up; wait; sleep 4803")
    poll_until(workplace, name, "up")

    result = ask(workplace, "kill", name)

    assert result["status"] == "killed"
    assert subprocess.run(["pgrep", "-f", "^sleep 480[123]"], capture_output=True).stdout == b""
    assert zombies() == []


def test_what_it_left_running_ends_with_it(workplace):
    name = begin(workplace, "(sleep 4811 &) ; echo done")

    assert ask(workplace, "wait", name)["status"] == "exited"
    assert subprocess.run(["pgrep", "-f", "^sleep 4811"], capture_output=True).stdout == b""


def test_of_endless_output_the_end_is_kept(workplace):
    processes_of(workplace).segment_bytes = 50_000
    name = begin(workplace, "yes | head -c 1000000; echo last; sleep 100")
    process = processes_of(workplace).get(name, workplace.task)
    for _ in range(500):
        if processes_of(workplace).output(process)[2] == 1_000_005:
            break
        time.sleep(0.02)

    kept = sum(p.stat().st_size for p in (workplace.home / "processes" / name).glob("out-*"))
    assert kept <= 250_000
    result = ask(workplace, "poll", name)
    assert "bytes left out" in result["output"] and result["output"].endswith("last\n")
    assert ask(workplace, "log", name, limit=1)["output"] == "last"


def test_the_log_is_read_by_lines(workplace):
    name = begin(workplace, "seq 1000")
    ask(workplace, "wait", name)

    assert ask(workplace, "log", name, offset=10, limit=2) | {"uptime_seconds": 0} == {
        **ask(workplace, "list")["processes"][0],
        "uptime_seconds": 0,
        "total_lines": 1000,
        "offset": 10,
        "output": "10\n11",
    }
    assert ask(workplace, "log", name)["output"].startswith("801\n")


def test_another_conversation_has_no_hold_of_it(workplace):
    name = begin(workplace, "sleep 60")
    workplace.task = "other"

    assert ask(workplace, "list") == {"processes": []}
    for action in ("poll", "kill", "log", "write"):
        assert "there is no process" in ask(workplace, action, name)["error"]
    workplace.task = "t"
    assert ask(workplace, "poll", name)["status"] == "running"


def test_a_waiting_turn_that_is_interrupted_leaves_it_running(workplace):
    name = begin(workplace, "sleep 60")
    threading.Timer(0.2, workplace.cancelled.set).start()

    result = ask(workplace, "wait", name, timeout=60)

    assert (result["status"], result["note"]) == ("running", "interrupted by the user")


def test_a_secret_in_its_output_or_its_command_is_masked(workplace):
    before = redactor.snapshot()
    redactor.learn(["hunter2-hunter2"])
    try:
        name = begin(workplace, "echo hunter2-hunter2")
        result = ask(workplace, "wait", name)
    finally:
        redactor.restore(before)
    assert (result["output"], result["command"]) == ("[redacted]\n", "echo [redacted]")
    assert "hunter2" not in (workplace.home / "processes" / name / "meta.json").read_text()


def test_another_agent_of_the_home_finds_it_again_with_its_output(workplace):
    name = begin(workplace, "echo first; until [ -e go ]; do sleep 0.02; done; echo second; exit 4")
    poll_until(workplace, name, "first")
    again = BackgroundProcesses(workplace.home / "processes")
    process = again.get(name, "t")

    assert (again.status(process), again.output(process)[0]) == ("running", b"first\n")
    (workplace.cwd / "go").touch()
    assert again.wait(process, 20, threading.Event()) == "exited"
    assert again.end(process)["code"] == 4 and again.output(process)[0] == b"first\nsecond\n"


def test_what_went_while_nobody_looked_is_reported_lost(workplace):
    name = begin(workplace, "sleep 60")
    processes = processes_of(workplace)
    process = processes.get(name, "t")
    os.kill(process.keeper, signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    result = ask(workplace, "wait", name, timeout=10)

    assert result["status"] == "lost" and "its exit code is not known" in result["note"]
    meta = workplace.home / "processes" / name / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"keeper": os.getpid()}))
    again = BackgroundProcesses(workplace.home / "processes")
    assert again.status(again.get(name, "t")) == "lost"


def test_input_is_judged_as_a_command(workplace):
    name = begin(workplace, "cat")
    workplace.person.asked.clear()
    workplace.person.answer = "deny"

    assert "denied" in workplace.outcome("process", {"action": "submit", "session_id": name, "data": "x"}).result
    (question,) = workplace.person.asked
    assert (question.summary, question.detail) == ("give input to a process", "x\nto cat")
    hard = workplace.outcome("process", {"action": "submit", "session_id": name, "data": "echo x > /dev/sda"})
    assert "BLOCKED (hardline)" in hard.result and len(workplace.person.asked) == 1


def test_a_program_that_cannot_start_is_told(workplace):
    result = workplace.call("terminal", command="true", background=True, workdir="gone")
    assert "does not exist" in result["error"]
    assert workplace.call("process", action="list") == {"processes": []}


@pytest.mark.parametrize("args", [{"action": "jump"}, {"action": "poll"}, {"action": "poll", "session_id": "nobody"}])
def test_wrong_arguments_are_told(workplace, args):
    assert workplace.call("process", **args)["error"]


# -- telling ------------------------------------------------------------------------------------------------------


def watcher(workplace) -> tuple[ProcessWatcher, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []

    def announce(text: str, session: str) -> str:
        told.append((text, session))
        return "taken"

    made = ProcessWatcher(
        processes_of(workplace),
        later=lambda s, f: None,
        spawn=lambda f: f(),
        announce=announce,
        is_open=lambda session: True,
        was_said=lambda session, text: any(text in one for one, _ in told),
    )
    return made, told


def last_line(text: str) -> str:
    """Return the last line of what a process printed, which stands between marks."""
    *_, line, end = text.split("\n")
    assert end == "</foreign-text>"
    return line


def test_what_a_process_prints_has_the_source_of_its_words(workplace):
    begin(workplace, "echo result", notify_on_complete=True)
    told: list[str] = []
    watching = ProcessWatcher(
        processes_of(workplace),
        later=lambda seconds, work: None,
        spawn=lambda work: None,
        announce=lambda text, session: told.append(text) or "taken",
        is_open=lambda session: True,
        was_said=lambda session, text: False,
        taint_source=lambda name: f"others by {name[:8]}",
    )
    deadline = time.monotonic() + 60
    while not told and time.monotonic() < deadline:
        watching.notify_new()
        time.sleep(0.05)
    assert [piece.source for piece in split_marked(told[0]) if piece.source] == ["others by process:"]


def test_the_end_is_told_once_to_its_session(workplace):
    name = begin(workplace, "echo result; exit 2", notify_on_complete=True)
    begin(workplace, "echo unheard")
    ask(workplace, "wait", name)
    watching, told = watcher(workplace)

    assert watching.notify_new() is False and watching.notify_new() is False
    printed = mark_untrusted("echo result; exit 2\nresult", "")
    assert told == [(f"[Background process {name} has ended: exit code 2]\n{printed}", "s")]


def test_an_end_that_no_turn_took_up_is_told_by_the_next_agent_and_one_that_was_is_not(workplace):
    name = begin(workplace, "echo result", notify_on_complete=True)
    ask(workplace, "wait", name)
    told: list[str] = []

    def agent(*, open: bool = True, takes: str = "taken", said: bool = False) -> int:
        """Look once, as an agent that has just started; return how many texts it gave to the session."""
        before = len(told)
        made = ProcessWatcher(
            BackgroundProcesses(workplace.home / "processes"),  # its own, as in a new process
            later=lambda s, f: None,
            spawn=lambda f: f(),
            announce=lambda text, session: told.append(text) or takes,
            is_open=lambda session: open,
            was_said=lambda session, text: said and text in told[-1],
        )
        made.notify_new()
        made.notify_new()
        return len(told) - before

    assert agent(open=False) == 0, "the session belongs to another process"
    assert agent(takes="full") == 2, "it is told again until it is taken"
    assert agent(takes="nobody") == 2
    assert agent() == 1, "taken, and lost with the process"
    assert agent() == 1
    assert agent(said=True) == 0, "the transcript has it"
    assert agent() == 0


def test_the_end_is_left_to_another_running_agent_that_tells_it(workplace):
    name = begin(workplace, "echo result", notify_on_complete=True)
    ask(workplace, "wait", name)
    claim = workplace.home / "processes" / name / "claim"
    other = subprocess.Popen(["sleep", "60"])
    try:
        claim.write_text(f"{other.pid}:{get_process_start_time(other.pid)}")
        watching, told = watcher(workplace)
        watching.notify_new()
        assert told == []
    finally:
        other.kill()
        other.wait()
    watching.notify_new()
    assert len(told) == 1


def test_lines_printed_while_no_agent_ran_are_told_and_none_twice(workplace):
    name = begin(workplace, "echo ready 1; read x; echo ready 2; read x", watch_patterns=["ready"])
    poll_until(workplace, name, "ready 1")
    told: list[str] = []

    def agent() -> None:
        watching = ProcessWatcher(
            processes_of(workplace),
            later=lambda s, f: None,
            spawn=lambda f: f(),
            announce=lambda text, session: told.append(last_line(text)) or "taken",
            is_open=lambda session: True,
            was_said=lambda session, text: False,
        )
        watching.notify_new()

    agent()
    ask(workplace, "submit", name, data="")
    poll_until(workplace, name, "ready 2")
    agent()
    agent()
    assert told == ["ready 1", "ready 2"]


def test_of_two_agents_that_have_the_session_open_one_tells_a_line(workplace):
    name = begin(workplace, "read x; echo ready 1; read x; echo ready 2; read x", watch_patterns=["ready"])
    told: list[str] = []
    agents = [
        ProcessWatcher(
            processes_of(workplace),
            later=lambda s, f: None,
            spawn=lambda f: f(),
            announce=lambda text, session: told.append(last_line(text)) or "taken",
            is_open=lambda session: True,
            was_said=lambda session, text: False,
        )
        for _ in range(2)
    ]
    for line in ("", "ready 1", "ready 2"):
        if line:
            ask(workplace, "submit", name, data="")
            poll_until(workplace, name, line)
        for agent in agents:
            assert agent.notify_new() is True
    assert told == ["ready 1", "ready 2"]


def test_lines_that_are_watched_for_are_told_whole_and_not_for_ever(workplace):
    name = begin(
        workplace,
        "printf 'half of rea'; read x; echo dy; for i in $(seq 50); do read x; echo ready $i; done",
        watch_patterns=["ready"],
    )
    poll_until(workplace, name, "half")
    watching, told = watcher(workplace)

    assert watching.notify_new() is True and told == []
    for number in range(14):
        ask(workplace, "submit", name, data="")
        poll_until(workplace, name, "ready" if number else "dy")
        watching.notify_new()
    assert last_line(told[0][0]) == "half of ready" and last_line(told[1][0]) == "ready 1"
    assert len(told) == 10 and last_line(told[-1][0]) == "(further matches are not reported)"


def test_what_begins_while_somebody_looks_is_looked_at_too(workplace):
    later: list = []
    told: list[str] = []

    def announce(text: str, session: str) -> str:
        told.append(text)
        if len(told) == 1:  # the tool does this in another thread
            ask(workplace, "wait", begin(workplace, "echo second", notify_on_complete=True))
            watching.wake()
        return "taken"

    ask(workplace, "wait", begin(workplace, "echo first", notify_on_complete=True))
    watching = ProcessWatcher(
        processes_of(workplace),
        later=lambda s, f: later.append(f),
        spawn=lambda f: f(),
        announce=announce,
        is_open=lambda session: True,
        was_said=lambda session, text: False,
    )
    watching.wake()
    while later:
        later.pop()()
    assert [last_line(text) for text in told] == ["first", "second"]


def test_one_may_begin_while_another_is_looked_for(workplace):
    processes, faults = processes_of(workplace), []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                processes.processes_of("nobody")
                processes.watched()
            except RuntimeError as exc:
                faults.append(exc)
                return

    lookers = [threading.Thread(target=look) for _ in range(2)]
    begin(workplace, "true")
    like = processes.processes_of(workplace.task)[0]
    for looker in lookers:
        looker.start()
    for number in range(30_000):
        if faults:
            break
        name = f"proc_{number % 2_000}"
        with processes._lock:
            processes._known.pop(name, None) or processes._known.setdefault(name, like)
    stop.set()
    for looker in lookers:
        looker.join()
    assert faults == []


def test_the_agent_looks_by_itself_and_the_session_hears_of_it(tmp_path, monkeypatch, without_host):
    from hermes_agent.host import Host

    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text("terminal: {sandbox: off}\n")
    host = Host.build(tmp_path)
    heard, got = threading.Event(), []

    class Front:
        session_id = "s"

        def push(self, text: str) -> bool:
            got.append(text)
            heard.set()
            return True

    host.injected.front_end = Front()
    handler = host.tools.get("terminal").handler.loaded
    told = handler({"command": "echo hello", "background": True, "notify_on_complete": True}, session_id="s")

    assert json.loads(told).get("pid"), told
    assert heard.wait(60) and f"has ended: exit code 0]\n{HELLO}" in got[0]
    host.bridge.close()


def test_a_session_that_is_opened_again_hears_what_ended_meanwhile(tmp_path, monkeypatch, without_host):
    from hermes_agent.host import Host

    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text("terminal: {sandbox: off}\n")
    first = Host.build(tmp_path)
    made = first.tools.get("terminal").handler.loaded
    made({"command": "echo hello", "background": True, "notify_on_complete": True}, session_id="s")
    first.bridge.close()

    host = Host.build(tmp_path)
    heard = threading.Event()
    host.injected.on_push = lambda session: heard.set()
    host.injected.open("other")
    host.injected.open("s")
    assert heard.wait(60) and f"has ended: exit code 0]\n{HELLO}" in host.injected.take("s")[0]
    host.bridge.close()
