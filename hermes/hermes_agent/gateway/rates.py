"""How many messages a minute are taken: of one person, of one platform, of strangers."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

__all__ = ["TELL_EVERY_S", "Rates"]

WINDOW_S = 60.0
TELL_EVERY_S = 600.0
"""Somebody whose messages are dropped is told so once in this time."""
REMEMBERED = 4096
"""Senders that are counted at a time; one who was not heard for longest is forgotten."""


class Rates:
    """Counts within the last minute. For one loop.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()
        self._told: OrderedDict[str, float] = OrderedDict()

    def take(self, whose: str, limit: int) -> bool:
        """Count a message; false when there were `limit` of them in the last minute. 0 means no limit."""
        if limit <= 0:
            return True
        now = self._clock()
        seen = self._seen.setdefault(whose, deque())
        self._seen.move_to_end(whose)
        _forget_beyond(self._seen)
        while seen and now - seen[0] >= WINDOW_S:
            seen.popleft()
        if len(seen) >= limit:
            return False
        seen.append(now)
        return True

    def may_tell(self, whom: str) -> bool:
        """Say whether somebody may be told now why nothing happens; true once in `TELL_EVERY_S`."""
        now = self._clock()
        last = self._told.get(whom)
        if last is not None and now - last < TELL_EVERY_S:
            return False
        self._told[whom] = now
        self._told.move_to_end(whom)
        _forget_beyond(self._told)
        return True


def _forget_beyond(known: OrderedDict[str, Any]) -> None:
    while len(known) > REMEMBERED:
        known.popitem(last=False)
