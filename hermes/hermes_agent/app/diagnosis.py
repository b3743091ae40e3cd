"""Findings of `hermes doctor` and `hermes self check`, and their lines at the terminal.

Only the standard library is used, so that a damaged installation can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Level = Literal["ok", "idle", "note", "wrong"]
SIGNS = {"ok": "✓", "idle": "○", "note": "!", "wrong": "✗"}


class Diagnosis(NamedTuple):
    """One line of the doctor's output."""

    level: Level
    """`ok`: it works; `idle`: it is not meant to work; `note`: for information; `wrong`: to be fixed."""
    subject: str
    """Key of a plugin, path, or name of a setting."""
    text: str
    remedy: str = ""


def printable(text: str) -> str:
    """Return the text in one line, with control characters as `\\xNN`."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))


def print_lines(lines: Iterable[Diagnosis], *, width: int) -> None:
    """Print one finding a line.

    Args:
        width: width of the column of subjects, in characters.
    """
    for line in lines:
        remedy = f" — {line.remedy}" if line.remedy else ""
        print(f"{SIGNS[line.level]} {printable(line.subject):<{width}}  {printable(line.text + remedy)}")
