"""docs/plugins/hooks/: written from the table."""

from __future__ import annotations

from pathlib import Path

from hermes_agent.hooks.reference import pages

FOLDER = Path(__file__).parents[3] / "docs" / "plugins" / "hooks"


def test_the_pages_are_those_that_the_table_makes():
    made = pages()

    assert {p.name for p in FOLDER.iterdir()} == set(made)
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, name
