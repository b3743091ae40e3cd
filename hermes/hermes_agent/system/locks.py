"""Locks between processes (`FileLock`) and between threads of one process (`KeyedLocks`)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from hermes_agent.core.errors import UserError

TIMEOUT_S = 10.0
"""Longest wait for a lock in seconds; changes of a file hold it for milliseconds."""
_FIRST_POLL_S, _LONGEST_POLL_S = 0.001, 0.02


class LockTimeout(UserError, TimeoutError):
    """Another process holds a lock for too long."""


class FileLock:
    """`flock` on a file, held from `acquire` to `release`; also a context manager.

    The lock ends with its process, and no child inherits it. The file stays: if it were removed, two processes could
    lock two files of one name.

    Args:
        path: lock file, created if it is missing; or a directory, which stays unchanged.
        shared: allow other shared locks at the same time; the file must exist and is only read.
        timeout_s: longest wait of `acquire` in seconds; 0 tries once.
        mode: permission bits of a new file.
        subject: what the lock protects, for the error; the path by default.
        names_holder: write the process id of the holder into the file. False for a file with other content.
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool = False,
        timeout_s: float = TIMEOUT_S,
        mode: int = 0o600,
        subject: str = "",
        names_holder: bool = True,
    ) -> None:
        self.path = path
        self._shared = shared
        self._timeout_s = timeout_s
        self._mode = mode
        self._subject = subject or str(path)
        self._names_holder = names_holder and not shared
        self._fd: int | None = None
        self._is_named = False

    @classmethod
    def for_file(cls, path: Path, *, timeout_s: float = TIMEOUT_S, mode: int = 0o600) -> Self:
        """Return the lock for a file that each write replaces: `.NAME.lock` in its directory."""
        return cls(path.with_name(f".{path.name}.lock"), timeout_s=timeout_s, mode=mode, subject=str(path))

    @property
    def fd(self) -> int:
        """The open file of a held lock."""
        if self._fd is None:
            raise RuntimeError(f"the lock {self.path} is not held")
        return self._fd

    def acquire(self) -> None:
        """Take the lock; no effect if it is already held.

        Raises:
            LockTimeout: another process holds it for longer than `timeout_s`.
            OSError: the file cannot be opened or locked.
        """
        deadline, poll_s = time.monotonic() + self._timeout_s, _FIRST_POLL_S
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                pid = self.holder()
                who = f"process {pid}" if pid else "another process"
                waited = f" for {self._timeout_s:g} s already" if self._timeout_s else ""
                raise LockTimeout(
                    f"{self._subject} is locked by {who}{waited}", hint="Try again when that process has ended."
                )
            time.sleep(poll_s)
            poll_s = min(2 * poll_s, _LONGEST_POLL_S)

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it is held now.

        Raises:
            OSError: the file cannot be opened or locked.
        """
        if self._fd is not None:
            return True
        fd = self._open()
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if self._shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BaseException as exc:
            os.close(fd)
            if isinstance(exc, BlockingIOError | PermissionError):  # EACCES: the error of some network file systems
                return False
            raise
        self._fd = fd
        if self._names_holder and not self.path.is_dir():
            with contextlib.suppress(OSError):  # a full disk must not prevent the lock
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                self._is_named = True
        return True

    def release(self) -> None:
        """Release the lock; no effect if it is not held."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            if self._is_named:
                self._is_named = False
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
            os.close(fd)

    def holder(self) -> int | None:
        """Return the process id in the lock file, or None if it has none."""
        try:
            with self.path.open("rb") as file:
                text = file.read(32).strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _open(self) -> int:
        if self._shared:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self.path.is_dir():
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, self._mode)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file that the operator edits (`FileLock.for_file`).

    The file's group may use it, too.

    Raises:
        UserError: another process holds it for longer than `TIMEOUT_S`, or the directory is read-only.
    """
    lock = FileLock.for_file(path, mode=0o660)
    try:
        lock.acquire()
    except LockTimeout:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be changed: {lock.path.name}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


class KeyedLocks:
    """One lock for each key among the threads of this process; a key without a holder takes no memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Hold the lock of `key`: one thread at a time, and only once in a thread."""
        with self._guard:
            lock, count = self._held.get(key, (threading.Lock(), 0))
            self._held[key] = (lock, count + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, count = self._held.pop(key)
                if count > 1:
                    self._held[key] = (lock, count - 1)
