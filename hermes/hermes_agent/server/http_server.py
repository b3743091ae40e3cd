"""The server process part: sockets, connections, uvicorn, and the end of serving.

uvicorn runs without signal handlers and sleeps while idle. Connections that do not send a request are closed. At the
end, running turns may finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import ipaddress
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.server.app import Application
from hermes_agent.server.authentication import BEARS_KEY, is_ipv4
from hermes_agent.server.http_types import HttpError
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.turn_slots import TurnSlots
from hermes_agent.service.connections import Connections, Stage, limit_connections
from hermes_agent.service.systemd import SocketHandover
from hermes_agent.system.deferred_modules import defer

if TYPE_CHECKING:
    from uvicorn.server import Server as UvicornServer

    from hermes_agent.server.http_types import App


BACKLOG = 256
"""Length of the accept queue, and number of connections accepted in one round."""


def listen(settings: HttpSettings, handover: SocketHandover | None = None) -> list[socket.socket]:
    """Return listening sockets: one for each address of `settings.host`, all with the same port.

    Args:
        handover: provides inherited sockets, and keeps all sockets for the next process.

    Raises:
        UserError: the port is in use or not allowed, or the host is no address of this machine.
    """
    sockets: list[socket.socket] = []
    port, missing = settings.port, None
    try:
        for family, address in _addresses(settings):
            try:
                passed = handover.take(partial(_is_at, family, address, port)) if handover is not None else None
                listening = passed or _open_socket(family, address, port)
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = exc  # `localhost` includes ::1 even if IPv6 is disabled
                continue
            sockets.append(listening)
            port = listening.getsockname()[1]
        if not sockets and missing is not None:
            raise missing
    except OSError as exc:
        for opened in sockets:
            opened.close()
        raise _explain_failure(settings, exc) from exc
    if handover is not None:
        handover.keep("http", sockets)
    return sockets


def _is_at(family: socket.AddressFamily, address: str, port: int, listening: socket.socket) -> bool:
    """Return whether a socket listens at an address (`port` 0: any port)."""
    return (
        listening.family == family and listening.getsockname()[0] == address and port in (0, listening.getsockname()[1])
    )


def address_of(listening: socket.socket) -> str:
    """Return `host:port` for a URL."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_name(address: str) -> str:
    """Return the peer of an address: the address, or the network of one IPv6 subscriber."""
    if is_ipv4(address):
        return address
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found) if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))


def is_loopback(listening: socket.socket) -> bool:
    """Return whether only this machine can reach the socket."""
    host: str = listening.getsockname()[0]
    return host == "::1" or host.startswith("127.")


def _addresses(settings: HttpSettings) -> list[tuple[socket.AddressFamily, str]]:
    host = settings.host.strip("[]")
    try:
        # ASCII as bytes, because for text Python imports the tables of internationalized names
        found = socket.getaddrinfo(
            host.encode("ascii") if host.isascii() else host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as exc:
        reason = exc.strerror if isinstance(exc, socket.gaierror) else "not a name"
        raise UserError(f"cannot listen on {settings.host!r}: {reason}", hint=_host_hint(settings)) from exc
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _open_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        # the protocol is given so that asyncio sets TCP_NODELAY, without which each answer waits 40 ms for an ACK
        opened = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        opened.bind((address, port))
        opened.listen(BACKLOG)
        opened.setblocking(False)
        stack.pop_all()
        return opened


def _explain_failure(settings: HttpSettings, exc: OSError) -> UserError:
    at = f"{settings.host}:{settings.port}"
    if exc.errno == errno.EADDRINUSE:
        return UserError(
            f"port {settings.port} on {settings.host} is in use",
            hint=f"Stop the process that uses it, or choose another port with {settings.port_from}"
            + (" or the variable API_SERVER_PORT." if settings.port_from == "server.port" else "."),
        )
    if exc.errno == errno.EACCES:
        return UserError(
            f"may not listen on {at}: {exc.strerror}", hint=f"Choose a port above 1023 with {settings.port_from}."
        )
    return UserError(f"cannot listen on {at}: {exc.strerror}", hint=_host_hint(settings))


def _host_hint(settings: HttpSettings) -> str:
    return (
        "server.host (or the variable API_SERVER_HOST) must be an address of this machine, e.g. 127.0.0.1 or 0.0.0.0."
    )


CLOSE_S = 2
"""Time limit for closing connections at the end, in seconds."""
KEEP_ALIVE_S = 75
"""Seconds for which an idle connection stays open; most clients close theirs earlier."""
_OVERLOADED_BODY = (
    HttpError(503, "too many connections; send the request again in a moment", code="overloaded").reply().body
)
OVERLOADED_REPLY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_OVERLOADED_BODY), _OVERLOADED_BODY)
)
"""Reply to a connection above the limit."""


