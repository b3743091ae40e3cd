"""A log file that several processes write and rotate without losing a line."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.service.formats import LineFormatter, report_failure

__all__ = ["RotatingFile", "rotation_lock"]


LOOK_S = 0.05
"""Far less than a follower waits before it leaves a file that was rotated away."""


class RotatingFile(logging.Handler):
    """Appends records to `path`; at `max_bytes` it becomes `path.1`, up to `path.<backups>`.

    The file is made at the first record, with mode 0600. A rotation by another process is noticed before the next
    record, or `LOOK_S` later where the file has so much room that none is near.
    (`logging.handlers.RotatingFileHandler` would go on writing into the renamed file.)

    Args:
        max_bytes: size that a file does not exceed, unless a single record does; 0 means never rotate.
        backups: old files that are kept; 0 means none.
    """

    def __init__(self, path: Path, *, max_bytes: int, backups: int, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._fd: int | None = None
        self._file = (0, 0)
        """Device and inode of the open file."""
        self._looked = 0.0
        """When it was looked whether the file still has its name."""
        self._size = 0
        """What it had then, and what was written since."""
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, as one piece."""
        try:
            data = f"{self.format(record)}\n".encode()
            fd, size = self._current()
            if self._is_full(size, len(data)):
                fd = self._rotate(len(data))
            os.write(fd, data)
            self._size += len(data)
        except Exception:  # noqa: BLE001 - a log that cannot be written must not end the program; report() tells
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once that the file cannot be written."""
        report_failure(self, record)

    def close(self) -> None:
        """Close the file."""
        with self.lock or contextlib.nullcontext():
            self._drop()
        super().close()

    def __repr__(self) -> str:
        return str(self.path)

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _current(self, *, look: bool = False) -> tuple[int, int]:
        """Return a descriptor of the file that has the name now, and its size. `look`: at the disk, in any case."""
        if self._fd is not None:
            now = time.monotonic()
            if not look and now - self._looked < LOOK_S and self._size < self._max_bytes // 2:
                return self._fd, self._size
            self._looked = now
            try:
                there = os.stat(self.path)  # noqa: PTH116 - for each record, and quicker
                if (there.st_dev, there.st_ino) == self._file:
                    self._size = there.st_size
                    return self._fd, self._size
            except FileNotFoundError:
                pass
            self._drop()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        made = os.fstat(self._fd)
        self._file, self._size = (made.st_dev, made.st_ino), made.st_size
        return self._fd, self._size

    def _is_full(self, size: int, more: int) -> bool:
        return self._max_bytes > 0 and size > 0 and size + more > self._max_bytes

    def _rotate(self, more: int) -> int:
        with rotation_lock(self.path.parent):
            fd, size = self._current(look=True)  # another process may have been quicker
            if not self._is_full(size, more):
                return fd
            for number in range(self._backups - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._backup(number).replace(self._backup(number + 1))
            if self._backups:
                self.path.replace(self._backup(1))
            else:
                self.path.unlink()
            return self._current(look=True)[0]

    def _backup(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


@contextlib.contextmanager
def rotation_lock(directory: Path, *, shared: bool = False) -> Iterator[None]:
    """Keep the names of the log files as they are while the block runs.

    The lock is on the directory itself: no file is left behind.

    Args:
        shared: for a reader; others may read at the same time.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
