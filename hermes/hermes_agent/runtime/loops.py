"""The event loop of the daemon, and event loops in their own threads.

The daemon's loop polls the kernel less often. Each poll releases the interpreter lock, and the loop then waits until
another thread releases it; with many parallel turns this takes longer than the work.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

ROUNDS = 4
"""Most rounds of ready callbacks between two polls; each takes a fraction of a millisecond."""


class _Patient(selectors.DefaultSelector):
    """A selector that polls only now and then while callbacks are ready."""

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


T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that wait, until it is closed; for the test kit and MCP servers.

    Args:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run `coroutine` on the loop and return its result; this thread waits.

        Raises:
            TimeoutError: it took longer than `timeout_s` seconds, and was cancelled.
            RuntimeError: this is the loop's own thread, or the loop is closed.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this loop cannot wait for itself")
        future = self.begin(coroutine)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `coroutine` on the loop; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self._loop is None or not self._loop.is_running():
            coroutine.close()
            raise RuntimeError("this loop is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel running coroutines and end the thread; no effect if it is closed."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._loop = None

    def _serve(self) -> None:
        asyncio.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()
