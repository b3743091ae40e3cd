"""Read `agent.log` with its rotated files: the last records, and then what comes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.service.entries import LogEntry, LogFilter, from_line, group, select
from hermes_agent.service.rotating import rotation_lock

__all__ = ["LogFile", "wait_for_more"]

POLL_S = 0.25
"""How long a follower waits for more; there is no portable way to be told of it."""
BLOCK = 1 << 16


def wait_for_more() -> bool:
    """Wait a little; true means go on."""
    time.sleep(POLL_S)
    return True


class LogFile:
    """One reader of the log. `recent` comes first, then `follow`; between the two nothing is lost.

    Args:
        path: the newest file; `path.1`, `path.2`, … are older.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._rest = b""

    def exists(self) -> bool:
        """Whether anything was logged."""
        return self.path.exists() or bool(self._backups())

    def recent(self, count: int, wanted: LogFilter) -> list[LogEntry]:
        """Return the last `count` wanted records, oldest first.

        Raises:
            UserError: a file cannot be read.
        """
        opened = self._open_newer()
        self._fd = opened.pop() if opened else None
        found: deque[LogEntry] = deque(_last(self._take(), wanted, count))
        for fd in reversed(opened):
            if len(found) < count:
                found.extendleft(reversed(_last(_lines(_read(fd)), wanted, count - len(found))))
            os.close(fd)
        return list(found)

    def follow(self, wanted: LogFilter, wait: Callable[[], bool] = wait_for_more) -> Iterator[LogEntry]:
        """Yield wanted entries as they are written, across rotations.

        Args:
            wait: called when there is nothing new; false ends the iteration.
        """
        yield from select(self._entries(wait), wanted)

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _entries(self, wait: Callable[[], bool]) -> Iterator[LogEntry]:
        while True:
            yield from map(from_line, self._take())
            gone = self._fd is not None and not self._is_current(self.path)
            if not wait():
                yield from map(from_line, self._take())
                return
            if gone:
                # A writer that looked before the rotation may have written after it: once more, then move on.
                yield from map(from_line, self._take())
                yield from self._move_on()
            elif self._fd is None:
                yield from self._move_on()

    def _move_on(self) -> Iterator[LogEntry]:
        """Read what is newer than the file that was rotated away; the newest stays open."""
        opened = self._open_newer()
        if not opened:
            return
        self.close()
        self._fd, self._rest = opened.pop(), b""
        for fd in opened:
            lines = _lines(_read(fd))
            os.close(fd)
            yield from map(from_line, lines)

    def _open_newer(self) -> list[int]:
        """Open the files that are newer than the open one (all when none is), oldest first."""
        try:
            with rotation_lock(self.path.parent, shared=True):
                opened = [self._open(path) for path in reversed(self._newer())]
        except FileNotFoundError:
            return []
        except PermissionError as exc:
            raise _unreadable(self.path.parent, exc) from exc
        return [fd for fd in opened if fd is not None]

    def _newer(self) -> list[Path]:
        """The files that are newer than the open one, newest first."""
        files = [self.path, *self._backups()]
        if self._fd is None:
            return files
        newer = list(takewhile(lambda file: not self._is_current(file), files))
        if len(newer) < len(files):
            return newer
        # The open file has no name any more: rotated out, or removed by hand.
        last_written = os.fstat(self._fd).st_mtime_ns
        return [file for file in files if file.exists() and file.stat().st_mtime_ns > last_written]

    def _take(self) -> list[str]:
        """Return the lines that were completed since the last time."""
        if self._fd is None:
            return []
        if os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            os.lseek(self._fd, 0, os.SEEK_SET)  # somebody truncated the file
            self._rest = b""
        data = [self._rest, _read(self._fd)]
        text, line_break, rest = b"".join(data).rpartition(b"\n")
        self._rest = rest
        return _lines(text + line_break)

    def _backups(self) -> list[Path]:
        """The rotated files, newest first."""
        found = [
            (int(number), path)
            for path in self.path.parent.glob(f"{self.path.name}.*")
            if (number := path.name[len(self.path.name) + 1 :]).isdigit()
        ]
        return [path for _, path in sorted(found)]

    def _is_current(self, path: Path) -> bool:
        try:
            return self._fd is not None and os.path.samestat(os.fstat(self._fd), path.stat())
        except FileNotFoundError:
            return False

    @staticmethod
    def _open(path: Path) -> int | None:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unreadable(path, exc) from exc


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot read {path}: {error.strerror}", hint="Read it as the user that it belongs to.")


def _last(lines: Iterable[str], wanted: LogFilter, count: int) -> list[LogEntry]:
    return list(deque(group(select(map(from_line, lines), wanted)), maxlen=count))


def _read(fd: int) -> bytes:
    """Return what is left of an open file."""
    data = []
    while block := os.read(fd, BLOCK):
        data.append(block)
    return b"".join(data)


def _lines(data: bytes) -> list[str]:
    """Return the complete lines; `str.splitlines` would also split at other characters."""
    return data.decode("utf-8", "backslashreplace").split("\n")[:-1]
