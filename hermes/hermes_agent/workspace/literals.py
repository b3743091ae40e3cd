"""What a text must hold so that a regular expression can match it: the way to leave most files unread."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["required_literals"]

LEAST = 2
"""A shorter literal is in nearly every file."""
_OTHER_CASE = frozenset("iks")
"""Letters that letters beyond ASCII are the other case of, for one engine or another."""


def required_literals(pattern: str) -> tuple[list[str], bool] | None:
    """Return ASCII texts of which one is in whatever matches, and whether case is ignored; None for no such texts.

    ASCII alone: its bytes mean the same wherever they are, also in a file that is not UTF-8.
    """
    from re import _parser  # type: ignore[attr-defined]  # private, and the only reader that surely agrees with `re`

    tree = _parser.parse(pattern)
    folded = bool(tree.state.flags & re.IGNORECASE)
    found = _of_sequence(tree, folded)
    return None if found is None else (sorted(found), folded)


def _of_sequence(items: Iterable[Any], folded: bool) -> set[str] | None:
    """Return the best that one of the items requires: the longest."""
    candidates: list[set[str]] = []
    run = ""
    for op, value in [*items, ("", None)]:
        char = chr(value) if str(op) == "LITERAL" else ""
        if char.isascii() and char.isprintable() and char and not (folded and char.lower() in _OTHER_CASE):
            run += char
            continue
        candidates += [{run}] if len(run) >= LEAST else []
        run = ""
        inner = _of_item(str(op), value, folded)
        candidates += [inner] if inner else []
    return max(candidates, key=lambda texts: min(map(len, texts)), default=None)


def _of_item(op: str, value: Any, folded: bool) -> set[str] | None:
    if op == "SUBPATTERN":
        _, added, removed, inner = value
        return None if added or removed else _of_sequence(inner, folded)
    if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = value
        return _of_sequence(inner, folded) if least else None
    if op == "BRANCH":
        branches = [_of_sequence(branch, folded) for branch in value[1]]
        return None if None in branches else set().union(*branches)  # type: ignore[arg-type]
    return None
