"""What a memory learns in the background: one call after another, and at the end a last wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from hermes_agent.io.bridge import Lane

__all__ = ["Background"]

logger = logging.getLogger(__name__)


class Background:
    """Calls that nobody waits for, one after another in one thread.

    Args:
        limit: calls that may wait; more are dropped, with a line in the log.
    """

    def __init__(self, lane: Lane, limit: int = 256) -> None:
        self._lane = lane
        self._limit = limit
        self._tasks: set[Any] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> None:
        """Know the core loop, which this is called on."""
        self._loop = asyncio.get_running_loop()

    def post(self, work: Callable[[], Any]) -> None:
        """Run `work` after what was posted before. On the core loop."""
        if len(self._tasks) >= self._limit:
            logger.warning("a memory provider is far behind: what it should learn now is dropped")
            return
        task = asyncio.ensure_future(self._lane.run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post_from_thread(self, work: Callable[[], Any]) -> None:
        """Run `work` likewise; from a worker, while the core loop runs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.post, work)

    async def drain(self, limit_s: float) -> bool:
        """Wait for everything that was posted, at most so long; say whether it is done."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limit_s)
        return not self._tasks
