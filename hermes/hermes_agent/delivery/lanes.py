"""Work on many lines of waiting at once, one thing at a time in each. Asleep when nothing waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Lanes", "NextStep"]

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

LONGEST_SLEEP_S = 60.0
"""How long a wait goes on before the clock, which somebody may have set, is looked at again."""
BROKEN_RETRY_S = 5.0
"""How long a line waits after a step that failed for a reason of ours, such as a full disk."""

NextStep = float | None
"""What a step says: None that nothing waits any more; else the seconds until the next step."""


class Lanes(Generic[K]):
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
        self._pokes: dict[K, asyncio.Event] = {}
        self._closed = False
        self.running: set[K] = set()
        """Whose step runs now."""

    def poke(self, key: K) -> None:
        """Say that something may be there to do."""
        if self._closed:
            return
        if key in self._tasks:
            self._pokes[key].set()
            return
        self._pokes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._work(key), name=f"{self._name} {key}")

    async def drain(self, timeout_s: float) -> None:
        """Begin no further step; cancel those that have not ended in time."""
        self._closed = True
        for key, task in self._tasks.items():
            if key not in self.running:
                task.cancel()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _work(self, key: K) -> None:
        poke = self._pokes[key]
        try:
            while not self._closed:
                poke.clear()
                wait_s = await self._one_step(key)
                if wait_s is None and not poke.is_set():
                    return
                if wait_s:
                    await _either(poke, min(wait_s, LONGEST_SLEEP_S))
        finally:
            del self._tasks[key], self._pokes[key]

    async def _one_step(self, key: K) -> NextStep:
        async with self._slots:
            if self._closed:
                return None
            self.running.add(key)
            try:
                return await self._step(key)
            except Exception:  # the line must go on; what it worked on is still stored
                logger.exception("%s: a step of %s failed; the next one in %g s", self._name, key, BROKEN_RETRY_S)
                return BROKEN_RETRY_S
            finally:
                self.running.discard(key)


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
