"""uvicorn as the daemon needs it: no signals of its own, asleep while idle, no connection kept that asks nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # slow to import
    import uvicorn

    from hermes_agent.server.asgi import App

__all__ = ["CLOSE_S", "engine"]

CLOSE_S = 2
"""How long connections may take to close at the end, seconds."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open; most clients give theirs up earlier."""


class _FirstQuestions:
    """The connections that were accepted and have not asked anything yet."""

    def __init__(self) -> None:
        self._silent: set[object] = set()
        self._changed = asyncio.Event()

    def waits_for(self, connection: object) -> None:
        """A connection was accepted."""
        self._silent.add(connection)

    def came(self, connection: object, *, whole: bool = True) -> None:
        """Something came, `whole`: a question; or the connection is gone."""
        if whole:
            self._silent.discard(connection)
            self._changed.set()

    async def last(self, servers: Iterable[asyncio.Server], timeout_s: float) -> None:
        """Accept nobody any more, and wait until all who were have asked, or are gone."""
        loop = asyncio.get_running_loop()
        for one in servers:
            for listening in one.sockets:
                loop.remove_reader(listening.fileno())
        for _ in range(3):  # asyncio takes so many rounds from accept() to `connection_made`, and drops who is between
            await asyncio.sleep(0)
        for one in servers:
            one.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._silent:
                    self._changed.clear()
                    await self._changed.wait()


class _Joined:
    """A transport that sends what is written in one round of the loop at once: the head of an answer with its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it with what else is written now."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self._send)
        self._held.append(data)

    def close(self) -> None:
        """Close, when everything is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))


def engine(
    app: App, on_ready: Callable[[], None], *, head_timeout_s: float
) -> tuple[uvicorn.Server, asyncio.Event, Callable[[float], Awaitable[None]]]:
    """Return the server, the event that ends its `serve`, and what ends its listening.

    The latter, `last(timeout_s)`, returns when every connection that was accepted has asked something: one that is
    taken from the queue of the listening socket and then closed would be lost to the next process, too.

    Args:
        on_ready: called when connections are accepted.
        head_timeout_s: how long the head of a request may take; the connection is closed then.
    """
    import uvicorn  # slow to import: only a process that serves pays for it
    from uvicorn.protocols.http.h11_impl import H11Protocol

    finish = asyncio.Event()
    first = _FirstQuestions()

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
            super().connection_made(_Joined(transport))  # type: ignore[arg-type]
            first.waits_for(self)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            first.came(self, whole=self.cycle is not None)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self.calm()
            first.came(self)
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
    server = Server(config)
    return server, finish, lambda timeout_s: first.last(server.servers, timeout_s)
