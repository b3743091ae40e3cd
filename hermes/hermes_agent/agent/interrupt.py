"""Stopping a turn: one flag that the async side waits for and that tools in threads poll."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable
from typing import TypeVar

__all__ = ["Interrupt", "Interrupted"]

T = TypeVar("T")

GRACE_S = 1.0
"""How long a tool that was told to stop may take to end by itself."""


class Interrupted(Exception):
    """The turn was stopped while it waited."""


class Interrupt:
    """The flag of one turn, which any thread may set."""

    def __init__(self) -> None:
        self.flag = threading.Event()
        self._more: list[threading.Event] = []
        self._waits: set[_InterruptScope] = set()

    def set_with(self, flags: Iterable[threading.Event]) -> None:
        """Set these flags, too: of calls that one by one may be told to stop."""
        self._more = list(flags)
        if self.flag.is_set():
            self.set()

    def set(self) -> None:
        """Stop the turn."""
        for flag in (self.flag, *self._more):
            flag.set()
        for wait in tuple(self._waits):
            wait.end()

    def check(self) -> None:
        """Raise `Interrupted` when the flag is set."""
        if self.flag.is_set():
            raise Interrupted

    async def run(self, work: Awaitable[T], *, grace_s: float = 0.0) -> T:
        """Await `work`, or raise `Interrupted`; interrupted work has `grace_s` seconds to end by itself."""
        with _InterruptScope(self.flag, self._waits, grace_s):
            return await work

    async def iterate(self, stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield from `stream` until it ends; raise `Interrupted`, and close it, when the flag is set."""
        try:
            while True:
                self.check()
                try:
                    with _InterruptScope(self.flag, self._waits):
                        item = await anext(stream)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


class _InterruptScope:
    """What is awaited in the block is cancelled when the flag is set; the block raises `Interrupted` then.

    Without a task of its own, as `asyncio.timeout`: a turn waits for dozens of things.
    """

    __slots__ = ("_asked", "_cancelled", "_ends", "_flag", "_grace_s", "_loop", "_others", "_task")

    def __init__(self, flag: threading.Event, others: set[_InterruptScope], grace_s: float = 0.0) -> None:
        self._flag = flag
        self._others = others
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._ends: asyncio.TimerHandle | None = None
        self._cancelled = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._asked = task, task.cancelling()
        self._others.add(self)
        if self._flag.is_set():
            self._begin_grace()

    def end(self) -> None:
        """Cancel, after the grace; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._begin_grace)

    def _begin_grace(self) -> None:
        if self._ends is None and self in self._others:
            self._ends = self._loop.call_later(self._grace_s, self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._others.discard(self)
        if self._ends is not None:
            self._ends.cancel()
        if self._cancelled and self._task.uncancel() <= self._asked and kind is asyncio.CancelledError:
            raise Interrupted
