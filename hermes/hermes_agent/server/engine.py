"""uvicorn as the daemon needs it: no signals of its own, asleep while idle, no connection kept that asks nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow to import
    import uvicorn

    from hermes_agent.server.asgi import App

__all__ = ["CLOSE_S", "engine"]

CLOSE_S = 2
"""How long connections may take to close at the end, seconds."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open; most clients give theirs up earlier."""


def engine(app: App, on_ready: Callable[[], None], *, head_timeout_s: float) -> tuple[uvicorn.Server, asyncio.Event]:
    """Return the server, and the event that ends its `serve`.

    Args:
        on_ready: called when connections are accepted.
        head_timeout_s: how long the head of a request may take; the connection is closed then.
    """
    import uvicorn  # slow to import: only a process that serves pays for it
    from uvicorn.protocols.http.h11_impl import H11Protocol

    finish = asyncio.Event()

    class Server(uvicorn.Server):
        """The daemon has the signals."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            on_ready()
            await finish.wait()

    class Protocol(H11Protocol):
        """A connection; uvicorn itself would wait for ever for the rest of a head."""

        patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.calm()
            super().connection_lost(exc)

        def watch(self) -> None:
            """Begin to count while part of a head is all there is."""
            if self.cycle is not None and not self.cycle.response_complete:
                self.calm()
            elif self.patience is None and not self.transport.is_closing():
                self.patience = self.loop.call_later(head_timeout_s, self.give_up)

        def calm(self) -> None:
            if self.patience is not None:
                self.patience.cancel()
                self.patience = None

        def give_up(self) -> None:
            self.patience = None
            self.transport.close()

    config = uvicorn.Config(
        app,
        loop="none",
        http=Protocol,
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
