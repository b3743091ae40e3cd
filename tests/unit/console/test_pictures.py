"""The pictures of the chat are those of its recording."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
NAMES = ("chat", "approval", "context")


def test_the_pictures_are_drawn_from_the_recording() -> None:
    drawn = runpy.run_path(str(DOCS / "terminal_pictures.py"))["draw"]()
    assert set(drawn) == {f"{name}-{mode}.svg" for name in NAMES for mode in ("dark", "light")}
    stale = [name for name, svg in drawn.items() if (DOCS / "pictures" / name).read_text(encoding="utf-8") != svg]
    assert stale == [], "`make pictures` draws them again"
