"""Numbers, names and paths of an answer after a tool call."""

from __future__ import annotations

import pytest

from local_model import find_unfounded, plain_result

SOURCES = (
    "What does trip.txt say?",
    '{"content": "1|On Friday Ann sails 1204.567 miles to Bregenz.\\n2|Bring /etc/hosts.", "items": ["a", "b", "c"]}',
)


@pytest.mark.parametrize(
    "text",
    [
        "Ann sails to Bregenz on Friday.",
        "It is 1,204.57 miles, about 1205.",
        "The file trip.txt has 3 items and mentions /etc/hosts.",
        "1. Ann sails.\n2. Bring hosts.",
        "You could use Python or Linux for that.",
    ],
)
def test_what_a_source_has_is_founded_also_rounded_or_counted(text: str) -> None:
    assert find_unfounded(text, SOURCES) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 1210 miles.", ["1210"]),
        ("She meets Mr Achterberg there.", ["Achterberg"]),
        ("It is in /home/user/trip.doc.", ["/home/user/trip.doc"]),
        ("See notes.md.", ["notes.md"]),
        ("There are 17 of them.", ["17"]),
    ],
)
def test_what_no_source_has_is_named(text: str, found: list[str]) -> None:
    assert find_unfounded(text, SOURCES) == found


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('{"expression": "2**16", "result": 65536}', "The result of calculate: 65536"),
        ('{"output": "a\\nb\\n", "exit_code": 0}', "The result of calculate: a\nb"),
        ("plain words", "The result of calculate: plain words"),
        ('{"odd": [1]}', 'The result of calculate: {"odd": [1]}'),
    ],
)
def test_the_plain_result_is_what_the_tool_found(result: str, text: str) -> None:
    assert plain_result("calculate", result) == text
