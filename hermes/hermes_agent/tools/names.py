"""Repair the name of a tool that the model got nearly right. Source: plugin contract §4.6."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

__all__ = ["repair_name"]

LONGEST = 200
"""A longer text is no name; comparing it would take seconds."""

_CUT = re.compile(r"[\"'<>]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIX = re.compile(r"[_-]?tool$")


def repair_name(name: str, valid: Collection[str]) -> str | None:
    """Return the valid name that is meant, or None."""
    if name in valid:
        return name
    if len(name) > LONGEST:
        return None
    plain = _CAMEL.sub("_", _CUT.split(name.strip(), maxsplit=1)[0])
    plain = plain.lower().replace("-", "_").replace(" ", "_")
    for _ in range(3):
        if plain in valid:
            return plain
        plain = _SUFFIX.sub("", plain)
    close = difflib.get_close_matches(plain, valid, n=1, cutoff=0.7)
    return close[0] if close else None
