"""SIGHUP: plugins and what else can be loaded while the daemon runs; the service manager is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hermes_agent.core.errors import UserError
from hermes_agent.server.doors import PluginStatusProtocol
from hermes_agent.service.notify import ServiceNotifier

__all__ = ["ReloadSignal"]

logger = logging.getLogger(__name__)


class ReloadSignal:
    """The reloads of a daemon, one after another.

    Args:
        line: the status line of a daemon that serves.
    """

    def __init__(
        self, plugins: PluginStatusProtocol, notifier: ServiceNotifier, line: Callable[[], str] = lambda: "ready"
    ) -> None:
        self.status_line = line
        self._plugins = plugins
        self._notifier = notifier
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start one; called in the loop."""
        task = asyncio.ensure_future(self._reload())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def run(self) -> list[str]:
        """Reload, and return what changed, a line each.

        Raises:
            UserError: the config is wrong; what ran before goes on.
        """
        async with self._lock:
            self._notifier.reloading("reloading: plugins and config")
            try:
                done = await self._plugins.reload(None)
            finally:
                self._notifier.ready(self.status_line())
        told = [f"{one['key']} {one['outcome']}" for one in done if one["outcome"] != "unchanged"]
        logger.info("reloaded: %s", ", ".join(told) or "nothing changed")
        return told

    async def _reload(self) -> None:
        try:
            await self.run()
        except UserError as error:
            logger.error("SIGHUP: nothing is reloaded: %s", error)
        except Exception:
            logger.exception("SIGHUP: the reload failed, what ran before goes on")
