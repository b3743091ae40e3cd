"""Copies of granted text files, to show later changes line by line.

The copies are in `cache/plugins/granted/SHA256` of the home. Nothing depends on them, and a copy with another hash than
its name is ignored. Large and binary files are not copied.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from hermes_agent.plugins.pinned_files import PinChanges, PinnedFile
from hermes_agent.system.files import PRIVATE, write_atomic

logger = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024
"""Largest file that is copied and compared, in bytes."""
MAX_LINES = 200
"""Number of lines shown of the difference of one file."""


def keep_copies(home: Path, directory: str, files: Mapping[str, PinnedFile], needed: Iterable[str]) -> None:
    """Store the text files of a plugin that was just granted, and delete unneeded copies.

    Args:
        needed: the hashes of every pinned file of the home.
    """
    store = _copy_folder(home)
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, pinned in files.items():
            if pinned.size <= MAX_BYTES and not (store / pinned.sha256).exists():
                data = Path(directory, name).read_bytes()
                if hashlib.sha256(data).hexdigest() == pinned.sha256 and b"\0" not in data:
                    write_atomic(store / pinned.sha256, data, mode=PRIVATE)
        wanted = set(needed)
        for copy in store.iterdir():
            if copy.name not in wanted:
                copy.unlink()
    except OSError as exc:
        logger.warning("granted files are not kept for a later comparison: %s: %s", exc.filename, exc.strerror)


def difference(home: Path, directory: str, files: Mapping[str, PinnedFile], changes: PinChanges) -> list[str]:
    """Return the changes since the grant as lines for the operator; a text difference where a copy exists."""
    lines: list[str] = []
    for name in changes.changed:
        lines += _file_lines(name, _read_copy(home, files[name].sha256), _read_present(directory, name))
    for name in changes.added:
        lines += [f"new file {name}", *_file_lines(name, [], _read_present(directory, name))]
    lines += [f"gone: {name}" for name in changes.removed]
    return lines


def _file_lines(name: str, before: list[str] | None, now: list[str] | None) -> list[str]:
    if before is None or now is None:
        which = "no copy of the granted one was kept" if before is None else "it is no text, or large"
        return [f"changed: {name} ({which})"]
    import difflib  # a daemon keeps copies, and compares none

    lines = list(difflib.unified_diff(before, now, f"granted/{name}", f"now/{name}", lineterm=""))
    if len(lines) > MAX_LINES:
        return [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines of {name}"]
    return lines


def _read_copy(home: Path, sha256: str) -> list[str] | None:
    try:
        data = (_copy_folder(home) / sha256).read_bytes()
    except OSError:  # there was no copy, or the cache was emptied
        return None
    return _text_lines(data) if hashlib.sha256(data).hexdigest() == sha256 else None


def _read_present(directory: str, name: str) -> list[str] | None:
    path = Path(directory, name)
    try:
        return _text_lines(path.read_bytes()) if path.stat().st_size <= MAX_BYTES else None
    except OSError as exc:
        return [f"cannot be read: {exc.strerror}"]


def _text_lines(data: bytes) -> list[str] | None:
    """Return the lines with control characters escaped, because they could control the terminal."""
    if b"\0" in data:
        return None
    text = data.decode("utf-8", "backslashreplace")
    return ["".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in t) for t in text.splitlines()]


def _copy_folder(home: Path) -> Path:
    return home / "cache" / "plugins" / "granted"
