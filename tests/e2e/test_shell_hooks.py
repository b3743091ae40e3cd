"""Shell hooks through the front ends: a guard holds wherever a tool is called, and nothing runs without consent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_http import ask, daemon

from hermes_agent.cron import Job, Schedule
from hermes_agent.cron.feature import ScheduledJobs
from hermes_agent.gateway.scheduled_jobs import SchedulerFactory
from hermes_agent.testing import call, plugin_host
from hermes_agent.testing.chat import chat_host
from hermes_agent.testing.scripted_model import ScriptedModel
from terminal_screen import TerminalScreen
from worlds import PROMPTS, make_home, results_seen, run, script

REASON = "not on this machine"
PROMPT = PROMPTS[0]


@pytest.fixture
def guard(tmp_path: Path) -> str:
    """A program that refuses `calculate` and `todo`, and notes each event that it gets."""
    file = tmp_path / "guard.py"
    file.write_text(
        f"#!{sys.executable}\nimport json, sys\nevent = json.load(sys.stdin)\n"
        f"open({str(tmp_path / 'events')!r}, 'a').write(json.dumps(event) + '\\n')\n"
        f"if event['tool_name'] in ('calculate', 'todo'): sys.stderr.write({REASON!r}); sys.exit(2)\n"
    )
    file.chmod(0o755)
    return str(file)


def config(guard: str, **more: Any) -> dict[str, Any]:
    return {"hooks": {"pre_tool_call": [{"command": guard, "fail_closed": True}]}, "hooks_auto_accept": True, **more}


def hooked_home(tmp_path: Path, model: Any, guard: str) -> Path:
    home = make_home(tmp_path, model)
    with (home / "config.yaml").open("a") as file:
        file.write("hooks: " + json.dumps({"pre_tool_call": [{"command": guard}]}) + "\n")
    return home


def test_a_guard_waits_for_consent_and_then_blocks_in_every_process(tmp_path: Path, scripted: Any, guard: str) -> None:
    with scripted(script(PROMPT)) as model:
        home = hooked_home(tmp_path, model, guard)
        asked = run(home, "-z", PROMPT.question)
        assert asked.returncode == 0 and PROMPT.result in results_seen(model)[-1]
        assert "Shell hooks that do not run (guards among them: calls are not checked)" in asked.stderr
        assert "not allowlisted — skipped" in (home / "logs" / "agent.log").read_text()
        assert not (tmp_path / "events").exists()
        assert "not allowed yet" in run(home, "hooks", "list").stdout
        assert run(home, "hooks", "doctor").returncode == 1
        assert run(home, "hooks", "allow").returncode == 1

        assert run(home, "hooks", "allow", "--yes").stdout.endswith("Allowed.\n")
        assert run(home, "hooks", "doctor").stdout == f"ok: pre_tool_call: {guard}\n"
        asked = run(home, "-z", PROMPT.question)
        assert REASON in results_seen(model)[-1] and "Shell hooks" not in asked.stderr
        with daemon(home) as (client, _):
            ask(client, PROMPT.question)
            assert REASON in results_seen(model)[-1]

        assert "Forgotten" in run(home, "hooks", "revoke", guard).stdout
        run(home, "-z", PROMPT.question)
        assert REASON not in results_seen(model)[-1]


def test_a_chat_asks_at_its_start_and_a_flag_answers_for_all(tmp_path: Path, scripted: Any, guard: str) -> None:
    with scripted(script(PROMPT)) as model:
        home = hooked_home(tmp_path, model, guard)
        terminal = TerminalScreen(home, columns=100, rows=40)
        terminal.wait("The config runs a program on pre_tool_call")
        assert guard[-30:] in terminal.text().replace("\n", "")
        terminal.type("n")
        terminal.gone("Not now")
        terminal.until(lambda: terminal.input() == "", "an empty input")
        terminal.leave()
        assert not (home / "shell-hooks-allowlist.json").exists()

        terminal = TerminalScreen(home, columns=100, rows=40)
        terminal.wait("The config runs a program on pre_tool_call")
        terminal.type("y")
        terminal.wait("Allowed: ")
        terminal.say(PROMPT.question)
        terminal.wait(REASON)
        terminal.idle()
        terminal.leave()
        assert run(home, "hooks", "revoke", guard).returncode == 0

        asked = run(home, "chat", "--accept-hooks", "-q", PROMPT.question)
        assert REASON in results_seen(model)[-1] and "Shell hooks" not in asked.stderr
        assert not json.loads((home / "shell-hooks-allowlist.json").read_text())["approvals"]


def test_doctor_names_each_hook_that_waits_or_is_wrong(tmp_path: Path, guard: str) -> None:
    home = make_home(tmp_path, None)
    entries = [{"command": guard}, {"command": "guard 'x"}]
    with (home / "config.yaml").open("a") as file:
        file.write("hooks: " + json.dumps({"pre_tool_call": entries, "post_tool_call": [{"command": "true"}]}) + "\n")

    def found() -> list[tuple[str, str]]:
        lines = json.loads(run(home, "doctor", "--offline", "--json").stdout)
        return [(line["level"], line["text"]) for line in lines if line["subject"] == "hooks"]

    wrong = ("wrong", "hooks.pre_tool_call: `command` cannot be split into words: No closing quotation")
    assert found() == [
        ("wrong", f"pre_tool_call: {guard}: not allowed yet: calls are not checked"),
        ("wrong", "post_tool_call: true: not allowed yet"),
        wrong,
    ]
    assert "Allowed." in run(home, "hooks", "allow", "--yes").stdout
    assert found() == [wrong]


def test_a_guard_that_fails_closed_blocks_until_it_is_allowed(tmp_path: Path, scripted: Any, guard: str) -> None:
    with scripted(script(PROMPT)) as model:
        home = make_home(tmp_path, model)
        with (home / "config.yaml").open("a") as file:
            entry = {"command": guard, "fail_closed": True, "matcher": "calculate"}
            file.write("hooks_consent: content\nhooks: " + json.dumps({"pre_tool_call": [entry]}) + "\n")
        asked = run(home, "-z", PROMPT.question)
        assert "(guards among them: with `fail_closed`, calls are blocked)" in asked.stderr
        assert f"hook {guard} failed closed: not allowed yet" in results_seen(model)[-1]
        assert "`hermes hooks allow`" in results_seen(model)[-1] and not (tmp_path / "events").exists()
        lines = json.loads(run(home, "doctor", "--offline", "--json").stdout)
        (line,) = [line for line in lines if line["subject"] == "hooks"]
        assert line["text"].endswith("not allowed yet: with `fail_closed`, calls are blocked")

        run(home, "hooks", "allow", "--yes")
        run(home, "-z", PROMPT.question)
        assert REASON in results_seen(model)[-1]
        Path(guard).write_text(Path(guard).read_text() + "# changed\n")
        run(home, "-z", PROMPT.question)
        assert "failed closed: its script has changed" in results_seen(model)[-1]


@pytest.mark.parametrize("command", ["guard 'x", "sh -c 'echo {tool_name}'", ""])
def test_a_guard_that_fails_closed_and_has_no_command_blocks(command: str) -> None:
    entry = {"command": command, "fail_closed": True, "matcher": "todo|terminal"}
    settings = {"hooks": {"pre_tool_call": [entry]}, "hooks_auto_accept": True}
    with plugin_host(config=settings, model=[TODO, "done"]) as host:
        host.ask("plan")
        assert "hook hooks.pre_tool_call failed closed: " in results(host.model)[0]


def test_test_shows_what_a_program_gets_and_answers(tmp_path: Path, scripted: Any, guard: str) -> None:
    with scripted(script(PROMPT)) as model:
        home = hooked_home(tmp_path, model, guard)
        done = run(home, "hooks", "test", "pre_tool_call", "--for-tool", "calculate", "--json")
        (result,) = json.loads(done.stdout)
        assert (done.returncode, result["status"], result["state"]) == (0, 2, "not allowed yet")
        assert result["answer"] == {"action": "block", "message": REASON}
        assert run(home, "hooks", "test", "pre_tool").returncode == 2
        assert run(home, "hooks", "test", "post_tool_call").returncode == 1


TODO = call("todo", todos=[{"id": "1", "content": "x", "status": "pending"}])


def results(model: ScriptedModel) -> list[str]:
    """Return every result of a tool that the model was given."""
    messages = [message for request in model.requests for message in request["messages"]]
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def test_a_guard_holds_in_the_terminal_in_subagents_and_in_scripts(tmp_path: Path, guard: str) -> None:
    with plugin_host(config=config(guard), model=[TODO, "done"]) as host:
        host.ask("plan")
        assert REASON in results(host.model)[0]
    delegated = [call("delegate_task", goal="plan it"), TODO, "I may not", "done"]
    with plugin_host(config=config(guard), model=delegated) as host:
        host.ask("plan")
        assert any(REASON in result for result in results(host.model))
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [event["tool_name"] for event in events] == ["todo", "delegate_task", "todo"]
    assert len({event["session_id"] for event in events}) == 3


def test_a_guard_holds_in_chats_and_in_their_background_work(guard: str) -> None:
    model = ScriptedModel(TODO, "done")
    with chat_host(config=config(guard), model=model) as chat:
        chat.ask("plan")
    assert REASON in results(model)[0]
    model = ScriptedModel(TODO, "done")
    with chat_host(config=config(guard), model=model) as chat:
        chat.write("/background plan")
        chat.wait(lambda: len(model.requests) == 2, "the end of the background work")
    assert REASON in results(model)[0]


def test_a_guard_holds_in_scheduled_jobs(tmp_path: Path, guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with plugin_host(config=config(guard), model=[TODO, "done"]) as host:
        job = Job("", "plan", Schedule("once", "at 9", at=1.0), prompt="plan", principal="local")

        async def work() -> None:
            done = asyncio.Event()

            async def send(*args: Any) -> None:
                done.set()

            scheduler = host.host.service(SchedulerFactory).make(send)
            await scheduler.start()
            async with asyncio.timeout(60):
                await done.wait()
            await scheduler.drain(5)

        with contextlib.closing(host.host.service(ScheduledJobs).open()) as store:
            store.put(replace(job, next_run=1.0, deliver="irc:#room"))
        host._run(work())
        assert REASON in results(host.model)[0]
    (event,) = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert event["tool_name"] == "todo"


def test_a_guard_in_the_sandbox_sees_the_call_and_not_the_home(tmp_path: Path) -> None:
    program = (
        "import json, os, sys\n"
        "seen = os.path.exists(os.environ['HERMES_HOME'] + '/.env')\n"
        "print(json.dumps({'action': 'block', 'message': json.load(sys.stdin)['tool_name'] + str(seen)}))\n"
    )
    file = tmp_path / "guard.py"
    file.write_text(program)
    entry = {"command": f"python3 {file}", "sandbox": True, "fail_closed": True}
    settings = {"terminal": {"cwd": str(tmp_path), "sandbox": "bwrap"}}
    settings |= {"hooks": {"pre_tool_call": [entry]}, "hooks_auto_accept": True}
    with plugin_host(config=settings, model=[TODO, "done"]) as host:
        (host.home / ".env").write_text("SECRET_KEY=0123456789abcdef\n")
        host.ask("plan")
        said = results(host.model)[0]
    if "there is no sandbox here" in said:
        pytest.skip("no sandbox of bubblewrap can be made here")
    assert "todoFalse" in said


def test_a_program_adds_context_and_one_that_hangs_or_crashes_is_named(tmp_path: Path) -> None:
    hooks = {
        "pre_llm_call": [{"command": """python3 -c 'print("{\\"context\\": \\"it is Tuesday\\"}")'"""}],
        "post_tool_call": [{"command": "sleep 60", "timeout": 1}, {"command": "/no/such/program"}],
    }
    settings = {"hooks": hooks, "hooks_auto_accept": True}
    with plugin_host(config=settings, model=[TODO, "done"]) as host:
        host.ask("plan")
        assert "it is Tuesday" in str(host.model.requests[0]["messages"])
        host.host.hooks.wait_idle(30)
        log = "\n".join(line.text for line in host.log)
    assert "shell hook post_tool_call: sleep 60: no answer within 1 seconds" in log
    assert "shell hook post_tool_call: /no/such/program: cannot be started" in log
