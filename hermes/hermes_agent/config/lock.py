"""One writer of a config file at a time, across processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_agent.core.errors import UserError

__all__ = ["LONGEST_WAIT_S", "hold_lock"]

LONGEST_WAIT_S = 10.0
_POLL_S = 0.02


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock for `path`, a file `.NAME.lock` beside it; the kernel drops it when the process ends.

    Raises:
        UserError: another process holds it for longer than `LONGEST_WAIT_S`, or the directory is read-only.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise UserError(f"{path} cannot be changed: {lock.name}: {error.strerror}") from error
    try:
        _wait(handle, path)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, path: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{path} is being changed by another process for {LONGEST_WAIT_S:g} s already",
                    hint="try again when that process has ended",
                ) from None
            time.sleep(_POLL_S)
        else:
            return
