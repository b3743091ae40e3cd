"""Two names that change places all the time: what an attacker does between a check and a use."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_RENAMEAT2, _AT_FDCWD, _EXCHANGE = 316 if os.uname().machine == "x86_64" else 276, -100, 2


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[list[int]]:
    """Exchange two names in a loop, each time in one step; yield a list whose item counts the exchanges."""
    done, count = threading.Event(), [0]
    call = ctypes.CDLL(None, use_errno=True).syscall
    first, second = os.fsencode(one), os.fsencode(other)

    def work() -> None:
        while not done.is_set():
            count[0] += call(_RENAMEAT2, _AT_FDCWD, first, _AT_FDCWD, second, _EXCHANGE) == 0

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield count
    finally:
        done.set()
        thread.join(30)
