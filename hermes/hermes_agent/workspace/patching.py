"""A patch over several files: its text, and what it makes of a file's content. Pure functions.

    *** Begin Patch
    *** Update File: PATH          then, as often as needed, `@@ a line before` and lines with ` `, `-` or `+` before
    *** Move to: PATH              after Update File: the file gets another name
    *** Add File: PATH             then lines with `+` before
    *** Delete File: PATH
    *** End Patch

Source: plugin contract §4.12 (mode `patch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_agent.workspace.fuzzy import adapt_line_ends, find_lines, reindent

__all__ = ["FilePatch", "Hunk", "apply_patch", "patch_paths", "parse_patch"]

_HEADS = {"*** Update File:": "update", "*** Add File:": "add", "*** Delete File:": "delete"}


@dataclass(slots=True)
class Hunk:
    """Lines that stand together, each with ` `, `-` or `+` before."""

    anchors: list[str] = field(default_factory=list)
    """Lines somewhere before it, each found after the one before."""
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FilePatch:
    """What becomes of one file."""

    kind: Literal["update", "add", "delete"]
    path: str
    move_to: str = ""
    hunks: list[Hunk] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    """The lines of a new file."""


def parse_patch(text: str) -> list[FilePatch]:
    """Return the changes of a patch, in its order.

    Raises:
        ValueError: a line means nothing, or nothing is changed; the message has its number.
    """
    changes: list[FilePatch] = []
    for number, line in enumerate(text.strip("\n").split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip() in ("*** Begin Patch", "*** End Patch", "*** End of File"):
            continue
        head = next((h for h in _HEADS if line.startswith(h)), "")
        if head:
            path = line[len(head) :].strip()
            if not path:
                raise ValueError(f"line {number} of the patch names no file: {line!r}")
            changes.append(FilePatch(_HEADS[head], path))  # type: ignore[arg-type]
        elif not changes:
            if line.strip():
                raise ValueError(f"line {number} of the patch comes before any `*** Update File: PATH`: {line[:100]!r}")
        else:
            _take(changes[-1], line, number)
    if not changes:
        raise ValueError("the patch changes no file: it begins with `*** Begin Patch` and `*** Update File: PATH`")
    for change in changes:
        empty = not any(hunk.lines for hunk in change.hunks)
        if change.kind == "update" and empty and not change.move_to:
            raise ValueError(f"the patch changes nothing in {change.path}")
    return changes


def patch_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the files that the text of a call of `patch` names; none where it is no patch, which is then refused."""
    try:
        changes = parse_patch(str(args.get("patch") or ""))
    except ValueError:
        return []
    return [path for change in changes for path in (change.path, change.move_to) if path]


def _take(change: FilePatch, line: str, number: int) -> None:
    if change.kind == "update":
        if line.startswith("*** Move to:"):
            change.move_to = line.removeprefix("*** Move to:").strip()
        elif line.startswith("@@"):
            anchor = line[2:].strip().removesuffix("@@").strip()
            if not change.hunks or change.hunks[-1].lines:
                change.hunks.append(Hunk())
            if anchor and not anchor.startswith("-"):  # `@@ -1,2 +1,3 @@` of other formats says nothing here
                change.hunks[-1].anchors.append(anchor)
        elif line[:1] in (" ", "-", "+", ""):
            if not change.hunks:
                change.hunks.append(Hunk())
            change.hunks[-1].lines.append(line or " ")
        else:
            raise ValueError(f"line {number} of the patch begins with none of ` `, `-`, `+`, `@@`: {line[:100]!r}")
    elif change.kind == "add" and line.startswith("+"):
        change.content.append(line[1:])
    elif line.strip():
        what = "a `+`" if change.kind == "add" else "nothing at all"
        raise ValueError(f"line {number} of the patch should begin with {what}: {line[:100]!r}")


def apply_patch(text: str, change: FilePatch) -> str:
    """Return what an update makes of a file's content.

    Raises:
        ValueError: a hunk does not fit, or fits several places.
    """
    lines = text.split("\n")
    at = 0
    for number, hunk in enumerate(change.hunks, 1):
        if hunk.lines:
            at = _apply_hunk(lines, hunk, at, f"hunk {number} of {change.path}")
    return "\n".join(lines)


def _apply_hunk(lines: list[str], hunk: Hunk, at: int, name: str) -> int:
    """Change `lines` in place; return the index after the hunk."""
    for anchor in hunk.anchors:
        found = find_lines(lines, [anchor], at)
        if not found.starts:
            raise ValueError(f"{name}: the line {anchor[:100]!r} is not there")
        at = found.starts[0] + 1
    body = _without_empty_end(hunk.lines)
    wanted = [line[1:] for line in body if line[0] != "+"]
    if not wanted:  # nothing but new lines: after the anchor, or at the end
        place = at if hunk.anchors else len(lines) - (lines[-1] == "")
        lines[place:place] = adapt_line_ends([line[1:] for line in body], lines[max(place - 1, 0) : place])
        return place + len(body)
    found = find_lines(lines, wanted, at)
    if not found.starts:
        raise ValueError(f"{name} does not fit: {wanted[0][:100]!r} and what follows is not there")
    if len(found.starts) > 1 and not hunk.anchors:
        places = ", ".join(str(start + 1) for start in found.starts[:10])
        raise ValueError(f"{name} fits {len(found.starts)} places (lines {places}): give more lines, or `@@ LINE`")
    start = found.starts[0]
    present = lines[start : start + len(wanted)]
    added = iter(adapt_line_ends(reindent([line[1:] for line in body if line[0] == "+"], wanted, present), present))
    kept = iter(present)
    fresh: list[str] = []
    for line in body:
        if line[0] == "+":
            fresh.append(next(added))
        else:
            now = next(kept)
            if line[0] == " ":
                fresh.append(now)
    lines[start : start + len(wanted)] = fresh
    return start + len(fresh)


def _without_empty_end(lines: list[str]) -> list[str]:
    """Leave out empty lines at the end, which come from the text around the patch."""
    end = len(lines)
    while end > 1 and lines[end - 1].strip() == "":
        end -= 1
    return lines[:end]
