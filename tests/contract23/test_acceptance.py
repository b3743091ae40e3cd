"""Each id of the acceptance list of the plugin contract of 0.23 has a test that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NUMBERS = {"a": 18, "b": 23, "h": 25, "d": 17, "e": 20}
"""How many sentences each part of the list has: loading, context, hooks, other kinds, tools and packaging."""
ELSEWHERE = {"e20": "e2e/test_published_plugins.py"}
"""Sentences with a test outside of this folder; the published plugins run in `make compat`."""
FOLDER = Path(__file__).parent
NAMED = {
    found[1]
    for file in FOLDER.glob("test_*.py")
    for found in re.finditer(r"^(?:async )?def test_([a-z]\d+)_", file.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("number", [f"{part}{n}" for part, count in NUMBERS.items() for n in range(1, count + 1)])
def test_a_sentence_of_the_list_has_a_test(number: str) -> None:
    assert number in NAMED or (FOLDER.parent / ELSEWHERE[number]).is_file()


def test_no_test_is_named_after_a_sentence_that_there_is_not() -> None:
    assert {name for name in NAMED if int(name[1:]) > NUMBERS.get(name[0], 0)} == set()
