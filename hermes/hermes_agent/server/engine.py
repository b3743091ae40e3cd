"""uvicorn as the daemon needs it: no signals of its own, asleep while idle, no connection kept that asks nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hermes_agent.server.guard import BEARS_KEY
from hermes_agent.server.listen import BACKLOG, peer_name
from hermes_agent.server.reply import HttpError
from hermes_agent.service.connections import Connections, Stage

if TYPE_CHECKING:  # slow to import
    import uvicorn

    from hermes_agent.server.asgi import App

__all__ = ["CLOSE_S", "make_server"]

CLOSE_S = 2
"""How long connections may take to close at the end, seconds."""
KEEP_ALIVE_S = 75
"""How long an idle connection stays open; most clients give theirs up earlier."""
_OVERLOADED_BODY = (
    HttpError(503, "too many connections; send the request again in a moment", code="overloaded").reply().body
)
OVERLOADED_REPLY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_OVERLOADED_BODY), _OVERLOADED_BODY)
)
"""What who gets no place is told."""


class _SilentConnections:
    """The connections that were accepted and have not asked anything yet."""

    def __init__(self) -> None:
        self._silent: set[object] = set()
        self._changed = asyncio.Event()

    def add(self, connection: object) -> None:
        """A connection was accepted."""
        self._silent.add(connection)

    def mark_heard(self, connection: object, *, whole: bool = True) -> None:
        """Something came, `whole`: a question; or the connection is gone."""
        if whole:
            self._silent.discard(connection)
            self._changed.set()

    async def stop_accepting(self, servers: Iterable[asyncio.Server], timeout_s: float) -> None:
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


class _BatchingTransport:
    """A transport that sends what is written in one round of the loop at once: the head of an answer with its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it with what else is written now."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._send)
        self._pending.append(data)

    def close(self) -> None:
        """Close, when everything is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._pending = self._pending, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))


def make_server(
    app: App, on_ready: Callable[[], None], *, connections: Connections, head_timeout_s: float
) -> tuple[uvicorn.Server, asyncio.Event, Callable[[float], Awaitable[None]]]:
    """Return the server, the event that ends its `serve`, and what ends its listening.

    The latter, `last(timeout_s)`, returns when every connection that was accepted has asked something: one that is
    taken from the queue of the listening socket and then closed would be lost to the next process, too.

    Args:
        on_ready: called when connections are accepted.
        connections: says which may stay open.
        head_timeout_s: how long the head of a request may take; the connection is closed then.
    """
    import uvicorn  # slow to import: only a process that serves pays for it

    finish = asyncio.Event()
    first = _SilentConnections()

    class Server(uvicorn.Server):
        """The daemon has the signals."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            on_ready()
            await finish.wait()

    config = uvicorn.Config(
        app,
        loop="none",
        http=_protocol(first, connections, head_timeout_s),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = Server(config)
    return server, finish, lambda timeout_s: first.stop_accepting(server.servers, timeout_s)


def _protocol(first: _SilentConnections, connections: Connections, head_timeout_s: float) -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from hermes_agent.server.strict_http import StrictConnection

    class Protocol(H11Protocol):
        """A connection; uvicorn itself would wait for ever for the rest of a head, and take any number of them."""

        refused = False
        peer = ""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.conn = StrictConnection(h11.SERVER)
            self.patience = _HeadTimer(self.loop, head_timeout_s, lambda: _close_transport(self.transport))

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.peer = peer_name(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not connections.admit(self):
                self.refused = True
                self.transport = transport
                _close_transport(transport, OVERLOADED_REPLY)
                return
            super().connection_made(_BatchingTransport(transport))  # type: ignore[arg-type]
            first.add(self)
            self.patience.start()

        def data_received(self, data: bytes) -> None:
            if self.refused:
                return
            super().data_received(data)
            first.mark_heard(self, whole=self.cycle is not None)
            if self.cycle is not None and not self.cycle.response_complete:
                self.patience.stop()
            elif not self.transport.is_closing():
                self.patience.start()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
            self.patience.stop()
            first.mark_heard(self)
            super().connection_lost(exc)

        def stage(self) -> Stage:
            return _stage(self.cycle, self.scope)

        def give_way(self) -> None:
            self.refused = True
            told = self.cycle is not None and (self.cycle.response_started and not self.cycle.response_complete)
            asks = bool(self.conn.trailing_data[0]) or self.stage() == "body"
            _close_transport(self.transport, OVERLOADED_REPLY if asks and not told else b"")

    return Protocol


class _HeadTimer:
    """How long a connection may take for a head, from when it was made or from the first bytes of the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float, give_up: Callable[[], None]) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._on_timeout = give_up
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to count, unless it is counted."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)

    def stop(self) -> None:
        """Count no more: a whole head is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._on_timeout()


def _stage(cycle: Any, scope: Any) -> Stage:
    """Say what a connection waits for, of uvicorn's last request there and its scope."""
    has_key = bool(scope and scope.get(BEARS_KEY))
    if cycle is not None and not cycle.response_complete:
        return "busy" if has_key or not cycle.more_body else "body"
    if has_key:
        return "kept"
    return "head" if cycle is None else "answered"


def _close_transport(transport: asyncio.Transport, last: bytes = b"") -> None:
    """Say a last word, and close without waiting for a peer that does not read it."""
    if last:
        transport.write(last)
    transport.close()
    if transport.get_write_buffer_size():
        transport.abort()
