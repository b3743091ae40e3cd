"""Serve the application in the running loop until told to stop, then let running turns finish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hermes_agent.server.app import Application
from hermes_agent.server.engine import CLOSE_S, make_server
from hermes_agent.server.listen import address_of, is_loopback, listen
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.turns import TurnSlots
from hermes_agent.service.connections import Connections
from hermes_agent.service.descriptors import limit_connections
from hermes_agent.service.handover import SocketHandover

__all__ = ["serve"]

logger = logging.getLogger(__name__)

FIRST_REQUEST_S = 2.0
"""How long who has just connected, and is heard by this process, may take to ask."""


async def serve(
    app: Application,
    settings: HttpSettings,
    *,
    on_ready: Callable[[str], None],
    stop: asyncio.Event,
    on_drain: Callable[[], None] | None = None,
    hurry: asyncio.Event | None = None,
    handover: SocketHandover | None = None,
) -> None:
    """Listen, answer, and return once `stop` is set and everything has ended.

    After `stop`, new turns get 503 (with `handover.held` who connects waits for the next process instead), running
    ones have `settings.drain_timeout_s` seconds; then they are interrupted, and `settings.grace_s` seconds later
    cancelled. `/health` and `/ready` answer until the end.

    Args:
        on_ready: called with `host:port` when connections are accepted.
        on_drain: called when the drain begins.
        hurry: set, it ends the drain.
        handover: has the sockets of the process before, and gets those for the one after.

    Raises:
        UserError: it cannot listen there.
    """
    sockets = listen(settings, handover)
    listens = asyncio.Event()

    def ready() -> None:
        listens.set()
        on_ready(address_of(sockets[0]))

    connections = Connections(
        limit_connections(settings.max_connections),
        settings.max_connections_per_address,
        door="http",
        hint="server.max_connections and server.max_connections_per_address set the limits.",
    )
    server, finish, last = make_server(app, ready, connections=connections, head_timeout_s=settings.head_timeout_s)
    for one in sockets:
        logger.debug("http listens on %s", address_of(one))
        if not is_loopback(one):
            logger.warning(
                "the HTTP server is reached from other machines (%s): the key is all that protects it, without TLS",
                address_of(one),
            )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=sockets))
            await stop.wait()
            await listens.wait()  # who ends it in its first moment finds it half begun
            if on_drain is not None:
                on_drain()
            if handover is not None and handover.has_successor:
                logger.info(
                    "who connects now waits for the next process"
                )  # the sockets' copies in `handover` listen on
                await last(FIRST_REQUEST_S)
            await _drain(app.turns, settings, hurry)
            finish.set()
    finally:
        for one in sockets:
            one.close()


async def _drain(turns: TurnSlots, settings: HttpSettings, hurry: asyncio.Event | None) -> None:
    turns.close()
    if await turns.drain.wait_idle(settings.drain_timeout_s, hurry=hurry):
        return
    turns.interrupt_all()
    await turns.drain.wait_idle(settings.grace_s + CLOSE_S)
