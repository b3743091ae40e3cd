"""How many messages a minute are taken: of one person, of one platform, of strangers."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

__all__ = ["WARN_EVERY_S", "RateLimits"]

WINDOW_S = 60.0
WARN_EVERY_S = 600.0
"""Somebody whose messages are dropped is told so once in this time."""
MAX_SENDERS = 4096
"""Senders that are counted at a time; one who was not heard for longest is forgotten."""


class RateLimits:
    """Counts within the last minute. For one loop.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()
        self._warned: OrderedDict[str, float] = OrderedDict()

    def count_message(self, whose: str, limit: int) -> bool:
        """Count a message; false when there were `limit` of them in the last minute. 0 means no limit."""
        if limit <= 0:
            return True
        now = self._clock()
        seen = self._seen.setdefault(whose, deque())
        self._seen.move_to_end(whose)
        _drop_oldest(self._seen)
        while seen and now - seen[0] >= WINDOW_S:
            seen.popleft()
        if len(seen) >= limit:
            return False
        seen.append(now)
        return True

    def may_warn(self, whom: str) -> bool:
        """Say whether somebody may be told now why nothing happens; true once in `WARN_EVERY_S`."""
        now = self._clock()
        last = self._warned.get(whom)
        if last is not None and now - last < WARN_EVERY_S:
            return False
        self._warned[whom] = now
        self._warned.move_to_end(whom)
        _drop_oldest(self._warned)
        return True


def _drop_oldest(known: OrderedDict[str, Any]) -> None:
    while len(known) > MAX_SENDERS:
        known.popitem(last=False)
