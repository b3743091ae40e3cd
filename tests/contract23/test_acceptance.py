"""Each id of the acceptance list of the plugin contract of 0.23 has a test that is named after it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from compat.corpus.lists import DATA

NUMBERS = {"a": 18, "b": 23, "h": 25, "d": 17, "e": 20}
"""How many sentences each part of the list has: loading, context, hooks, other kinds, tools and packaging."""
FOLDER = Path(__file__).parent
NAMED = {
    found[1]
    for file in FOLDER.glob("test_*.py")
    for found in re.finditer(r"^(?:async )?def test_([a-z]\d+)_", file.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("number", [f"{part}{n}" for part, count in NUMBERS.items() for n in range(1, count + 1)])
def test_a_sentence_of_the_list_has_a_test(number: str) -> None:
    assert number in NAMED


def test_e20_each_plugin_that_uses_the_later_contract_is_recorded_to_load() -> None:
    """`make compat` starts them with what they need, and compares with these records."""
    listed = {line.partition("==")[0] for line in (DATA / "contract23.txt").read_text().split() if "==" in line}
    listed |= set(tomllib.loads((DATA / "contract23.toml").read_text()))
    recorded = {file.stem: json.loads(file.read_text()) for file in (DATA / "contract23").glob("*.json")}
    assert len(listed) == 32 and set(recorded) == listed
    runs = [(name, run["mode"], run["loads"]) for name, found in recorded.items() for run in found["runs"]]
    assert [run for run in runs if not run[2]] == []


def test_no_test_is_named_after_a_sentence_that_there_is_not() -> None:
    assert {name for name in NAMED if int(name[1:]) > NUMBERS.get(name[0], 0)} == set()
