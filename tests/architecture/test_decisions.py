"""The decisions of docs/decisions are numbered."""

from __future__ import annotations

from pathlib import Path

DECISIONS = sorted((Path(__file__).parents[2] / "docs" / "decisions").glob("*.md"))


def test_each_decision_has_a_number_of_its_own_which_its_heading_repeats() -> None:
    numbers = [path.name.partition("-")[0] for path in DECISIONS]
    assert numbers == [f"{number:04}" for number in range(1, len(DECISIONS) + 1)]
    for path, number in zip(DECISIONS, numbers, strict=True):
        assert path.read_text(encoding="utf-8").startswith(f"# {number}: "), path.name
