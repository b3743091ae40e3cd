"""The daemon: serve until a signal ends it, reload on SIGHUP, and notify the service manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from hermes_agent.core.errors import UserError
from hermes_agent.core.tasks import end_task
from hermes_agent.server.app import HttpRoute, build
from hermes_agent.server.conversations import (
    AgentProtocol,
    CommandRouterProtocol,
    IdempotentRequests,
    NoPlugins,
    PluginStatusProtocol,
)
from hermes_agent.server.http_server import serve
from hermes_agent.server.model_service import HostModelsProtocol
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.status_endpoints import Counts
from hermes_agent.service.shutdown import RESTART, Shutdown
from hermes_agent.service.systemd import ServiceNotifier, SocketHandover, feed_watchdog

if TYPE_CHECKING:
    from hermes_agent.server.http_types import App


logger = logging.getLogger(__name__)


class ReloadSignal:
    """The reloads of a daemon; they run one after another.

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
        """Start a reload; called on the loop."""
        task = asyncio.ensure_future(self._reload())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def run(self) -> list[str]:
        """Reload, and return a line for each change.

        Raises:
            UserError: the config is wrong; the previous settings stay in effect.
        """
        async with self._lock:
            self._notifier.reloading("reloading: plugins and config")
            try:
                done = await self._plugins.reload(None)
            finally:
                self._notifier.ready(self.status_line())
        changes = [f"{result['key']} {result['outcome']}" for result in done if result["outcome"] != "unchanged"]
        logger.info("reloaded: %s", ", ".join(changes) or "nothing changed")
        return changes

    async def _reload(self) -> None:
        try:
            await self.run()
        except UserError as error:
            logger.error("SIGHUP: nothing is reloaded: %s", error)
        except Exception:
            logger.exception("SIGHUP: the reload failed, what ran before goes on")


class DaemonComponent(Protocol):
    """A component that the daemon starts and drains, such as the gateway."""

    async def start(self) -> None:
        """Start."""
        ...

    async def drain(self, timeout_s: float) -> None:
        """Accept no new work; running work may finish within `timeout_s`."""
        ...