class _SilentConnections:
    """Accepted connections that have not sent a request yet."""

    def __init__(self) -> None:
        self._silent: set[object] = set()
        self._changed = asyncio.Event()

    def add(self, connection: object) -> None:
        """Add an accepted connection."""
        self._silent.add(connection)

    def mark_heard(self, connection: object, *, whole: bool = True) -> None:
        """Record received data, `whole`: a complete request; or the end of the connection."""
        if whole:
            self._silent.discard(connection)
            self._changed.set()

    async def stop_accepting(self, servers: Iterable[asyncio.Server], timeout_s: float) -> None:
        """Stop accepting connections, and wait until all accepted ones have sent a request or are closed."""
        loop = asyncio.get_running_loop()
        for server in servers:
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
        for _ in range(
            3
        ):  # asyncio needs three rounds from accept() to `connection_made`, and drops connections in between
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._silent:
                    self._changed.clear()
                    await self._changed.wait()


class _BatchingTransport:
    """Transport that sends the data of a round of the loop together: an answer's head with its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data together with other data of this round."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._send)
        self._pending.append(data)

    def close(self) -> None:
        """Send the pending data and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        pending, self._pending = self._pending, []
        if pending and not self._transport.is_closing():
            self._transport.write(b"".join(pending))


def make_server(
    app: App, on_ready: Callable[[], None], *, connections: Connections, head_timeout_s: float
) -> tuple[UvicornServer, asyncio.Event, Callable[[float], Awaitable[None]]]:
    """Return the server, the event that ends its `serve`, and the function that ends listening.

    That function, called with a time limit, returns when all accepted connections have sent a request. An accepted
    connection that is closed before would be lost for the next process, too.

    Args:
        on_ready: called when connections are accepted.
        connections: decides which connections stay open.
        head_timeout_s: time limit for the head of a request, in seconds; after it, the connection is closed.
    """
    _skip_unused()
    from uvicorn.config import Config  # slow import, needed only for serving
    from uvicorn.server import Server as UvicornServer

    finish = asyncio.Event()
    first = _SilentConnections()

    class Server(UvicornServer):
        """Server without signal handlers, which the daemon has."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            on_ready()
            await finish.wait()

    config = Config(
        app,
        loop="none",
        http=_protocol(first, connections, head_timeout_s),
        ws="none",
        interface="asgi3",
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


ANNOTATIONS = """
ASGIApplication ASGI2Application ASGI3Application ASGIReceiveCallable ASGIReceiveEvent ASGISendCallable ASGISendEvent
Environ ExcInfo HTTPRequestEvent HTTPResponseBodyEvent HTTPResponseStartEvent HTTPScope Scope StartResponse WSGIApp
WWWScope
"""
"""What uvicorn takes for annotations: 29 dictionaries with types, of which each field is compiled."""


def _skip_unused() -> None:
    """Leave out what uvicorn imports for its command line and its log: 2 MiB of a daemon without them."""
    homes = {"Config": "uvicorn.config", "Server": "uvicorn.server"}  # what its own parts take from the package
    defer("uvicorn", {name: partial(_name_in, home, name) for name, home in homes.items()})  # click, multiprocessing
    defer("logging.config")  # pickle, socketserver
    defer("platform", {"system": lambda: lambda: os.uname().sysname})
    defer("uvicorn._types", dict.fromkeys(ANNOTATIONS.split(), lambda: object))
    defer("configparser", lent={("uvicorn.config", "RawConfigParser"): object})  # for an annotation
    defer(
        "email.utils", lent={("uvicorn.server", "formatdate"): _format_date}
    )  # for a date that the daemon writes itself


def _format_date(*given: Any, **named: Any) -> str:
    from email.utils import formatdate  # as above

    return formatdate(*given, **named)


def _name_in(module: str, name: str) -> object:
    return getattr(importlib.import_module(module), name)


def _protocol(first: _SilentConnections, connections: Connections, head_timeout_s: float) -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from hermes_agent.server.strict_http import StrictConnection

    class Protocol(H11Protocol):
        """A connection with limits: uvicorn limits neither the time for a head nor their number."""

        refused = False
        peer = ""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.conn = StrictConnection(h11.SERVER)
            self.head_timer = _HeadTimer(self.loop, head_timeout_s, lambda: _close_transport(self.transport))

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.peer = peer_name(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not connections.admit(self):
                self.refused = True
                self.transport = transport
                _close_transport(transport, OVERLOADED_REPLY)
                return
            super().connection_made(_BatchingTransport(transport))  # type: ignore[arg-type]
            first.add(self)
            self.head_timer.start()

        def data_received(self, data: bytes) -> None:
            if self.refused:
                return
            super().data_received(data)
            first.mark_heard(self, whole=self.cycle is not None)
            if self.cycle is not None and not self.cycle.response_complete:
                self.head_timer.stop()
            elif not self.transport.is_closing():
                self.head_timer.start()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
            self.head_timer.stop()
            first.mark_heard(self)
            super().connection_lost(exc)

        def stage(self) -> Stage:
            return _stage(self.cycle, self.scope)

        def give_way(self) -> None:
            self.refused = True
            has_answer = self.cycle is not None and (self.cycle.response_started and not self.cycle.response_complete)
            has_request = bool(self.conn.trailing_data[0]) or self.stage() == "body"
            _close_transport(self.transport, OVERLOADED_REPLY if has_request and not has_answer else b"")

    return Protocol


class _HeadTimer:
    """Time limit for a head, from the start of the connection or the first bytes of the next head."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._on_timeout = on_timeout
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer unless it runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)

    def stop(self) -> None:
        """Stop the timer: the head is complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self._on_timeout()


def _stage(cycle: Any, scope: Any) -> Stage:
    """Return what a connection waits for, by uvicorn's last request cycle and its scope."""
    has_key = bool(scope and scope.get(BEARS_KEY))
    if cycle is not None and not cycle.response_complete:
        return "busy" if has_key or not cycle.more_body else "body"
    if has_key:
        return "kept"
    return "head" if cycle is None else "answered"


