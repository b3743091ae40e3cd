"""The pictures of the chat show what the console shows now."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pictures_are_what_the_console_draws() -> None:
    drawn = runpy.run_path(str(DOCS / "terminal_pictures.py"))["draw"]()
    assert set(drawn) == {"chat-dark.svg", "chat-light.svg", "context-dark.svg", "context-light.svg"}
    stale = [name for name, svg in drawn.items() if (DOCS / "pictures" / name).read_text(encoding="utf-8") != svg]
    assert stale == [], "`make pictures` draws them again"