async def run_daemon(
    agent: AgentProtocol,
    settings: HttpSettings,
    *,
    models: Sequence[str],
    counts: Counts,
    notifier: ServiceNotifier,
    plugins: PluginStatusProtocol | None = None,
    slash: CommandRouterProtocol | None = None,
    on_listen: Callable[[str], None] | None = None,
    components: Sequence[DaemonComponent] = (),
    reloads: ReloadSignal | None = None,
    webhooks: App | None = None,
    once: IdempotentRequests | None = None,
    service: HostModelsProtocol | None = None,
    pages: Sequence[HttpRoute] = (),
    handover: SocketHandover | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGUSR1; running turns may finish. Only in the main thread.

    Args:
        models: names of the agent's model, the default first.
        counts: returns numbers for the status line and `/health`, with `plugins` and `tools`.
        plugins: reports on plugins and reloads them (SIGHUP, HTTP); None serves no plugins.
        slash: runs lines that begin with `/`.
        on_listen: called with `host:port` when connections are accepted.
        reloads: runs the reloads; None makes one.
        webhooks, once, service, pages: as `server.app.build` takes them.
        handover: passes listening sockets from the previous process to the next one; its `wanted` says at the end
            whether there is a next one. None passes none.
        on_ready: called after the service manager was notified.
        components: live as long as the daemon serves: started in this order, drained in reverse.

    Raises:
        UserError: the address cannot be used.
    """
    door = plugins or NoPlugins()
    reloads = reloads or ReloadSignal(door, notifier)
    reloads.status_line = lambda: _status_line("ready", counts, 0, "off")
    handover = handover or SocketHandover({})
    with Shutdown(reloads.start).signals() as shutdown:
        async with _fed_watchdog(notifier), _started_components(components, shutdown, settings.drain_timeout_s):
            if settings.enabled:
                parts = (agent, settings, models, counts, door, notifier, shutdown, reloads, slash, on_listen, webhooks)
                await _serve(*parts, once, service, pages, handover, on_ready)
            else:
                handover.store(notifier)
                notifier.ready(reloads.status_line())
                on_ready()
                logger.info("ready, without HTTP: server.enabled or API_SERVER_ENABLED is false")
                handover.wanted = await shutdown.wait() == RESTART
                _notify_stopping(notifier, shutdown, "stopping")
    handover.wanted = shutdown.reason == RESTART
    if not handover.wanted:
        handover.close()
    logger.info("stopped: reason=%s", shutdown.reason)


async def _serve(
    agent: AgentProtocol,
    settings: HttpSettings,
    models: Sequence[str],
    counts: Counts,
    plugins: PluginStatusProtocol,
    notifier: ServiceNotifier,
    shutdown: Shutdown,
    reloads: ReloadSignal,
    slash: CommandRouterProtocol | None,
    on_listen: Callable[[str], None] | None,
    webhooks: App | None,
    once: IdempotentRequests | None,
    service: HostModelsProtocol | None,
    pages: Sequence[HttpRoute],
    handover: SocketHandover,
    on_ready: Callable[[], None],
) -> None:
    at = ""

    def line() -> str:
        return _status_line("stopping" if turns.is_closed else "ready", counts, turns.running, at)

    def changed() -> None:
        if notifier.active:
            notifier.status(line())

    def ready(address: str) -> None:
        nonlocal at
        at = address
        if on_listen is not None:
            on_listen(address)
        handover.store(notifier)
        notifier.ready(line())
        on_ready()
        logger.info("%s", line())

    def drain() -> None:
        handover.wanted = shutdown.reason == RESTART
        _notify_stopping(notifier, shutdown, f"stopping: {turns.running} turns running")

    app = build(
        agent,
        settings,
        models=models,
        counts=counts,
        plugins=plugins,
        slash=slash,
        on_change=changed,
        webhooks=webhooks,
        once=once,
        service=service,
        pages=pages,
    )
    turns = app.turns
    reloads.status_line = line
    stop, hurry = shutdown.requested, shutdown.hurry
    await serve(app, settings, on_ready=ready, stop=stop, on_drain=drain, hurry=hurry, handover=handover)


def _notify_stopping(notifier: ServiceNotifier, shutdown: Shutdown, text: str) -> None:
    """Notify the service manager; a restart in place is a reload for it."""
    if shutdown.reason == RESTART:
        notifier.reloading("restarting: running turns finish")
    else:
        notifier.stopping(text)


@contextlib.asynccontextmanager
async def _fed_watchdog(notifier: ServiceNotifier) -> AsyncIterator[None]:
    """Feed the watchdog while the block runs. A task group would wrap the errors of the block."""
    task = asyncio.create_task(feed_watchdog(notifier, notifier.beat_interval_s))
    try:
        yield
    finally:
        await end_task(task)


@contextlib.asynccontextmanager
async def _started_components(
    components: Sequence[DaemonComponent], shutdown: Shutdown, timeout_s: float
) -> AsyncIterator[None]:
    """Start the components, and drain them at the end while running turns may still finish."""
    started: list[DaemonComponent] = []

    async def drain(*, at_end: bool) -> None:
        if not at_end:
            await shutdown.wait()
        until = time.monotonic() + (0.0 if at_end else timeout_s)
        while started:
            await _drain(started.pop(), until, shutdown.hurry)

    try:
        for component in components:
            await component.start()
            started.append(component)
        draining = asyncio.create_task(drain(at_end=False))
        try:
            yield
        finally:
            if shutdown.requested.is_set():
                await draining
            draining.cancel()
    finally:
        await drain(at_end=True)


async def _drain(one: DaemonComponent, until: float, hurry: asyncio.Event) -> None:
    left_s = 0.0 if hurry.is_set() else max(0.0, until - time.monotonic())
    ending = [asyncio.create_task(one.drain(left_s)), asyncio.create_task(hurry.wait())]
    try:
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        if not ending[0].done():
            ending[0].cancel()
            await asyncio.wait(ending[:1])
            await one.drain(0.0)
        else:
            await ending[0]
    except Exception:  # the other components are drained, too
        logger.exception("%s did not end in order", type(one).__name__)
    finally:
        ending[1].cancel()


def _status_line(state: str, counts: Counts, running: int, at: str) -> str:
    numbers = counts()
    have = ", ".join(f"{numbers[name]} {name}" for name in ("plugins", "tools") if name in numbers)
    if suspended := numbers.get("plugins_suspended"):
        have += f", {suspended} suspended"
    return "; ".join(part for part in (f"{state}: {have}", f"{running} turns running", f"http {at}") if part)
