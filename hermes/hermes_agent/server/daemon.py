"""The daemon: serve until a signal ends it, and keep the service manager informed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

from hermes_agent.server.app import build, turns_of
from hermes_agent.server.commands import SlashDoor
from hermes_agent.server.doors import AgentDoor, NoPlugins, PluginDoor
from hermes_agent.server.reloading import Reloads
from hermes_agent.server.run import serve
from hermes_agent.server.settings import ServerSettings
from hermes_agent.server.status import Counts
from hermes_agent.service.notify import Notifier
from hermes_agent.service.shutdown import Shutdown
from hermes_agent.service.watchdog import beat

__all__ = ["run_daemon"]

logger = logging.getLogger(__name__)


async def run_daemon(
    agent: AgentDoor,
    settings: ServerSettings,
    *,
    models: Sequence[str],
    counts: Counts,
    notifier: Notifier,
    plugins: PluginDoor | None = None,
    slash: SlashDoor | None = None,
    on_listen: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; running turns may finish. Only in the main thread.

    Args:
        models: names that the agent's model answers to, the default first.
        counts: numbers for the status line and `/health`; `plugins` and `tools` among them.
        plugins: what is asked about plugins, and reloads them (SIGHUP, HTTP); None means that there are none.
        slash: what lines that begin with `/` mean in a session.
        on_listen: called with `host:port` when connections are accepted.

    Raises:
        UserError: it cannot listen where it should.
    """
    door = plugins or NoPlugins()
    reloads = Reloads(door, notifier, lambda: _line("ready", counts, 0, "off"))
    with Shutdown(reloads.begin).signals() as shutdown:
        async with _beating(notifier):
            if settings.enabled:
                await _serve(agent, settings, models, counts, door, notifier, shutdown, reloads, slash, on_listen)
            else:
                notifier.ready(reloads.line())
                logger.info("ready, without HTTP: server.enabled or API_SERVER_ENABLED is false")
                await shutdown.wait()
                notifier.stopping("stopping")
    logger.info("stopped: reason=%s", shutdown.reason)


async def _serve(
    agent: AgentDoor,
    settings: ServerSettings,
    models: Sequence[str],
    counts: Counts,
    plugins: PluginDoor,
    notifier: Notifier,
    shutdown: Shutdown,
    reloads: Reloads,
    slash: SlashDoor | None,
    on_listen: Callable[[str], None] | None,
) -> None:
    at = ""

    def line() -> str:
        return _line("stopping" if turns.closed else "ready", counts, turns.running, at)

    def changed() -> None:
        if notifier.active:
            notifier.status(line())

    def ready(address: str) -> None:
        nonlocal at
        at = address
        if on_listen is not None:
            on_listen(address)
        notifier.ready(line())
        logger.info("%s", line())

    def drain() -> None:
        notifier.stopping(f"stopping: {turns.running} turns running")

    app = build(agent, settings, models=models, counts=counts, plugins=plugins, slash=slash, on_change=changed)
    turns = turns_of(app)
    reloads.line = line
    await serve(app, settings, on_ready=ready, stop=shutdown.requested, on_drain=drain, hurry=shutdown.hurry)


@contextlib.asynccontextmanager
async def _beating(notifier: Notifier) -> AsyncIterator[None]:
    """Feed the watchdog while the block runs. No task group: it would wrap the errors of the block."""
    task = asyncio.create_task(beat(notifier, notifier.beat_interval_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _line(state: str, counts: Counts, running: int, at: str) -> str:
    numbers = counts()
    have = ", ".join(f"{numbers[name]} {name}" for name in ("plugins", "tools") if name in numbers)
    if suspended := numbers.get("plugins_suspended"):
        have += f", {suspended} suspended"
    return "; ".join(part for part in (f"{state}: {have}", f"{running} turns running", f"http {at}") if part)
