"""A bound on how often something happens in a second, so that commands cannot keep the agent busy."""

from __future__ import annotations

import asyncio

__all__ = ["RateLimit"]


class RateLimit:
    """Args: `most` is how often it may happen in a second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since, self._count = 0.0, 0

    async def step(self) -> None:
        """Count once; where it is too often, wait for the next second."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= 1:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            await asyncio.sleep(self._since + 1 - now)
