"""Find a passage in a text, though its blanks may be written otherwise. Pure functions over lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["FuzzyMatch", "adapt_line_ends", "find_lines", "replace_passage", "reindent"]

_ALIKE = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u00a0": " "}
)


def _collapsed(line: str) -> str:
    return re.sub(r"\s+", " ", line.translate(_ALIKE)).strip()


_WAYS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("exact", str),
    ("but for blanks at line ends", str.rstrip),
    ("but for indentation", str.strip),
    ("but for blanks and typographic characters", _collapsed),
)
"""How lines are compared, strictest first; a later way is tried when none before found anything."""


class FuzzyMatch(NamedTuple):
    """Where a passage is."""

    starts: list[int]
    """Indexes of its first lines."""
    how: str
    """In what it may differ; `exact` for in nothing."""


def find_lines(lines: Sequence[str], wanted: Sequence[str], first: int = 0) -> FuzzyMatch:
    """Return where `wanted` stands in `lines`, from index `first` on; places do not overlap."""
    for how, key in _WAYS:
        pattern = [key(line) for line in wanted]
        if how != "exact" and not any(pattern):
            break
        keyed = [key(line) for line in lines]
        starts: list[int] = []
        at = first
        while at + len(pattern) <= len(keyed):
            if keyed[at : at + len(pattern)] == pattern:
                starts.append(at)
                at += max(len(pattern), 1)
            else:
                at += 1
        if starts:
            return FuzzyMatch(starts, how)
    return FuzzyMatch([], "")


def reindent(new: Sequence[str], wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return `new` with the indentation that `wanted` turned out to have in the text."""
    for ours, theirs in zip(wanted, found, strict=True):
        if ours.strip():
            before, now = _indent(ours), _indent(theirs)
            if before == now:
                break
            return [now + line[len(before) :] if line.strip() and line.startswith(before) else line for line in new]
    return list(new)


def replace_passage(text: str, old: str, new: str, *, everywhere: bool = False) -> tuple[str, int, str]:
    """Return the text with `old` replaced, how often, and how `old` was found.

    Raises:
        ValueError: it is not there, or at several places; the message says what to do.
    """
    if old == new:
        raise ValueError("`old_string` and `new_string` are the same")
    count = text.count(old)
    if count > 1 and not everywhere:
        raise ValueError(f"`old_string` is there {count} times: give more of the lines around it, or set `replace_all`")
    if count:
        first, *others = text.split(old)
        within = "\n" not in old  # what has line ends of its own was found with them
        return first + "".join((_fitting(new, rest) if within else new) + rest for rest in others), count, "exact"
    lines = text.split("\n")
    cuts: tuple[Callable[[str], str], ...] = (lambda part: part.removesuffix("\n"), lambda part: part.strip("\n"))
    for cut in cuts:  # as it is, then as it may be meant
        wanted, fresh = cut(old).split("\n"), cut(new).split("\n") if new else []
        found = find_lines(lines, wanted)
        if found.starts:
            break
    else:
        raise ValueError(f"`old_string` is not there{_nearest(lines, wanted)}")
    if len(found.starts) > 1 and not everywhere:
        places = ", ".join(str(start + 1) for start in found.starts[:10])
        raise ValueError(f"`old_string` fits {len(found.starts)} places (lines {places}): give more lines around it")
    for start in reversed(found.starts):
        present = lines[start : start + len(wanted)]
        lines[start : start + len(wanted)] = adapt_line_ends(reindent(fresh, wanted, present), present)
    return "\n".join(lines), len(found.starts), found.how


def adapt_line_ends(new: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return lines with CR at their ends when those that they replace, or stand by, all have it."""
    if present and all(line.endswith("\r") for line in present):
        return [f"{line.removesuffix(chr(13))}\r" for line in new]
    return list(new)


def _fitting(new: str, rest: str) -> str:
    """Return a new text with line ends like the next one in the text behind it."""
    if "\n" not in new or not rest.partition("\n")[0].endswith("\r") or "\n" not in rest:
        return new
    return new.replace("\r\n", "\n").replace("\n", "\r\n")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Return a hint at the line that the first wanted one may mean."""
    import difflib  # a failed call alone needs it

    first = next((line.strip() for line in wanted if line.strip()), "")
    stripped = {line.strip(): number for number, line in reversed(list(enumerate(lines[:20_000], 1)))}
    close = difflib.get_close_matches(first, list(stripped), 1, 0.6) if first else []
    return f"; line {stripped[close[0]]} is similar: {close[0][:200]!r}" if close else ""
