"""What `read_file` shows of a directory: names, kinds and sizes, one entry a line, directories first."""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from hermes_agent.workspace.output import printable
from hermes_agent.workspace.places import PathRules
from hermes_agent.workspace.regular import kind_of, open_for_listing

__all__ = ["MOST_ENTRIES", "ListingEntry", "Listing", "list_directory", "listing_page", "read_ls"]

MOST_ENTRIES = 100_000
"""Entries of a directory that are counted and sorted."""
PAGE = 500
"""Entries of one result when the call names no limit."""
_LS = re.compile(r"(?P<kind>[-a-zA-Z])\S+\s+\d+\s+\S+\s+\S+\s+(?P<size>\d+)(?:,\s*\d+)?\s+\S+\s+\S+\s+\S+ (?P<name>.+)")
"""A line of `ls -lAn` in the locale C."""


class ListingEntry(NamedTuple):
    """One line."""

    name: str
    is_directory: bool
    detail: str = ""
    """Size, target of a link, or what else it is."""

    def line(self) -> str:
        """Return it as the model reads it."""
        name = _one_line(os.fsencode(self.name).decode("utf-8", "replace"))
        slash = "/" if self.is_directory else ""
        return f"{name}{slash} ({self.detail})" if self.detail else f"{name}{slash}"


class Listing(NamedTuple):
    """The entries that were asked for, and how many there are."""

    entries: Sequence[ListingEntry]
    directories: int
    others: int
    is_complete: bool
    """Whether all entries were counted."""


def list_directory(path: str, places: PathRules, offset: int, limit: int) -> Listing:
    """Return entries of a resolved directory of this machine, from number `offset` on.

    Raises:
        ToolFailed: it cannot be read, or holds credentials.
    """
    with open_for_listing(path, places) as handle, os.scandir(handle) as found:
        below = path.rstrip("/")
        every = list(islice((one for one in found if not places.hides(f"{below}/{one.name}")), MOST_ENTRIES + 1))
        is_complete = len(every) <= MOST_ENTRIES
        kinds = [(not entry.is_dir(follow_symlinks=False), entry.name, entry) for entry in every[:MOST_ENTRIES]]
        wanted = heapq.nsmallest(offset - 1 + limit, kinds, key=lambda kind: kind[:2])[offset - 1 :]
        shown = [_entry(entry, f"{below}/{entry.name}", places, handle) for _, _, entry in wanted]
    directories = sum(not is_other for is_other, _, _ in kinds)
    return Listing(shown, directories, len(kinds) - directories, is_complete)


def _entry(entry: os.DirEntry[str], path: str, places: PathRules, directory: int) -> ListingEntry:
    try:
        if entry.is_symlink():
            target = os.fsencode(os.readlink(entry.name, dir_fd=directory)).decode("utf-8", "replace")
            return ListingEntry(entry.name, entry.is_dir(), f"link to {_one_line(target)}")
        status = entry.stat(follow_symlinks=False)
    except OSError as exc:
        return ListingEntry(entry.name, False, exc.strerror or "cannot be read")
    if (why := places.secret_reason(path, status)) is not None:
        return ListingEntry(entry.name, stat.S_ISDIR(status.st_mode), f"{why.removeprefix('it ')}: not open to tools")
    if places.unlisted_reason(path) is not None:
        return ListingEntry(entry.name, stat.S_ISDIR(status.st_mode), "not open to tools")
    if stat.S_ISDIR(status.st_mode):
        return ListingEntry(entry.name, True)
    return ListingEntry(entry.name, False, kind_of(status.st_mode) or _size(status.st_size))


def read_ls(output: str, offset: int, limit: int) -> Listing:
    """Return what `ls -lAn` printed in the locale C, at most `MOST_ENTRIES` and one lines."""
    lines = [match for line in output.splitlines() if (match := _LS.fullmatch(line))]
    entries = sorted(map(_entry_of_ls, lines[:MOST_ENTRIES]), key=lambda entry: (not entry.is_directory, entry.name))
    directories = sum(entry.is_directory for entry in entries)
    page = entries[offset - 1 : offset - 1 + limit]
    return Listing(page, directories, len(entries) - directories, len(lines) <= MOST_ENTRIES)


def _entry_of_ls(match: re.Match[str]) -> ListingEntry:
    kind, name = match["kind"], match["name"]
    if kind == "l":
        name, _, target = name.partition(" -> ")
        return ListingEntry(name, False, f"link to {_one_line(target)}")
    if kind in "d-":
        return ListingEntry(name, kind == "d", "" if kind == "d" else _size(int(match["size"])))
    return ListingEntry(name, False, {"p": "a named pipe", "s": "a socket"}.get(kind, "a device"))


def listing_page(
    shown: str, listed: Callable[[int, int], Listing], offset: int, limit: int | None, most: int, max_chars: int
) -> dict[str, Any]:
    """Return the result of `read_file` for a directory.

    Args:
        listed: returns the entries from a number on.
        limit: as the call names it.
        most: most entries of one result.
    """
    found = listed(offset, min(limit or PAGE, most))
    lines: list[str] = []
    chars = 0
    for entry in found.entries:
        lines.append(f"{entry.line()}\n")
        chars += len(lines[-1])
        if chars > max_chars and len(lines) > 1:
            lines.pop()
            break
    total = found.directories + found.others
    result: dict[str, Any] = {"path": shown, "kind": "directory", "content": "".join(lines), "total_entries": total}
    if lines and offset - 1 + len(lines) < total:
        result["next_offset"] = offset + len(lines)
    return result | {"note": _note(shown, found, offset, len(lines), total)}


def _note(shown: str, found: Listing, offset: int, count: int, total: int) -> str:
    if not total:
        return f"{shown} is an empty directory."
    if not count:
        return f"{shown} is a directory with {total:,} entries: offset {offset} is after the end."
    note = f"{shown} is a directory with {_count_text(found)} directly in it"
    note += "" if found.is_complete else f", and more: after {MOST_ENTRIES:,} entries the count ended"
    note += "; `content` has their names" if count == total else f"; these are {offset:,} to {offset + count - 1:,}"
    note += ". Read a file by its path to see what it contains."
    if found.directories:
        note += " Directories may contain more files: read their paths, or use search_files with target=files."
    return note


def _count_text(found: Listing) -> str:
    parts = ((found.directories, "directory", "directories"), (found.others, "file", "files"))
    return " and ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in parts)


def _one_line(text: str) -> str:
    return printable(text.replace("\n", "\\n"))


def _size(size: int) -> str:
    return f"{size:,} byte{'' if size == 1 else 's'}"
