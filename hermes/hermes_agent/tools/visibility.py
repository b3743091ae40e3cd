"""May a tool be shown to the model: the cached answers of `check_fn`. Source: plugin contract §4.3."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

__all__ = ["CheckCache"]

logger = logging.getLogger(__name__)

TTL_S = 30.0
GRACE_S = 60.0
"""A check that said yes this recently may fail once in a while."""

Check = Callable[[], Any]


class CheckCache:
    """Remembers each check's answer for `TTL_S`; an exception counts as no."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Check, tuple[float, bool]] = {}
        self._last_yes: dict[Check, float] = {}

    def ask(self, check: Check | None) -> bool:
        """Return the answer; no check means yes."""
        if check is None:
            return True
        now = self._clock()
        known = self._answers.get(check)
        if known is not None and now - known[0] < TTL_S:
            return known[1]
        try:
            answer = bool(check())
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - a plugin's function, SystemExit included
            logger.warning("the check %r failed: %s", check, exc)
            answer = False
        if answer:
            self._last_yes[check] = now
        elif now - self._last_yes.get(check, float("-inf")) < GRACE_S:
            answer = True
        self._answers[check] = (now, answer)
        return answer

    def forget(self) -> None:
        """Ask again next time."""
        self._answers.clear()
        self._last_yes.clear()
