from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from hermes_agent import config
from hermes_agent.policy import Approvals, Refusal


def _alive(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if marker in words:
                found.append(entry.name)
    return found


def test_a_command_gives_output_and_exit_code(workplace):
    assert workplace.call("terminal", command="echo out; echo err >&2; exit 3") == {
        "output": "out\nerr\n",
        "exit_code": 3,
        "error": None,
    }


def test_a_failing_command_is_no_error_of_the_tool(workplace):
    assert workplace.outcome("terminal", {"command": "false"}).status == "ok"


def test_every_command_is_shown_to_the_person_with_its_directory(workplace):
    workplace.call("terminal", command="true")

    (question,) = workplace.person.asked
    assert (question.tool, question.summary) == ("terminal", "run a command")
    assert question.detail == f"true\nin {workplace.cwd}"


def test_a_dangerous_command_is_shown_with_what_is_dangerous_about_it(workplace):
    workplace.person.answer = "deny"
    workplace.call("terminal", command="git reset --hard; rm -r build")

    (question,) = workplace.person.asked
    assert question.summary == "run a command (recursive delete; git reset --hard (destroys uncommitted changes))"


def test_what_is_on_the_hard_line_list_never_runs_and_nobody_is_asked(workplace):
    outcome = workplace.outcome("terminal", {"command": "echo x > /dev/no-such-disk"})

    assert outcome.status == "blocked"
    assert "BLOCKED (hardline): redirect to raw block device" in outcome.result
    assert workplace.person.asked == [] and not Path("/dev/no-such-disk").exists()


def test_a_denied_command_does_not_run(workplace):
    workplace.person.answer = "deny"
    outcome = workplace.outcome("terminal", {"command": "touch ran"})

    assert outcome.status == "blocked"
    assert not (workplace.cwd / "ran").exists()


def test_where_nobody_can_be_asked_no_command_runs(workplace):
    workplace.person.answer = Refusal("nobody is there")

    assert workplace.call("terminal", command="touch ran") == {"error": "nobody is there"}
    assert not (workplace.cwd / "ran").exists()


def test_the_answer_for_the_session_covers_the_same_command_and_no_other(workplace):
    workplace.person.answer = "session"
    for command in ("true", "true", "true "):
        workplace.call("terminal", command=command)

    assert len(workplace.person.asked) == 2


def test_the_answer_for_the_session_covers_what_is_dangerous_for_the_same_reasons(workplace):
    workplace.person.answer = "session"
    for command in ("rm -r a", "rm -r b", "rm -r c; git reset --hard"):
        workplace.call("terminal", command=command)

    assert len(workplace.person.asked) == 2


def test_the_answer_always_is_written_down_and_holds_at_once_and_later(workplace):
    workplace.person.answer = "always"
    workplace.call("terminal", command="rm -r a")
    workplace.approvals = Approvals(workplace.person, timeout_s=5)
    workplace.call("terminal", command="rm -r b")

    assert len(workplace.person.asked) == 1
    assert config.load(workplace.home).get("command_allowlist") == ["recursive delete"]


def test_always_is_not_offered_for_a_command_without_a_name_for_its_danger(workplace):
    workplace.call("terminal", command="true")
    assert workplace.person.asked[0].keep is None


def test_a_list_that_cannot_be_written_leaves_the_answer_for_the_session(workplace, caplog):
    (workplace.home / "config.yaml").write_text("command_allowlist: {broken\n")
    workplace.person.answer = "always"
    for name in ("a", "b"):
        workplace.call("terminal", command=f"rm -r {name}")

    assert len(workplace.person.asked) == 1
    assert "answer `always` not saved, it holds for this session" in caplog.text
    assert (workplace.home / "config.yaml").read_text() == "command_allowlist: {broken\n"


def test_where_approvals_are_off_nobody_is_asked_and_the_hard_line_holds(workplace):
    workplace.person.answer = "deny"
    workplace.approvals = Approvals(workplace.person, timeout_s=5, off=True)

    assert workplace.call("terminal", command="mkdir -p d; rm -r d")["exit_code"] == 0
    assert workplace.outcome("terminal", {"command": "echo x > /dev/no-such-disk"}).status == "blocked"
    assert workplace.person.asked == []


def test_the_answer_for_the_session_does_not_cover_another_directory(workplace):
    workplace.person.answer = "session"
    workplace.call("terminal", command="true")
    workplace.call("terminal", command="true", workdir="/")

    assert len(workplace.person.asked) == 2


def test_a_plugin_that_goes_straight_to_the_registry_is_asked_about_too(workplace):
    workplace.person.answer = "deny"

    result = workplace.registry.dispatch("terminal", {"command": "touch ran"})

    assert "error" in result
    assert not (workplace.cwd / "ran").exists()


def test_characters_that_hide_a_part_of_the_command_are_written_out_in_the_question(workplace):
    workplace.person.answer = "deny"
    workplace.call("terminal", command="rm x\r\x1b[2Kls \u202ecba")

    assert workplace.person.asked[0].detail.startswith("rm x\\u000d\\u001b[2Kls \\u202ecba\n")


def test_a_relative_directory_counts_from_the_conversation(workplace):
    (workplace.cwd / "sub").mkdir()

    assert workplace.call("terminal", command="pwd", workdir="sub")["output"] == f"{workplace.cwd}/sub\n"


def test_a_directory_that_is_missing_is_named(workplace):
    assert workplace.call("terminal", command="pwd", workdir="gone") == {
        "output": "",
        "exit_code": -1,
        "error": f"the working directory {workplace.cwd}/gone does not exist",
        "status": "error",
    }
    assert "cannot be used: File name too long" in workplace.call("terminal", command="pwd", workdir="x" * 300)["error"]


def test_what_is_for_background_processes_is_refused_elsewhere(workplace):
    for name, value in (("notify_on_complete", True), ("watch_patterns", ["x"])):
        result = workplace.call("terminal", command="touch ran", **{name: value})
        assert result["error"] == f"`{name}` is for background processes: set `background`"
    assert not (workplace.cwd / "ran").exists()


def test_a_command_may_have_a_terminal(workplace):
    command = "test -t 0 && test -t 1 && tty >/dev/null && (echo > /dev/tty) && echo yes; exit 3"

    assert workplace.call("terminal", command=command)["output"] == ""
    result = workplace.call("terminal", command=command, pty=True)
    assert (result["output"].split(), result["exit_code"]) == (["yes"], 3)


def test_what_lasts_does_not_take_up_the_line_ends_of_a_terminal(workplace):
    workplace.call("terminal", command="f() { echo f; }; export LINES_OF='a\nb'")
    for pty in (True, False, True):
        answer = workplace.call("terminal", command='f; printf %s "$LINES_OF" | od -An -tx1', pty=pty)
        assert (answer["output"], answer["exit_code"]) == ("f\n 61 0a 62\n", 0)


def test_a_background_process_that_prints_into_what_is_told_is_named_as_the_reason(workplace):
    workplace.call("terminal", command="KEPT=1; export KEPT")
    forged = "printf '\\001<%s>1:ab\\001</%s>' $m $m"
    mark = "m=$(tr '\\0' '\\n' < /proc/$$/cmdline | grep -Eo '[0-9a-f]{24}' | tail -1)"
    answer = workplace.call("terminal", command=f"KEPT=2; {mark}; {forged}; exit 0")

    assert "a background process printed while they were read" in answer["note"]
    assert workplace.call("terminal", command="echo $KEPT")["output"] == "1\n"


def test_the_switches_that_are_off_do_no_harm(workplace):
    assert workplace.call("terminal", command="true", background=False, pty=False)["exit_code"] == 0


def test_a_command_sees_no_secret_of_the_agent(workplace):
    output = workplace.call("terminal", command="env; cat /proc/$$/environ | tr '\\0' '\\n'")["output"]

    names = {line.partition("=")[0] for line in output.splitlines() if "=" in line}
    assert {"PATH", "HOME"} <= names
    assert not names & {"OPENAI_API_KEY", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET"}
    assert "0123456789abcdef" not in output


def test_a_command_reads_end_of_file_where_it_wants_input(workplace):
    assert workplace.call("terminal", command="cat; read x || echo eof", timeout=20)["output"] == "eof\n"


def test_a_command_that_takes_too_long_is_124_with_its_output_so_far(workplace):
    result = workplace.call("terminal", command="echo start; sleep 60", timeout=3)

    output = result.pop("output").removesuffix("Terminated\n")  # bash says so when its child is first to end
    assert (output, result) == ("start\n", {"exit_code": 124, "error": "stopped after 3 s (`timeout`)"})


def test_a_timeout_that_is_no_positive_number_is_refused(workplace):
    for value in (0, -5, "soon", True, 1.5):
        assert workplace.call("terminal", command="true", timeout=value)["status"] == "error"


def test_an_interrupt_ends_the_command_and_its_children(workplace):
    marker = "61.75"
    threading.Timer(0.3, workplace.cancelled.set).start()
    started = time.monotonic()
    outcome = workplace.outcome("terminal", {"command": f"(setsid sleep {marker} &) ; sleep {marker}"})

    assert outcome.status == "cancelled"
    assert '"exit_code": 130' in outcome.result
    assert time.monotonic() - started < 30
    assert _alive(marker) == []


def test_what_is_left_in_the_background_ends_with_the_command_and_the_model_is_told(workplace):
    marker = "61.25"
    result = workplace.call("terminal", command=f"nohup setsid sleep {marker} >/dev/null 2>&1 & echo started")

    assert result["output"] == "started\n"
    assert result["note"] == "1 background process was stopped when the command ended"
    assert _alive(marker) == []


def test_a_flood_of_output_keeps_its_beginning_and_its_end(workplace):
    result = workplace.call("terminal", command="echo first; yes filler | head -c 21000000; echo last")

    assert result["output"].startswith("first\nfiller\n")
    assert result["output"].endswith("filler\nlast\n")
    assert "bytes left out]" in result["output"]
    assert len(result["output"]) < 51_000


def test_a_cut_leaves_no_part_of_a_line(workplace):
    output = workplace.call("terminal", command="yes lorem-ipsum-dolo | head -c 1700000")["output"]

    assert {line for line in output.splitlines() if line} - {"lorem-ipsum-dolo"} == {
        line for line in output.splitlines() if "left out" in line
    }


def test_a_line_that_is_too_long_is_cut(workplace):
    output = workplace.call("terminal", command="head -c 5000 /dev/zero | tr '\\0' x; echo; echo end")["output"]

    assert output == "x" * 2000 + "… [3,000 more]\nend\n"


def test_colours_and_titles_are_left_out_and_other_bytes_survive(workplace):
    command = r"printf '\033[31mred\033[0m \033]0;title\007\033(Bplain\r\n\377\303\244'"

    assert workplace.call("terminal", command=command)["output"] == "red plain\n\ufffdä"


def test_a_title_that_never_ends_swallows_one_line_at_most(workplace):
    assert workplace.call("terminal", command=r"printf '\033]0;title\nshown\n'")["output"] == "\nshown\n"


def test_a_nul_in_the_command_and_half_a_character_are_refused(workplace):
    for command in ("echo a\0b", "echo \ud800", "", "   "):
        assert workplace.call("terminal", command=command)["status"] == "error"


def test_a_command_that_no_program_takes_says_what_to_do(workplace):
    result = workplace.call("terminal", command="true " + "x" * 300_000)

    assert result["exit_code"] == -1
    assert "put the script into a file" in result["error"]


def test_a_signal_ends_a_command_with_128_and_its_number(workplace):
    assert workplace.call("terminal", command="kill -KILL $$")["exit_code"] == 137


def test_a_hook_may_rewrite_the_output_before_it_is_cut(workplace):
    seen = {}

    def shout(**payload):
        seen.update(payload)
        return payload["output"][:5].upper()

    workplace.hooks.add("transform_terminal_output", shout, "loud")
    result = workplace.call("terminal", command="echo hello; yes | head -c 200000")

    assert result["output"] == "HELLO"
    assert len(seen.pop("output")) == 200_006
    assert seen == {
        "command": "echo hello; yes | head -c 200000",
        "returncode": 0,
        "tool_call_id": "call_1",
        "task_id": "t",
        "env_type": "local",
        "telemetry_schema_version": "hermes.observer.v1",
    }


def test_a_working_directory_that_is_exchanged_after_the_question_is_refused(workplace):
    (workplace.cwd / "a").mkdir()
    (workplace.cwd / "b").mkdir()
    link = workplace.cwd / "link"
    link.symlink_to("a")
    ask = workplace.person.ask

    async def exchange(request):
        link.unlink()
        link.symlink_to("b")
        return await ask(request)

    workplace.person.ask = exchange
    result = workplace.call("terminal", command="touch ran", workdir="link")

    assert result["status"] == "error"
    assert os.listdir(workplace.cwd / "b") == []


def test_a_conversation_has_one_shell_and_another_has_its_own(workplace):
    workplace.call("terminal", command="mkdir -p deep/er; cd deep/er; export WORD=kept")

    assert workplace.call("terminal", command="pwd; echo $WORD")["output"] == f"{workplace.cwd}/deep/er\nkept\n"
    workplace.task = "other"
    assert workplace.call("terminal", command="pwd; echo $WORD")["output"] == f"{workplace.cwd}\n\n"


def test_a_directory_for_one_command_is_for_that_one_alone(workplace):
    (workplace.cwd / "sub").mkdir()
    workplace.call("terminal", command="pwd", workdir="sub")

    assert workplace.call("terminal", command="pwd")["output"] == f"{workplace.cwd}\n"


def test_file_tools_count_relative_paths_from_where_the_shell_stands(workplace):
    workplace.call("terminal", command="mkdir sub; cd sub; echo text > there")

    assert workplace.call("read_file", path="there")["content"] == "1|text\n"
    assert workplace.call("write_file", path="new", content="x")["path"] == "new"
    assert (workplace.cwd / "sub" / "new").exists()
    workplace.call("terminal", command="cd /")
    assert workplace.call("read_file", path="sub/there")["path"] == "sub/there"


def test_a_directory_that_is_gone_leaves_the_shell_in_the_conversations(workplace):
    workplace.call("terminal", command="mkdir sub; cd sub; rmdir ../sub")

    assert workplace.call("terminal", command="pwd")["output"] == f"{workplace.cwd}\n"


def test_a_function_that_lasts_is_judged_where_it_is_called(workplace):
    workplace.call("terminal", command="tidy() { git reset --hard; }")
    workplace.person.asked.clear()
    workplace.call("terminal", command="tidy")

    assert "git reset --hard (destroys uncommitted changes)" in workplace.person.asked[0].summary


def test_where_nothing_is_to_last_nothing_does(place_with):
    workplace = place_with("terminal: {sandbox: off, persistent_shell: false}\n")
    workplace.call("terminal", command="cd /; export WORD=kept")

    assert workplace.call("terminal", command="pwd; echo $WORD")["output"] == f"{workplace.cwd}\n\n"


def test_a_backend_that_nobody_has_runs_nothing(place_with):
    workplace = place_with("terminal: {backend: gone}\n")
    result = workplace.call("terminal", command="touch ran")

    assert (result["status"], result["exit_code"]) == ("error", -1)
    assert "terminal.backend='gone' is set but no plugin registered that name." in result["error"]
    assert not (workplace.cwd / "ran").exists()


SUDO = """#!/bin/sh
# remembers, as sudo does, which shell has shown the password
stamp={stamps}/$PPID
if [ "$1 $2" = "-S -v" ]; then read -r password; [ "$password" = open-sesame-1 ] && touch "$stamp"; exit; fi
[ -e "$stamp" ] || {{ echo "a password is required" >&2; exit 1; }}
exec "$@"
"""


def test_sudo_is_told_the_password_and_nobody_else_is(workplace):
    stamps = workplace.home / "stamps"
    stamps.mkdir()
    program = workplace.cwd / "bin" / "sudo"
    program.parent.mkdir()
    program.write_text(SUDO.format(stamps=stamps))
    program.chmod(0o755)
    backend = workplace.registry.get("terminal").handler.loaded.shells.backend
    spy = "env; tr '\\0' ' ' < /proc/$$/cmdline; for fd in 3 4 5 6 7 8 9 $(seq 10 40); do timeout 1 cat <&$fd; done"
    workplace.call("terminal", command="export PATH=$PWD/bin:$PATH")

    assert workplace.call("terminal", command="sudo echo in")["exit_code"] == 1
    backend._sudo_password = lambda: "open-sesame-1"
    backend._environ["PATH"] = f"{program.parent}:{backend._environ['PATH']}"
    result = workplace.call("terminal", command=f"sudo echo in; {spy}")

    assert result["output"].startswith("in\n") and "open-sesame" not in result["output"]


def test_without_the_word_sudo_the_password_is_not_even_looked_up(workplace):
    def never() -> str:
        raise AssertionError("looked up")

    workplace.registry.get("terminal").handler.loaded.shells.backend._sudo_password = never
    assert workplace.call("terminal", command="echo pseudo")["output"] == "pseudo\n"
