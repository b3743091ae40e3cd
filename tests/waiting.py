"""Waiting for a condition, or for the end of a process."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

LIMIT_S = 60.0


def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Return when the condition holds; fail after `LIMIT_S`."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not hold within {LIMIT_S:g} s"
        time.sleep(0.01)


def wait_for_end(pid: int) -> None:
    """Return when the process has ended; fail after `LIMIT_S`."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watched], [], [], LIMIT_S)[0], f"process {pid} does not end"
    finally:
        os.close(watched)
