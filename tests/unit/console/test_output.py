"""The answer to one question, its records for programs, and the page that describes them; run this file to write it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hermes_agent.console.event_records import RecordSink, records_schema, reference_page, result_schema
from hermes_agent.console.output import AnswerSink, OneShotOptions, TerminalApprover
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.messages import (
    Notice,
    StopSentence,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    Usage,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "events.md"

EVENTS: tuple[TurnEvent, ...] = (
    TextDelta("Let me see."),
    ToolStarted("c1", "calculate", {"expression": "2**16"}),
    ToolFinished("c1", "calculate", '{"result": 65536}', "ok", 3),
    TextDelta("\n\nIt is "),
    TextDelta("65536."),
    Notice("be careful", "warning"),
    TurnFinished("It is 65536.", "answered", Usage(12, 3), "m", "turn_1"),
)


def test_the_answer_is_on_stdout_and_everything_else_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    sink = AnswerSink(OneShotOptions())
    for event in EVENTS:
        sink.event(event)
    shown = capsys.readouterr()
    assert shown.out == "It is 65536.\n"
    assert shown.err == "● calculate 2**16 → 65536, 3 ms\nbe careful\n"


def test_quiet_leaves_the_answer_alone_and_verbose_adds_results(capsys: pytest.CaptureFixture[str]) -> None:
    for options, told in ((OneShotOptions(quiet=True), ""), (OneShotOptions(verbose=True), '  │ {"result": 65536}\n')):
        sink = AnswerSink(options)
        for event in EVENTS:
            sink.event(event)
        shown = capsys.readouterr()
        assert shown.out == "It is 65536.\n"
        assert told in shown.err and bool(told) is bool(shown.err)


def test_the_sentence_that_ends_a_turn_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    sink = AnswerSink(OneShotOptions())
    sink.event(TextDelta("A part."))
    sink.event(StopSentence("\n\nI stop here."))
    sink.event(TurnFinished("A part.\n\nI stop here.", "stopped", Usage(), "m"))
    assert sink.sentence == "I stop here."
    assert capsys.readouterr().out == "A part.\n"


def test_records_are_what_their_schema_says() -> None:
    lines: list[str] = []
    sink = RecordSink("s1", lines.append)
    sink.record("session", session_id="s1", model="m", provider="p")
    for event in EVENTS:
        sink.event(event)
    sink.record("error", message="m", hint="")
    records = [json.loads(line) for line in lines]
    for record in records:
        jsonschema.validate(record, records_schema())
    assert [record["event"] for record in records] == [
        *("session", "text", "tool_started", "tool_finished", "text", "text", "notice", "finished", "error")
    ]
    result = json.loads(sink.result())
    jsonschema.validate(result, result_schema())
    assert result["text"] == "It is 65536."
    assert result["usage"] == {"input_tokens": 12, "output_tokens": 3, "cached_tokens": 0}
    assert result["tool_calls"][0]["arguments"] == {"expression": "2**16"}


def test_the_page_says_what_is_declared() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page() + "\n"


async def test_the_answers_of_a_user_mean_what_they_say() -> None:
    shown: list[str] = []
    answers = iter(["what?", "S"])

    async def ask(prompt: str) -> str:
        return next(answers)

    request = ApprovalRequest("terminal", "run a command", "rm -rf \x1b[8mhidden", "rule", plugin="janitor")
    choice = await TerminalApprover(ask, shown.append).ask(request)
    assert choice == "session"
    assert shown[0] == "\nplugin `janitor`: terminal wants to run a command:"
    assert "rm -rf" in shown[1]
    assert "\x1b" not in shown[1]
    assert "'what?' is none of" in shown[2]


async def test_always_and_session_are_no_answers_to_a_question_about_one_call() -> None:
    lines, shown = ["always", "s", "once"], list[str]()

    async def ask(prompt: str) -> str:
        assert prompt == "Allow? [o]nce, [d]eny: "
        return lines.pop(0)

    request = ApprovalRequest("terminal", "run a command", "$X", "r", keep=lambda: None, once=True)
    assert await TerminalApprover(ask, shown.append).ask(request) == "once"
    assert shown[2:] == ["'always' is none of once, deny.", "'s' is none of once, deny."]


async def test_an_empty_line_and_the_end_of_input_deny() -> None:
    async def nothing(prompt: str) -> str:
        return ""

    async def gone(prompt: str) -> str:
        raise EOFError

    request = ApprovalRequest("terminal", "run a command", "ls", "rule")
    for ask in (nothing, gone):
        assert await TerminalApprover(ask, lambda text: None).ask(request) == "deny"


if __name__ == "__main__":
    PAGE.write_text(reference_page() + "\n", encoding="utf-8")
