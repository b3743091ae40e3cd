"""Work on many lines of waiting at once, one thing at a time in each. Asleep when nothing waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["KeyedWorkers", "NextStep"]

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

MAX_SLEEP_S = 60.0
"""How long a wait goes on before the clock, which somebody may have set, is looked at again."""
BROKEN_RETRY_S = 5.0
"""How long a line waits after a step that failed for a reason of ours, such as a full disk."""
CANCEL_AGAIN_S = 5.0
"""How long the end waits for a step that was cancelled and goes on."""

NextStep = float | None
"""What a step says: None that nothing waits any more; else the seconds until the next step."""


class KeyedWorkers(Generic[K]):
    """Runs `step(key)` for each key that was poked, until it says that nothing waits.

    Args:
        step: does the next thing of a key.
        at_once: how many steps may run at once.
    """

    def __init__(self, name: str, step: Callable[[K], Awaitable[NextStep]], *, at_once: int) -> None:
        self._name = name
        self._step = step
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._wakes: dict[K, asyncio.Event] = {}
        self._sleeping: set[K] = set()
        self._closed = self._is_draining_all = False
        self.running: set[K] = set()
        """Whose step runs now."""

    def wake(self, key: K) -> None:
        """Say that something may be there to do."""
        if self._closed:
            return
        if key in self._tasks:
            self._wakes[key].set()
            return
        self._wakes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._work(key), name=f"{self._name} {key}")

    async def drain(self, timeout_s: float, *, to_the_end: bool = False) -> None:
        """Begin no further step; cancel those that have not ended in time.

        Args:
            to_the_end: first do everything that need not wait.
        """
        self._closed, self._is_draining_all = True, to_the_end
        for key, task in self._tasks.items():
            if key in self._sleeping or not (to_the_end or key in self.running):
                task.cancel()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CANCEL_AGAIN_S)

    @property
    def _open(self) -> bool:
        return not self._closed or self._is_draining_all

    async def _work(self, key: K) -> None:
        poke = self._wakes[key]
        try:
            while self._open:
                poke.clear()
                wait_s = await self._one_step(key)
                if (wait_s is None and not poke.is_set()) or (wait_s and self._closed):
                    return
                if wait_s:
                    self._sleeping.add(key)
                    try:
                        await _wait_event(poke, min(wait_s, MAX_SLEEP_S))
                    finally:
                        self._sleeping.discard(key)
        finally:
            del self._tasks[key], self._wakes[key]

    async def _one_step(self, key: K) -> NextStep:
        async with self._slots:
            if not self._open:
                return None
            self.running.add(key)
            try:
                return await self._step(key)
            except Exception:  # the line must go on; what it worked on is still stored
                logger.exception("%s: a step of %s failed; the next one in %g s", self._name, key, BROKEN_RETRY_S)
                return BROKEN_RETRY_S
            finally:
                self.running.discard(key)


async def _wait_event(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
