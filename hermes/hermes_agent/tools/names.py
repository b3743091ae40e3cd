"""What a tool may be called, and which one a nearly right name means. Source: plugin contract §4.1, §4.6."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["name_problem", "repair_name"]

MAX_NAME_CHARS = 200
"""A longer text is no name; comparing it would take seconds."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What providers take as the name of a function."""
_CUT = re.compile(r"[\"'<>]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIX = re.compile(r"[_-]?tool$")


def name_problem(name: object) -> str | None:
    """Return why `name` cannot name a tool, or None."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"tool name {name!r:.120} cannot be used: expected 1 to 64 letters, digits, `_` and `-`"


def repair_name(name: str, valid: Collection[str]) -> str | None:
    """Return the valid name that is meant, or None."""
    if name in valid:
        return name
    if len(name) > MAX_NAME_CHARS:
        return None
    plain = _CAMEL.sub("_", _CUT.split(name.strip(), maxsplit=1)[0])
    plain = plain.lower().replace("-", "_").replace(" ", "_")
    for _ in range(3):
        if plain in valid:
            return plain
        plain = _SUFFIX.sub("", plain)
    import difflib  # most names are right

    close = difflib.get_close_matches(plain, valid, n=1, cutoff=0.7)
    return close[0] if close else None
