"""The event loop of a daemon.

Each question to the kernel lets go of the interpreter's lock: another thread takes it, and the loop waits until that
thread lets go again. With many turns at once asking costs more than what there is to do.
"""

from __future__ import annotations

import asyncio
import selectors

__all__ = ["new_core_loop"]

ROUNDS = 4
"""Rounds of what is ready, at most, between two questions to the kernel: a fraction of a millisecond each."""


class _Patient(selectors.DefaultSelector):
    """Asks the kernel for news only now and then, as long as there is something to do anyway."""

    _rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0 and self._rounds < ROUNDS:
            self._rounds += 1
            return []
        self._rounds = 0
        return super().select(timeout)


def new_core_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop."""
    return asyncio.SelectorEventLoop(_Patient())
