"""Files of a remote backend, read, written and searched by a shell there; and listings of directories.

A listing has names, kinds and sizes, one entry per line, directories first.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import os
import posixpath
import re
import shlex
import stat
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from hermes_agent.contracts.terminal_env import BackendCommand, TerminalBackend
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.text import printable
from hermes_agent.system.processes import CommandResult
from hermes_agent.workspace.backend import ShellState, run_command
from hermes_agent.workspace.paths import IsDirectory, PathRules, kind_of, open_for_listing

MOST_BYTES = 20_000_000
"""Most bytes that are read of a file."""
LIMIT_S = 60.0
MISSING, DIRECTORY, SPECIAL = 44, 45, 46


@lazy_dataclass(frozen=True, slots=True)
class RemoteFiles:
    """The files of the backend of one call.

    Attributes:
        backend: the backend.
        task_id: the task of the call.
        cwd: the base of relative paths; empty for the default of the backend.
    """

    backend: TerminalBackend
    task_id: str
    cwd: str

    def resolve(self, path: str) -> str:
        """Return the path for the backend; links are followed only there."""
        if path == "~" or path.startswith("~/"):
            return path
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def read(self, path: str) -> tuple[bytes, int]:
        """Return up to `MOST_BYTES` of the content, and the size of the file.

        Raises:
            ToolFailed: the file does not exist, or cannot be read.
        """
        p = _word(path)
        done = self._sh(
            f"[ -e {p} ] || exit {MISSING}; [ -d {p} ] && exit {DIRECTORY}; [ -f {p} ] || exit {SPECIAL};"
            f" wc -c < {p} && head -c {MOST_BYTES} < {p} | base64",
            limit=MOST_BYTES * 2,
        )
        if done.exit_code == MISSING:
            raise ToolFailed(f"{path} does not exist ({self.backend.name})")
        if done.exit_code == DIRECTORY:
            raise IsDirectory(f"{path} is a directory")
        if done.exit_code == SPECIAL:
            raise ToolFailed(f"{path} is not a regular file")
        size, _, text = done.output.partition(b"\n")
        try:
            if done.exit_code or done.truncated:
                raise ValueError
            return base64.b64decode(text), int(size)
        except (ValueError, binascii.Error):
            message = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be read ({self.backend.name}): {message}") from None

    def list_directory(self, path: str, offset: int, limit: int) -> Listing:
        """Return entries of a directory, from number `offset` on.

        Raises:
            ToolFailed: the directory cannot be read.
        """

        p = _word(path)
        done = self._sh(
            f"cd {p}/ && {{ [ -r . ] || {{ echo 'Permission denied'; exit 1; }}; }}"
            f" && LC_ALL=C ls -lAn | head -n {MOST_ENTRIES + 2}",
            limit=MOST_BYTES,
        )
        if done.exit_code:
            message = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be read ({self.backend.name}): {message}")
        found = read_ls(done.output.decode("utf-8", "surrogateescape"), offset, limit)
        return found._replace(is_complete=found.is_complete and not done.truncated)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file atomically; make missing directories.

        Raises:
            ToolFailed: the file cannot be written.
        """
        p, d = _word(path), _word(posixpath.dirname(path) or ".")
        done = self._sh(
            f'mkdir -p {d} && t=$(mktemp {d}/.hermes.XXXXXX) && {{ cp -p {p} "$t" 2>/dev/null || chmod 644 "$t"; }};'
            f' base64 -d > "$t" && mv -f "$t" {p} || {{ rm -f "$t"; exit 1; }}',
            stdin=base64.encodebytes(data),
        )
        if done.exit_code:
            message = done.output[:500].decode("utf-8", "replace").strip()
            raise ToolFailed(f"{path} cannot be written ({self.backend.name}): {message}")

    def remove(self, path: str) -> None:
        """Delete a file.

        Raises:
            ToolFailed: the file cannot be deleted.
        """
        done = self._sh(f"rm -- {_word(path)}")
        if done.exit_code:
            raise ToolFailed(f"{path} cannot be deleted: {done.output[:500].decode('utf-8', 'replace').strip()}")

    def search(self, pattern: str, path: str, glob: str, *, names: bool, limit: int) -> list[str]:
        """Return lines `PATH:NUMBER:TEXT` that match an extended regular expression, or paths by a glob.

        Raises:
            ToolFailed: the pattern is invalid for `grep`.
        """
        p, only = _word(path), f"--include={shlex.quote(glob)} " if glob else ""
        if names:
            name = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
            words = f"find {p} -type f -name {shlex.quote(name)} -print 2>/dev/null"
        else:
            words = f"grep -rnIE {only}-e {shlex.quote(pattern)} -- {p} 2>&1"
        done = self._sh(f"{words} | head -n {limit}", limit=2_000_000)
        lines = done.output.decode("utf-8", "replace").splitlines()
        if lines and lines[0].startswith("grep: ") and ": No such file" not in lines[0]:
            raise ToolFailed(lines[0])
        return lines

    def _sh(self, script: str, *, stdin: bytes = b"", limit: int = 100_000) -> CommandResult:
        call = BackendCommand(script, self.cwd, LIMIT_S, self.task_id, output_bytes=limit, stdin=stdin)
        done = run_command(self.backend, call, ShellState())
        if done.timed_out:
            raise ToolFailed(f"{self.backend.name} did not answer within {LIMIT_S:g} s")
        return done


def _word(path: str) -> str:
    """Return a path as a shell word, with `~` unquoted."""
    if path == "~" or path.startswith("~/"):
        return f'"$HOME"{shlex.quote(path[1:])}' if path[1:] else '"$HOME"'
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


MOST_ENTRIES = 100_000
"""Most entries of a directory that are counted and sorted."""
PAGE = 500
"""Entries of a result when the call has no limit."""
_LS = re.compile(r"(?P<kind>[-a-zA-Z])\S+\s+\d+\s+\S+\s+\S+\s+(?P<size>\d+)(?:,\s*\d+)?\s+\S+\s+\S+\s+\S+ (?P<name>.+)")
"""A line of `ls -lAn` in the locale C."""


class ListingEntry(LazyNamedTuple):
    """An entry of a directory."""

    name: str
    is_directory: bool
    detail: str = ""
    """The size, the target of a link, or the kind of the entry."""

    def line(self) -> str:
        """Return the line for the model."""
        name = _one_line(os.fsencode(self.name).decode("utf-8", "replace"))
        slash = "/" if self.is_directory else ""
        return f"{name}{slash} ({self.detail})" if self.detail else f"{name}{slash}"


class Listing(LazyNamedTuple):
    """The requested entries of a directory, and the number of all."""

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
        every = list(islice((entry for entry in found if not places.hides(f"{below}/{entry.name}")), MOST_ENTRIES + 1))
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
    """Return the entries in the output of `ls -lAn` in the locale C, at most `MOST_ENTRIES` + 1."""
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
        shown: the name of the directory for the model.
        listed: returns entries by first number and count.
        offset: number of the first entry.
        limit: the limit of the call, or None.
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
    return " and ".join(f"{count:,} {entry if count == 1 else many}" for count, entry, many in parts)


def _one_line(text: str) -> str:
    return printable(text.replace("\n", "\\n"))


def _size(size: int) -> str:
    return f"{size:,} byte{'' if size == 1 else 's'}"
