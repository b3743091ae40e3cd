"""Orderly shutdown: signals that request it, and the draining of running turns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator

from hermes_agent.core.errors import RetryLater

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 10.0
"""Seconds that a refused caller is asked to wait: about the time of a restart."""


RESTART = "restart"
"""Reason of a shutdown that a restart follows."""


class Shutdown:
    """A requested shutdown of the daemon; create it in the loop that handles the signals.

    After the first SIGTERM or SIGINT `wait` returns, and running turns may finish. The second one sets `hurry`: they
    may not. The third has the signal's own effect, so that a hanging loop can be ended from a keyboard. SIGUSR1 is like
    the first SIGTERM, with the reason `RESTART`.

    Args:
        on_reload: called in the loop for each SIGHUP; None logs that there is nothing to reload.
    """

    def __init__(self, on_reload: Callable[[], None] | None = None) -> None:
        self.requested = asyncio.Event()
        """Set when the daemon has to end."""
        self.hurry = asyncio.Event()
        """Set when it has to end without waiting."""
        self.reason = ""
        """The first request: the name of the signal, or the text given to `request`."""
        self._on_reload = on_reload

    @contextlib.contextmanager
    def signals(self) -> Iterator[Shutdown]:
        """Handle SIGTERM, SIGINT, SIGUSR1 and SIGHUP inside the block; only in the main thread."""
        loop = asyncio.get_running_loop()
        taken = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in taken}
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, loop, number)
        loop.add_signal_handler(signal.SIGUSR1, self.request, RESTART)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            yield self
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def request(self, reason: str) -> None:
        """Request the shutdown from this process; no effect after an earlier request."""
        if not self.requested.is_set():
            logger.info("shutdown: %s, running turns may finish", reason)
            self.reason = reason
            self.requested.set()

    async def wait(self) -> str:
        """Wait for the request of a shutdown; return its reason."""
        await self.requested.wait()
        return self.reason

    def _stop(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        if not self.requested.is_set():
            self.request(number.name)
        elif not self.hurry.is_set():
            self.reason = number.name  # an immediate end is no restart
            logger.warning("shutdown: %s again, running turns are cancelled", number.name)
            self.hurry.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(each)

    def _reload(self) -> None:
        if self._on_reload is None:
            logger.warning("SIGHUP: nothing can be reloaded while the daemon runs; restart it instead")
            return
        try:
            self._on_reload()
        except Exception:
            logger.exception("SIGHUP: reload failed, the previous state continues")


class TurnDrain:
    """Counts running turns; after `close` it refuses new ones. For one loop."""

    def __init__(self, retry_after_s: float = RETRY_AFTER_S) -> None:
        self._running = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._retry_after_s = retry_after_s

    @property
    def running(self) -> int:
        """Number of running turns."""
        return self._running

    @property
    def closed(self) -> bool:
        """Whether new turns are refused."""
        return self._closed

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Count a turn inside the block.

        Raises:
            RetryLater: the daemon is stopping; `after_s` is for a `Retry-After` (HTTP 503).
        """
        if self._closed:
            raise RetryLater("the agent is stopping and takes no new turns", after_s=self._retry_after_s)
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    def close(self) -> None:
        """Refuse new turns from now on."""
        self._closed = True

    async def wait_idle(self, timeout_s: float, *, hurry: asyncio.Event | None = None) -> bool:
        """Close, and wait for the running turns.

        Args:
            timeout_s: longest wait in seconds.
            hurry: ends the wait when it is set (`Shutdown.hurry`).

        Returns:
            True if no turn runs any more; False if the caller has to cancel the rest (`running`).
        """
        self.close()
        waits = [asyncio.ensure_future(self._idle.wait())]
        if hurry is not None:
            waits.append(asyncio.ensure_future(hurry.wait()))
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._running:
            why = "the stop was hurried" if hurry is not None and hurry.is_set() else f"{timeout_s:g} s are over"
            logger.warning("shutdown: %d turns still run: %s", self._running, why)
        return not self._running
