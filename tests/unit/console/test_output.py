from __future__ import annotations

import asyncio
import io

from hermes_agent.console.output import Renderer, TerminalApprover, printable, tool_line
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.messages import Notice, TextDelta, ToolFinished, ToolStarted, TurnFinished, Usage


def test_a_turn_reads_as_tool_line_result_and_answer() -> None:
    out = io.StringIO()
    renderer = Renderer(out, out)
    for event in (
        TextDelta("Let me see."),
        ToolStarted("c1", "calculate", {"expression": "2**16"}),
        ToolFinished("c1", "calculate", '{"result": 65536}', "ok", 3),
        TextDelta("\n\nIt is "),
        TextDelta("65536."),
        Notice("be careful", "warning"),
        TurnFinished("It is 65536.", "answered", Usage(), "m"),
    ):
        renderer.show(event)
    assert out.getvalue() == (
        "Let me see.\n"
        '⚡ calculate {"expression": "2**16"}\n'
        '  → {"result": 65536}  (3 ms)\n'
        "\n\nIt is 65536.\n"
        "be careful\n"
    )


def test_an_answer_that_was_not_streamed_is_shown_at_the_end() -> None:
    out = io.StringIO()
    Renderer(out, out).show(TurnFinished("all at once", "answered", Usage(), "m"))
    assert out.getvalue() == "all at once\n"


def test_what_a_tool_returns_cannot_steer_the_terminal() -> None:
    out = io.StringIO()
    Renderer(out, out).show(ToolFinished("c", "t", "\x1b]0;owned\x07\x1b[2J\r\x9b31m", "ok", 1))
    assert not set(out.getvalue()) & {"\x1b", "\x07", "\r", "\x9b"}
    assert printable("a\tb\nc\x1b") == "a\tb\nc\N{REPLACEMENT CHARACTER}"


def test_a_long_call_is_one_line_with_its_end_marked() -> None:
    line = tool_line("write_file", {"content": "x\n" * 500})
    assert "\n" not in line
    assert len(line) == 160
    assert line.endswith("…")


def test_the_answers_of_a_person_mean_what_they_say() -> None:
    shown: list[str] = []
    answers = iter(["what?", "S"])

    async def ask(prompt: str) -> str:
        return next(answers)

    request = ApprovalRequest("terminal", "run a command", "rm -rf \x1b[8mhidden", "rule", plugin="janitor")
    choice = asyncio.run(TerminalApprover(ask, shown.append).ask(request))
    assert choice == "session"
    assert shown[0] == "\nplugin `janitor`: terminal wants to run a command:"
    assert "rm -rf" in shown[1]
    assert "\x1b" not in shown[1]
    assert "'what?' is none of" in shown[2]


def test_always_and_session_are_no_answers_to_a_question_about_one_call() -> None:
    lines, shown = ["always", "s", "once"], list[str]()

    async def ask(prompt: str) -> str:
        assert prompt == "Allow? [o]nce, [d]eny: "
        return lines.pop(0)

    request = ApprovalRequest("terminal", "run a command", "$X", "r", keep=lambda: None, once=True)
    assert asyncio.run(TerminalApprover(ask, shown.append).ask(request)) == "once"
    assert shown[2:] == ["'always' is none of once, deny.", "'s' is none of once, deny."]


def test_an_empty_line_and_the_end_of_input_deny() -> None:
    async def nothing(prompt: str) -> str:
        return ""

    async def gone(prompt: str) -> str:
        raise EOFError

    request = ApprovalRequest("terminal", "run a command", "ls", "rule")
    for ask in (nothing, gone):
        assert asyncio.run(TerminalApprover(ask, lambda text: None).ask(request)) == "deny"
