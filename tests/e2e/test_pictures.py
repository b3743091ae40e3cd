"""The recording of docs/pictures/ shows what the chat shows now."""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path

from pictured import record
from terminal_screen import FIELDS, SPINNER
from worlds import ROOT

DOCS = ROOT / "docs"
TOKENS = re.compile(r"[\d,]+ tokens")
NUMBERS = re.compile(r"[ \d,.%]*[\d█▓▒░][ \d,.%█▓▒░]*")
"""Numbers and bars, which depend on the length of paths."""


def shown(recording: str) -> dict[str, str]:
    """Return the screens of a recording with names for what differs from run to run."""
    screens = runpy.run_path(str(DOCS / "terminal_pictures.py"))["screens"]
    found = {}
    for name, rows in screens(recording):
        # what the agent does now, and the status bar, depend on the moment
        lines = [row.plain.rstrip() for row in rows if row.plain[:1] not in SPINNER or not row.plain]
        text = "\n".join(line for line in lines if " · approvals " not in line)
        for pattern, field in FIELDS:
            text = pattern.sub(field, text)
        found[name] = NUMBERS.sub("N", text) if name == "context" else TOKENS.sub("N tokens", text)
    return found


def test_the_recorded_conversation_is_what_the_chat_shows_now(scripted) -> None:
    kept = (DOCS / "pictures" / "conversation-dark.cast").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:  # a short path
        recorded = record(Path(folder), "dark")
    assert shown(recorded) == shown(kept), "`make pictures` records it again"
