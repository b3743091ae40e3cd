"""The event loop of a daemon.

Each question to the kernel lets go of the interpreter's lock: another thread takes it, and the loop waits until that
thread lets go again. With many turns at once asking costs more than what there is to do.

An event loop in a thread of its own: for the test kit, which is called from anywhere, and for MCP servers.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

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


T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that wait, until it is closed.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run `coroutine` there and return its result; this thread waits, whether it has a loop or not.

        Raises:
            TimeoutError: it took longer than `timeout_s` seconds, and was cancelled.
            RuntimeError: this is the loop's own thread, or it is closed.
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
        """Run `coroutine` there; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self._loop is None or not self._loop.is_running():
            coroutine.close()
            raise RuntimeError("this loop is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what still runs there and end the thread; a second call does nothing."""
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
