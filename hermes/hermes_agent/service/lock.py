"""One daemon per home: a lock on `gateway.lock` that the kernel drops with its process, however that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from hermes_agent.core.errors import LockHeld, UserError

__all__ = ["LOCK_NAME", "HomeLock", "lock_holder"]

LOCK_NAME = "gateway.lock"
TRIES, PAUSE_S = 5, 0.05
"""`holder` takes the lock for microseconds; a start that meets it tries again."""


class HomeLock:
    """The lock of a home, held from `acquire` to `release`; also a context manager.

    The file stays: to remove it would let two daemons lock two files of one name. No child inherits the lock
    (O_CLOEXEC); a process that forks without exec would share it.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / LOCK_NAME
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockHeld: another daemon has this home (exit status 75).
            UserError: the file cannot be opened or locked.
        """
        if self._fd is not None:
            return
        fd = _open(self.path)
        try:
            for attempt in range(TRIES):
                if _try_lock(fd, self.path):
                    break
                if attempt == TRIES - 1:
                    raise _held(self.path)
                time.sleep(PAUSE_S)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Let another daemon have the home; nothing happens when the lock is not held."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> HomeLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def lock_holder(home: Path) -> int | None:
    """Return the pid of the daemon that runs with `home`, 0 when it cannot be told, None when there is none.

    The kernel is asked, not the file: what a crashed daemon wrote does not count.
    """
    path = home / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError:
        return 0
    try:
        return None if _try_lock(fd, path, shared=True) else _pid(path) or 0
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise UserError(
            f"cannot open the daemon's lock {path}: {exc.strerror}",
            hint="The home must exist and be writable for the user that the daemon runs as.",
        ) from exc


def _try_lock(fd: int, path: Path, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise UserError(
            f"cannot lock {path}: {exc.strerror}", hint="Put HERMES_HOME on a file system that has locks."
        ) from exc
    return True


def _pid(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _held(path: Path) -> LockHeld:
    pid = _pid(path)
    who = f"pid {pid}" if pid else "its pid is not known"
    stop = f" or `kill {pid}`" if pid else ""
    return LockHeld(
        f"another hermes daemon ({who}) runs with the home {path.parent}",
        hint=f"Stop it first (`systemctl stop hermes-agent`{stop}), or set HERMES_HOME to another directory.",
    )
