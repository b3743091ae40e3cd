"""What the events of a turn, menus and exports look like."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hermes_agent.console.approver import hosts_in
from hermes_agent.console.dependencies import BackgroundWork
from hermes_agent.console.menus import Menu, MenuOption, match_rank
from hermes_agent.console.overview import Banner, Status, background_lines, banner_lines, status_line
from hermes_agent.console.screen import PlainScreen
from hermes_agent.console.session_export import export_session, export_target
from hermes_agent.console.styled import Theme, line, plain
from hermes_agent.console.tool_lines import changed_text, finished_line, running_line, unified_diff
from hermes_agent.console.transcript_view import TranscriptView
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import (
    Message,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    Usage,
)
from hermes_agent.sessions import UsageTotals


async def transcript(directory: Path, *events: TurnEvent, verbose: bool = False) -> str:
    """Return what a screen that only appends shows of a turn."""

    async def show() -> str:
        out = io.StringIO()
        view = TranscriptView(PlainScreen(out, Theme("none"), reads=False), directory, has_local_files=True)
        view.verbose = verbose
        view.begin_turn()
        for event in events:
            view.event(event)
        await view.end_turn()
        return out.getvalue()

    return await show()


END = TurnFinished("It is 65536.", "answered", Usage(), "m")


async def test_a_turn_reads_as_calls_and_answer(tmp_path: Path) -> None:
    shown = await transcript(
        tmp_path,
        TextDelta("Let me see."),
        ToolStarted("c1", "calculate", {"expression": "2**16"}),
        ToolFinished("c1", "calculate", '{"result": 65536}', "ok", 3),
        TextDelta("\n\nIt is "),
        TextDelta("**65536**."),
        Notice("be careful", "warning"),
        END,
    )
    assert shown == "Let me see.\n\n● calculate 2**16 → 65536, 3 ms\n\nIt is 65536.\n\nbe careful\n"


async def test_an_answer_that_was_not_streamed_is_shown_at_the_end(tmp_path: Path) -> None:
    assert await transcript(tmp_path, END) == "It is 65536.\n"


async def test_a_written_file_is_shown_as_a_diff_with_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    content = "one\n2\nthree\n"
    shown = await transcript(
        tmp_path,
        ToolStarted("c1", "write_file", {"path": "a.txt", "content": content}),
        ToolFinished("c1", "write_file", '{"path": "a.txt", "lines_added": 1, "lines_removed": 1}', "ok", 3),
    )
    assert shown == "● Wrote a.txt  +1 −1, 3 ms\n      1  one\n        -two\n      2 +2\n      3  three\n"


async def test_a_tool_cannot_steer_the_terminal(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\x9b31m"
    shown = await transcript(
        tmp_path,
        ToolStarted("c", "terminal", {"command": hostile}),
        ToolFinished("c", "terminal", json.dumps({"output": hostile, "exit_code": 0}), "ok", 1),
        ToolStarted("d", "todo", {"todos": [{"content": hostile, "status": "pending"}]}),
        ToolFinished("d", "todo", hostile, "ok", 1),
        ToolFinished("e", hostile, hostile, "error", 1),
        Notice(hostile),
        TextDelta(hostile),
        verbose=True,
    )
    assert not set(shown) & {"\x1b", "\x07", "\r", "\x9b"}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_call_is_one_line_whatever_it_is_about(width: int) -> None:
    for name, arguments, result in (
        ("terminal", {"command": "x\n" * 500}, '{"output": "", "exit_code": 1}'),
        ("read_file", {"path": "é" * 300}, '{"content": "a"}'),
        ("web_extract", {"urls": ["https://example.org/" + "x" * 300] * 2}, "plain"),
        ("some_tool", {}, '{"result": null}'),
        ("todo", {"todos": [{"content": "x"}] * 3}, "{}"),
    ):
        assert len(plain(finished_line(name, arguments, result, "ok", 12, width))) <= width
        assert len(plain(finished_line(name, arguments, '{"error": "no\nway"}', "error", 12, width))) <= width
        assert "\n" not in plain(running_line(name, arguments, 61, width))


def test_a_failed_command_says_so_and_a_long_diff_is_cut() -> None:
    failed = finished_line("terminal", {"command": "make"}, '{"output": "a\\nb", "exit_code": 2}', "ok", 3_300, 80)
    assert plain(failed) == "✗ Ran make  exit status 2, 2 lines, 3.3 s"
    diff = changed_text("", "\n".join(str(number) for number in range(100)), limit=10)
    assert (diff.added, diff.removed) == (100, 0)
    assert plain(diff.lines[-1]) == "      … 90 more lines"
    several = unified_diff("--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y\n--- b.py\n+++ b.py\n@@ -3 +3 @@\n-- x\n+y")
    assert [plain(each) for each in several.lines] == ["a.py", "      -x", "    1 +y", "b.py", "      -- x", "    3 +y"]


def test_a_refused_call_says_why_also_with_a_notice_behind_it() -> None:
    result = '{"error": "not approved"}\n\nThis is the third call of this kind.'
    assert plain(finished_line("terminal", {}, result, "blocked", 3, 80)) == "✗ Ran  blocked: not approved"


def test_a_menu_is_chosen_by_arrows_letters_and_parts_of_names() -> None:
    menu = Menu([line("Allow?")], [MenuOption("Allow", "once", "o"), MenuOption("Deny", "deny", "d")])
    menu.move(-1)
    assert menu.selected is not None and menu.selected.value == "deny"
    assert (menu.find("o"), menu.find("2"), menu.find("x")) == (menu.options[0], menu.options[1], None)
    picker = Menu([], [MenuOption(name, name) for name in ("gpt-mini", "claude-opus", "claude-haiku")], has_search=True)
    picker.type("clha")
    assert [option.value for option in picker.matching] == ["claude-haiku"]
    picker.type("zz")
    assert picker.selected is None
    assert "nothing matches" in "\n".join(plain(each) for each in picker.lines(40))
    assert match_rank("o", "claude-opus") < match_rank("p", "claude-opus")  # type: ignore[operator]


def test_the_status_bar_leaves_out_what_does_not_fit() -> None:
    totals = UsageTotals(3, 1_000, 200, 0, 0.0123, 0, 42.0)
    status = Status("model-x", 60_000, 100_000, totals, "smart")
    assert plain(status_line(status, 200)) == ("  model-x · context 60 % · $0.0123 · 42 s · approvals smart")
    assert plain(status_line(status, 30)) == "  model-x · context 60 %"


def test_each_background_work_is_a_row() -> None:
    works = [
        BackgroundWork("command", "npm run\ndev\x1b[2J", 100.0),
        BackgroundWork("subagent", "find the bug " * 20, 40.0),
        *[BackgroundWork("command", f"sleep {n}", 0) for n in range(4)],
    ]
    rows = [plain(each) for each in background_lines(works, 102.5, 40)]
    assert rows[0] == "  ⧗ runs npm run dev�[2J  2.5 s"
    assert rows[1].startswith("  ⧗ subagent: find the bug") and rows[1].endswith("…  1 min 2 s")
    assert rows[2:] == ["  ⧗ runs sleep 0", "  ⧗ runs sleep 1", "  … 2 more in the background"]
    assert max(map(len, rows)) <= 40


async def test_reasoning_is_one_line_until_it_is_opened(tmp_path: Path) -> None:
    events = [ReasoningDelta("First I "), ReasoningDelta("count.\nThen I add."), TextDelta("Four."), END]
    folded, shown = await transcript(tmp_path, *events), await transcript(tmp_path, *events, verbose=True)
    assert folded.splitlines()[0].startswith("✻ Thought for ") and "6 words" in folded and "count" not in folded
    assert shown.splitlines()[1:3] == ["  │ First I count.", "  │ Then I add."]
    assert "Four." in folded and "Four." in shown


async def test_opening_shows_what_the_last_turn_folded(tmp_path: Path) -> None:
    async def show() -> str:
        out = io.StringIO()
        view = TranscriptView(PlainScreen(out, Theme("none"), reads=False), tmp_path, has_local_files=True)
        for number in range(2):
            view.begin_turn()
            view.event(ReasoningDelta(f"thought {number}"))
            view.event(ToolStarted(f"c{number}", "terminal", {"command": f"echo {number}"}))
            view.event(ToolFinished(f"c{number}", "terminal", json.dumps({"output": f"out {number}"}), "ok", 3))
            view.event(END)
            await view.end_turn()
        before = out.getvalue()
        view.set_verbose(True)
        return out.getvalue()[len(before) :]

    opened = await show()
    assert "  │ thought 1" in opened and "  │ out 1" in opened and "● Ran echo 1" in opened
    assert "thought 0" not in opened and "out 0" not in opened


def test_the_hosts_of_a_request_are_named() -> None:
    detail = "curl -u me:secret@x https://user:pw@API.example.org:8443/v1 http://[::1]/ && scp a me@host.example:/tmp"
    assert hosts_in(detail) == ["api.example.org", "[::1]", "host.example"]
    assert hosts_in("echo hello > /tmp/a") == []


def test_the_banner_says_what_runs_where() -> None:
    banner = Banner(
        "1.0", ["calculator: add"], ["web search has no key: hermes auth add"], ["tea"], {"file": ["a", "b"]}
    )
    lines = banner_lines(banner, "m", "p", "http://x", Path("/srv/project"), 80)
    assert [plain(each) for each in lines] == [
        "hermes-agent 1.0",
        "model      m (p) at http://x",
        "directory  /srv/project",
        "tools      file (2)",
        "plugins    calculator: add",
        "skills     tea",
        "! web search has no key: hermes auth add",
        "/help lists the commands, /keys the keys; Ctrl-C stops, Ctrl-D leaves",
    ]


def test_a_session_is_exported_in_three_formats(tmp_path: Path) -> None:
    messages = [
        Message("system", "secret prompt"),
        Message("user", "what <b>is</b> it?"),
        Message("assistant", "", (ToolCall("c", "terminal", '{"command": "ls"}'),)),
        Message("tool", '{"output": "a"}', tool_call_id="c", tool_name="terminal"),
        Message("assistant", "It is **a**."),
    ]
    markdown = export_session(messages, "markdown", title="T", session_id="s")
    assert markdown == "# T\n\n> what <b>is</b> it?\n\n*terminal* `ls`\n\nIt is **a**.\n"
    page = export_session(messages, "html", title="T", session_id="s")
    assert "what &lt;b&gt;is&lt;/b&gt; it?" in page and "<strong>a</strong>" in page and "secret prompt" not in page
    value = json.loads(export_session(messages, "json", title="", session_id="s"))
    assert [message["role"] for message in value["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert export_target("html", "s", tmp_path) == ("html", tmp_path / "hermes-s.html")
    assert export_target("notes.json", "s", tmp_path) == ("json", tmp_path / "notes.json")
    assert export_target("", "s", tmp_path) == ("markdown", tmp_path / "hermes-s.md")
    (tmp_path / "there.md").write_text("")
    for wrong in ("notes.doc", "there.md"):
        with pytest.raises(UserError):
            export_target(wrong, "s", tmp_path)
