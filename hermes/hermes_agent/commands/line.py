"""Read a line that may be a slash command. Source: plugin contract §7.1."""

from __future__ import annotations

import re

__all__ = ["normalise_name", "parse_command"]

_LINE = re.compile(r"/([A-Za-z][\w:.-]*)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


def normalise_name(name: str) -> str:
    """Return the name as it is registered: lower case, no leading slash, `-` for blanks."""
    return name.lower().strip().lstrip("/").replace(" ", "-")


def parse_command(text: str) -> tuple[str, str] | None:
    """Return name and stripped arguments of `/name arguments`, or None when it is not a command.

    A path (`/etc/hosts`) is not a command: a name holds no second slash.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None:
        return None
    return normalise_name(match[1]), (match[2] or "").strip()
