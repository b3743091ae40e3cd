"""Stopping a turn: one flag that the async side waits for and that tools in threads poll."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["Interrupt", "Interrupted"]

T = TypeVar("T")

GRACE_S = 1.0
"""How long a tool that was told to stop may take to end by itself."""


class Interrupted(Exception):
    """The turn was stopped while it waited."""


class Interrupt:
    """The flag of one turn."""

    def __init__(self) -> None:
        self.flag = threading.Event()
        self._more: list[threading.Event] = []
        self._waiting = asyncio.Event()

    def also(self, flags: Iterable[threading.Event]) -> None:
        """Set these flags, too: of calls that one by one may be told to stop."""
        self._more = list(flags)
        if self.flag.is_set():
            self.set()

    def set(self) -> None:
        """Stop the turn; call it on the core loop."""
        for flag in (self.flag, *self._more):
            flag.set()
        self._waiting.set()

    def check(self) -> None:
        """Raise `Interrupted` when the flag is set."""
        if self.flag.is_set():
            raise Interrupted

    async def run(self, work: Coroutine[Any, Any, T], *, grace_s: float = 0.0) -> T:
        """Await `work`, or raise `Interrupted`; interrupted work has `grace_s` seconds to end by itself."""
        task = asyncio.ensure_future(work)
        waiter = asyncio.ensure_future(self._waiting.wait())
        try:
            await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and grace_s:
                await asyncio.wait((task,), timeout=grace_s)
            if not task.done():
                raise Interrupted
            return task.result()
        finally:
            waiter.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def iterate(self, stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield from `stream` until it ends; raise `Interrupted`, and close it, when the flag is set."""
        queue: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=64)

        async def pump() -> None:
            error: BaseException | None = None
            try:
                async for item in stream:
                    await queue.put(item)
            except Exception as exc:  # noqa: BLE001 - carried to the reader, which raises it
                error = exc
            await queue.put(_End(error))

        async def watch() -> None:
            await self._waiting.wait()
            while not queue.empty():
                queue.get_nowait()
            await queue.put(_End(Interrupted()))

        tasks = [asyncio.ensure_future(pump()), asyncio.ensure_future(watch())]
        try:
            while True:
                item = await queue.get()
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    return
                yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
