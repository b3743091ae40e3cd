"""Serve the application in the running loop until told to stop, then let running turns finish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hermes_agent.server.app import turns_of
from hermes_agent.server.listen import address_of, is_loopback, listen
from hermes_agent.server.settings import ServerSettings
from hermes_agent.server.turns import Turns

if TYPE_CHECKING:  # slow to import
    from starlette.applications import Starlette

__all__ = ["serve"]

logger = logging.getLogger(__name__)

CLOSE_S = 2
"""How long connections may take to close at the end, seconds."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open; most clients give theirs up earlier."""


async def serve(
    app: Starlette,
    settings: ServerSettings,
    *,
    on_ready: Callable[[str], None],
    stop: asyncio.Event,
    on_drain: Callable[[], None] | None = None,
    hurry: asyncio.Event | None = None,
) -> None:
    """Listen, answer, and return once `stop` is set and everything has ended.

    After `stop`, new turns get 503, running ones have `settings.drain_timeout_s` seconds; then they are interrupted,
    and `settings.grace_s` seconds later cancelled. `/health` and `/ready` answer until the end.

    Args:
        on_ready: called with `host:port` when connections are accepted.
        on_drain: called when the drain begins.
        hurry: set, it ends the drain.

    Raises:
        UserError: it cannot listen there.
    """
    sockets = listen(settings)
    server, finish = _server(app, lambda: on_ready(address_of(sockets[0])))
    for one in sockets:
        logger.info("http listens on %s", address_of(one))
        if not is_loopback(one):
            logger.warning(
                "the HTTP server is reached from other machines (%s): the key is all that protects it, without TLS",
                address_of(one),
            )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=sockets))
            await stop.wait()
            if on_drain is not None:
                on_drain()
            await _drain(turns_of(app), settings, hurry)
            finish.set()
    finally:
        for one in sockets:
            one.close()


async def _drain(turns: Turns, settings: ServerSettings, hurry: asyncio.Event | None) -> None:
    turns.close()
    if await turns.drain.wait_idle(settings.drain_timeout_s, hurry=hurry):
        return
    turns.interrupt_all()
    await turns.drain.wait_idle(settings.grace_s + CLOSE_S)


def _server(app: Starlette, on_ready: Callable[[], None]) -> tuple[Any, asyncio.Event]:
    """Return uvicorn's server, and the event that ends it."""
    import uvicorn  # slow to import: only a process that serves pays for it

    finish = asyncio.Event()

    class Server(uvicorn.Server):
        """Takes no signals (the daemon has them) and sleeps while there is nothing to do."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            on_ready()
            await finish.wait()

    config = uvicorn.Config(
        app,
        loop="none",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return Server(config), finish
