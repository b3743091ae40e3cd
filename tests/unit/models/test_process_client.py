"""Calls of tools in the text of a program, however the text is cut into pieces."""

from __future__ import annotations

import pytest

from hermes_agent.models.process_client import MOST_CALLS, AnswerText

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>'
WEATHER = ("weather", '{"city": "Ulm"}')


def read(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    text = AnswerText(holds_calls=True)
    shown = "".join(map(text.feed, pieces))
    rest, calls = text.end()
    return shown + rest, [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        (f"Let me see. {CALL}", "Let me see. ", [WEATHER]),
        (f"{CALL}\n{CALL} done", "\n done", [WEATHER, WEATHER]),
        ('<tool_call> {"function": {"name": "f", "arguments": "{}"}} </tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": {"x": "</tool_call><tool_call>{}"}}</tool_call>', "", None),
        ("The mark <tool_call> begins one.", "The mark <tool_call> begins one.", []),
        ('<tool_call>{"x": 1}</tool_call>', '<tool_call>{"x": 1}</tool_call>', []),
        ('<tool_call>{"name": "f"', '<tool_call>{"name": "f"', []),
        (f'<tool_call>{{"name": "f"}} {CALL}', '<tool_call>{"name": "f"} ', [WEATHER]),
        ("<tool_call>" + '{"a":' * 5000, "<tool_call>" + '{"a":' * 5000, []),
    ],
)
def test_blocks_are_calls_and_everything_else_is_text(
    said: str, text: str, calls: list[tuple[str, str]] | None
) -> None:
    expected = [("f", '{"x": "</tool_call><tool_call>{}"}')] if calls is None else calls
    assert read([said]) == (text, expected)
    for at in range(1, min(len(said), 200)):
        assert read([said[:at], said[at:]]) == (text, expected), at


def test_an_answer_without_tools_is_shown_as_it_comes() -> None:
    text = AnswerText(holds_calls=False)
    assert (text.feed(CALL), text.end()) == (CALL, ("", []))


def test_no_more_marks_are_looked_at_than_an_answer_may_have_calls() -> None:
    said = '<tool_call>{"a"' * MOST_CALLS + CALL
    assert read([said]) == (said, [])
