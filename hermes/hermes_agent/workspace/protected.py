"""Secrets of the system's services that root may read: files in `/etc` and beside it that other users may not.

An agent that runs as root has no more business with them than any other user. Imports the standard library alone.
"""

from __future__ import annotations

import os
import stat
import threading

from hermes_agent.workspace.view import is_inside

__all__ = ["Protected", "others_may_read"]

_BASES = {"/etc": 99, "/usr/local/etc": 99, "/var/log": 99, "/opt": 3}
"""Where they lie, and how deep they are looked for."""


def others_may_read(path: str) -> bool:
    """Say whether every user may read a path of these directories; true elsewhere, and where there is no such path."""
    base = next((base for base in _BASES if is_inside(path, base)), None)
    if base is None:
        return True
    places = [base]
    for name in filter(None, path[len(base) :].split("/")):
        places.append(f"{places[-1]}/{name}")
    try:
        return not any(_is_closed(os.lstat(place).st_mode) for place in places)
    except OSError:
        return True


def _is_closed(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        return not mode & stat.S_IXOTH
    return stat.S_ISREG(mode) and not mode & stat.S_IROTH


class Protected:
    """The list of them. It is made anew when a directory has changed; a mere `chmod` counts from the next start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._directories: dict[str, int] = {}
        self._found: tuple[str, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Return files, and directories as a whole."""
        with self._lock:
            if not self._directories or any(_change_time(path) != time for path, time in self._directories.items()):
                self._directories = {}
                self._found = tuple(path for base, depth in _BASES.items() for path in self._below(base, depth))
            return self._found

    def _below(self, directory: str, depth: int) -> list[str]:
        self._directories[directory] = _change_time(directory)
        try:
            entries = list(os.scandir(directory))
        except OSError:
            return []
        found: list[str] = []
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # gone meanwhile
                continue
            if _is_closed(mode):
                found.append(entry.path)
            elif stat.S_ISDIR(mode) and depth > 1:
                found += self._below(entry.path, depth - 1)
        return found


def _change_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - some hundreds for each command
    except OSError:
        return -1
