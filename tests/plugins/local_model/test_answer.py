"""Reading what the model writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_model import (
    STRING_MAX,
    FinalTextDecoder,
    ParsedToolCall,
    RepetitionFilter,
    find_calls,
    is_probably_cut,
    read_reply,
)

NAMES = {"calculate", "read_file"}
CALC = ParsedToolCall("calculate", {"expression": "2**16"})


@given(text=st.text(), ascii_only=st.booleans(), cuts=st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_the_final_text_is_the_same_however_it_is_cut(text: str, ascii_only: bool, cuts: list[int]) -> None:
    whole = json.dumps({"action": "final", "text": text}, ensure_ascii=ascii_only)
    final, at, turn, got = FinalTextDecoder(), 0, 0, ""
    while at < len(whole):
        size = cuts[turn % len(cuts)]
        got += final.feed(whole[at : at + size])
        at, turn = at + size, turn + 1
    expected = json.loads(whole)["text"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert got.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == expected
    assert final.text == got


def test_a_backslash_before_what_looks_like_half_a_character_is_a_backslash() -> None:
    final = FinalTextDecoder()

    assert final.feed(r'{"action": "final", "text": "a\\ud83d') == r"a\ud83d"
    assert final.feed(r"\\\ud83d") == "\\"
    assert final.feed(r'\ude00"}') == "\U0001f600"


def test_text_is_given_out_before_the_reply_ends() -> None:
    final = FinalTextDecoder()
    assert final.feed('{"action": "fin') == ""
    assert final.feed('al", "text": "Good') == "Good"
    assert final.feed(" day\\") == " day"
    assert final.feed("n") == "\n"
    assert final.feed('!"}  ') == "!"


def test_a_call_gives_out_no_text() -> None:
    final = FinalTextDecoder()
    assert final.feed('{"action": "final_grade", "arguments": {"text": "x"}}') == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"action": "calculate", "arguments": {"expression": "2**16"}}', CALC),
        ('{"action": "final", "text": "Hello"}', "Hello"),
        ('{"action": "calculate", "arguments": {"expression": "2*', None),
        ('{"action": "final"}', None),
        ('{"action": "calculate"}', None),
        ('{"action": 7, "arguments": {}}', None),
        ("[1, 2]", None),
        ("Hello", None),
        ("", None),
    ],
)
def test_a_reply_is_a_call_a_text_or_neither(text: str, expected: ParsedToolCall | str | None) -> None:
    assert read_reply(text) == expected


def test_a_string_that_fills_its_limit_is_noticed_at_any_depth() -> None:
    full = "x" * STRING_MAX
    assert is_probably_cut({"a": [{"b": full}]})
    assert not is_probably_cut({"a": [{"b": full[1:]}], "c": 3, "d": None})


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "calculate", "arguments": {"expression": "2**16"}}',
        'Sure!\n```json\n{"name": "calculate", "arguments": {"expression": "2**16"}}\n```\nDone.',
        '<tool_call>\n{"name": "calculate", "arguments": {"expression": "2**16"}}\n</tool_call>',
        '{"action": "calculate", "parameters": {"expression": "2**16"}}',
        '{"tool": "calculate", "args": {"expression": "2**16"}}',
        '{"type": "function", "function": {"name": "calculate", "arguments": "{\\"expression\\": \\"2**16\\"}"}}',
        '{"tool_calls": [{"name": "calculate", "input": {"expression": "2**16"}}]}',
        'I use {braces} and [brackets], then {"name": "calculate", "arguments": {"expression": "2**16"}} .',
    ],
)
def test_a_call_is_found_in_each_way_that_models_write_it(text: str) -> None:
    assert find_calls(text, NAMES) == [CALC]


def test_several_calls_come_in_order() -> None:
    read = ParsedToolCall("read_file", {"path": "a"})
    text = json.dumps([{"name": c.name, "arguments": c.arguments} for c in (read, CALC)])
    assert find_calls(text, NAMES) == [read, CALC]


@pytest.mark.parametrize(
    "text",
    [
        "The calculate tool takes an expression.",
        '{"name": "Ann", "arguments": {}}',
        '{"name": "calculate", "arguments": "2**16"}',
        '{"name": "calculate", "arguments": [1]}',
        '{"name": ["calculate"]}',
        "[" * 200_000,
        '{"name": "calculate", "arguments": {"expression": ',
    ],
)
def test_what_is_no_call_of_these_tools_is_prose(text: str) -> None:
    assert find_calls(text, NAMES) == []


def test_a_call_without_arguments_has_none() -> None:
    assert find_calls('{"name": "read_file"}', NAMES) == [ParsedToolCall("read_file", {})]


def fed(text: str, size: int = 3) -> tuple[str, bool]:
    """Return what a filter shows of a text that arrives in pieces, and whether it ended the answer."""
    repetition, shown = RepetitionFilter(), ""
    for at in range(0, len(text), size):
        shown += repetition.feed(text[at : at + size])
        if repetition.is_loop:
            return shown, True
    return shown + repetition.flush(), False


@given(
    parts=st.lists(st.sampled_from(["ab, ", "ab.\n", "a", "```\n", " ", "b; c"]), max_size=40), size=st.integers(1, 9)
)
def test_a_text_is_shown_whole_however_it_is_cut_and_whatever_it_repeats(parts: list[str], size: int) -> None:
    text = "".join(parts)
    assert fed(text, size) == (text, False)


@pytest.mark.parametrize("size", [1, 4, 50])
def test_a_loop_of_one_or_several_sentences_is_cut_before_its_second_round(size: int) -> None:
    once = "A tower with a lamp. It guides ships! Ships see it: at night, and in fog."
    assert fed(once + " It guides ships! Ships see it: at night, and in fog." * 30, size) == (once, True)


def test_equal_lines_of_code_and_a_sentence_written_ten_times_are_no_loop() -> None:
    code = "```python\ngrid = [\n" + "    [0, 0, 0, 0, 0, 0, 0, 0, 0],\n" * 9 + "]\n```\n"
    assert fed(code) == (code, False)
    lines = "I will not be late again.\n" * 10
    assert fed(lines) == (lines, False)


def test_a_new_sentence_is_shown_while_it_arrives() -> None:
    repetition = RepetitionFilter()
    pieces = ["It is", " tall. It", " is", " white", " and", " old"]
    assert [repetition.feed(piece) for piece in pieces] == ["It is", " tall.", "", " It is white", " and", " old"]