def _close_transport(transport: asyncio.Transport, last: bytes = b"") -> None:
    """Send the last bytes, and close without waiting for a peer that does not read."""
    if last:
        transport.write(last)
    transport.close()
    if transport.get_write_buffer_size():
        transport.abort()


logger = logging.getLogger(__name__)

FIRST_REQUEST_S = 2.0
"""Time limit for the first request of a connection that this process accepted."""


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
    """Listen and answer, and return when `stop` is set and all turns have ended.

    After `stop`, new turns get 503; with `handover.held`, new connections wait for the next process instead. Running
    turns have `settings.drain_timeout_s` seconds, are then interrupted, and cancelled `settings.grace_s` seconds later.
    `/health` and `/ready` answer until the end.

    Args:
        on_ready: called with `host:port` when connections are accepted.
        on_drain: called when the drain starts.
        hurry: an event that ends the drain.
        handover: provides the sockets of the previous process and keeps them for the next.

    Raises:
        UserError: listening is not possible.
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
    for opened in sockets:
        logger.debug("http server: listening on %s", address_of(opened))
        if not is_loopback(opened):
            logger.warning(
                "http server: reachable from other machines (%s), protected by the key only, without TLS",
                address_of(opened),
            )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=sockets))
            await stop.wait()
            await listens.wait()  # `stop` may be set before the server has started
            if on_drain is not None:
                on_drain()
            if handover is not None and handover.has_successor:
                logger.info(
                    "http server: new connections wait for the next process"
                )  # the copies of the sockets in `handover` keep listening
                await last(FIRST_REQUEST_S)
            await _drain(app.turns, settings, hurry)
            finish.set()
    finally:
        for opened in sockets:
            opened.close()


async def _drain(turns: TurnSlots, settings: HttpSettings, hurry: asyncio.Event | None) -> None:
    turns.close()
    if await turns.drain.wait_idle(settings.drain_timeout_s, hurry=hurry):
        return
    turns.interrupt_all()
    await turns.drain.wait_idle(settings.grace_s + CLOSE_S)
