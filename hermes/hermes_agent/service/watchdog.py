"""The watchdog's beat, from the core loop itself: a loop that hangs stops beating, and systemd restarts the daemon."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import sys
from collections.abc import Callable

from hermes_agent.service.notify import ServiceNotifier

__all__ = ["feed_watchdog", "trace_hangs"]

logger = logging.getLogger(__name__)


async def feed_watchdog(
    notifier: ServiceNotifier, interval_s: float | None, is_alive: Callable[[], bool] | None = None
) -> None:
    """Feed the watchdog until cancelled; return at once when there is none.

    Args:
        interval_s: seconds between two beats: `notifier.beat_interval_s`; None means no watchdog.
        is_alive: asked before each beat; while it says false (or raises), the watchdog is not fed. It must be
            quick. None means that a loop that runs is proof enough.
    """
    if interval_s is None:
        return
    fed = True
    while True:
        alive = _check_alive(is_alive)
        if alive:
            notifier.alive()
        if alive != fed:
            logger.log(
                logging.INFO if alive else logging.ERROR,
                "progress again, the watchdog is fed" if alive else "no progress, the watchdog is not fed any more",
            )
            fed = alive
        await asyncio.sleep(interval_s)


def trace_hangs() -> None:
    """Have the place of every thread written to stderr when the watchdog's SIGABRT (or a crash) ends the process.

    Names of functions and lines only, no values.
    """
    if sys.stderr is not None:
        faulthandler.enable(sys.stderr, all_threads=True)


def _check_alive(is_alive: Callable[[], bool] | None) -> bool:
    if is_alive is None:
        return True
    try:
        return is_alive()
    except Exception:
        logger.exception("the question whether the daemon makes progress failed; the watchdog is not fed")
        return False
