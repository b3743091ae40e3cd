"""Interrupt the main thread when it takes too long.

A signal does it, so that the code stays in the main thread, where it may set signal handlers and has its event loop,
and so that a wait ends as well as a loop. C code that never returns is not interrupted.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

__all__ = ["TimeLimitExceeded", "can_interrupt", "interrupt_after"]

AGAIN_S = 5.0
"""When the code swallows the interruption, it comes again after this."""


class TimeLimitExceeded(BaseException):
    """The time is over. No `Exception`: code that is to be interrupted should not catch it by accident."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"not done within {limit_s:g} s")
        self.limit_s = limit_s


def can_interrupt() -> bool:
    """Whether this is the main thread, the only one that signals reach."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def interrupt_after(limit_s: float) -> Iterator[None]:
    """Raise `TimeLimitExceeded` inside the block after `limit_s` seconds; only in the main thread.

    A timer that ran before goes on afterwards.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded(limit_s)

    handler = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGALRM) is ring:
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - started)), interval_s)
