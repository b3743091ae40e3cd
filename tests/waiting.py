"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0


def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Return when the condition holds; fail after `LIMIT_S`."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not hold within {LIMIT_S:g} s"
        time.sleep(0.01)
