from __future__ import annotations

from pathlib import Path

import hermes_agent.config
from hermes_agent.config.reference import markdown, stub
from hermes_agent.config.schema import leaves

TYPES = Path(hermes_agent.config.__file__).with_name("schema_types.pyi")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


def test_the_page_in_the_docs_is_what_the_schema_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_the_types_of_the_settings_are_what_the_schema_says() -> None:
    assert TYPES.read_text(encoding="utf-8") == stub(), "run `make docs`"


def test_every_key_is_on_the_page() -> None:
    page = markdown()
    assert [".".join(map(str, path)) for path, _ in leaves() if f"`{'.'.join(map(str, path))}`" not in page] == []
