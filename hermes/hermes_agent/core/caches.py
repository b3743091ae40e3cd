"""Caches: a dictionary of limited size, and the results of tool checks.

Source: plugin contract §4.3.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

TTL_S = 30.0
GRACE_S = 60.0
"""Seconds in which a check may fail after a success without an effect."""

LIMIT_S = 5.0
"""Longest wait for a check in seconds; the turn waits for it."""

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")


class LruDict(OrderedDict[K, V]):
    """A dictionary of at most `limit` entries.

    A new entry drops the one that was set or used least recently. Reading does not count as a use; `use` does.

    Args:
        on_drop: called with each entry that is dropped to make room.
    """

    def __init__(self, limit: int, on_drop: Callable[[K, V], object] | None = None) -> None:
        super().__init__()
        self._limit = limit
        self._on_drop = on_drop

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            dropped = self.popitem(last=False)
            if self._on_drop is not None:
                self._on_drop(*dropped)

    def touch(self, key: K) -> None:
        """Count a key as used now, if it is there; atomic."""
        try:  # noqa: SIM105 - `suppress` takes as long as a tenth of a tool call
            self.move_to_end(key)
        except KeyError:
            pass

    def use(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made by `make` if there is none, and count it as used now."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = self[key] = make()
        return value


Check = Callable[[], Any]
Fault = Callable[[str], None]


Bounded = Callable[[Callable[[], bool], float], bool]
"""Calls a function and returns its answer; raises `TimeoutError` after this number of seconds and abandons the call."""


def _unbounded(call: Callable[[], bool], limit_s: float) -> bool:
    return call()


UNCACHED = "_hermes_no_cache"
"""Attribute of a check that is called each time."""


def no_cache_check_fn(fn: F) -> F:
    """Mark a `check_fn` as one that is called each time; a decorator."""
    setattr(fn, UNCACHED, True)
    return fn


class CheckCache:
    """The results of checks (`check_fn` of tools), each remembered for `TTL_S` seconds.

    An exception or an overrun of `LIMIT_S` seconds counts as False. A check that was abandoned is not called again
    before it ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.bounded: Bounded = _unbounded
        """Calls a check; the host sets a function that enforces the time limit."""
        self._asked: set[Check] = set()
        """Checks that run now."""
        self._stuck: set[Check] = set()
        """Running checks that were abandoned."""
        self._answers: dict[Check, tuple[float, bool]] = {}
        self._last_yes: dict[Check, float] = {}

    def ask(self, check: Check | None, fault: Fault | None = None) -> bool:
        """Return the result of a check; True without a check.

        Args:
            fault: called with the reason if the check fails.
        """
        if check is None:
            return True
        now = self._clock()
        known = self._answers.get(check)
        if known is not None and now - known[0] < TTL_S:
            return known[1]
        try:
            answer = check not in self._stuck and self.bounded(partial(self._call, check), LIMIT_S)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - a plugin's function, SystemExit included
            logger.warning("tool check: failed: %r: %r", check, exc)
            if isinstance(exc, TimeoutError) and check in self._asked:
                self._stuck.add(check)
                self._stuck &= self._asked  # a check may have ended meanwhile
            if fault is not None:
                fault(f"check_fn: {exc!r}")
            answer = False
        if answer:
            self._last_yes[check] = now
        elif now - self._last_yes.get(check, float("-inf")) < GRACE_S:
            answer = True
        if getattr(check, UNCACHED, False):
            self._last_yes.pop(check, None)
        else:
            self._answers[check] = (now, answer)
        return answer

    def _call(self, check: Check) -> bool:
        self._asked.add(check)
        try:
            return bool(check())
        finally:
            self._asked.discard(check)
            self._stuck.discard(check)

    def forget(self) -> None:
        """Remove all results, so that each check is called again."""
        self._answers.clear()
        self._last_yes.clear()
