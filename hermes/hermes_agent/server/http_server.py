"""Open the sockets that the server listens on; what goes wrong names the setting.

uvicorn as the daemon needs it: no signals of its own, asleep while idle, no connection kept that asks nothing.

Serve the application in the running loop until told to stop, then let running turns finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.server.app import Application
from hermes_agent.server.authentication import BEARS_KEY
from hermes_agent.server.http_types import HttpError
from hermes_agent.server.settings import HttpSettings
from hermes_agent.server.turn_slots import TurnSlots
from hermes_agent.service.connections import Connections, Stage, limit_connections
from hermes_agent.service.systemd import SocketHandover

if TYPE_CHECKING:
    import uvicorn

    from hermes_agent.server.http_types import App


BACKLOG = 256
"""Connections that wait to be accepted; as many are accepted at once."""


def listen(settings: HttpSettings, handover: SocketHandover | None = None) -> list[socket.socket]:
    """Return listening sockets: one for each address that `settings.host` stands for, all with one port.

    Args:
        handover: a socket that it has for an address is used; it keeps all of them for the next process.

    Raises:
        UserError: the port is taken or may not be used, or the host is not an address of this machine.
    """
    sockets: list[socket.socket] = []
    port, missing = settings.port, None
    try:
        for family, address in _addresses(settings):
            try:
                passed = handover.take(partial(_is_at, family, address, port)) if handover is not None else None
                one = passed or _open_socket(family, address, port)
            except OSError as exc:
                if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = exc  # `localhost` also stands for ::1 where IPv6 is switched off
                continue
            sockets.append(one)
            port = one.getsockname()[1]
        if not sockets and missing is not None:
            raise missing
    except OSError as exc:
        for one in sockets:
            one.close()
        raise _explain_failure(settings, exc) from exc
    if handover is not None:
        handover.keep("http", sockets)
    return sockets


def _is_at(family: socket.AddressFamily, address: str, port: int, one: socket.socket) -> bool:
    """Say whether a socket listens there (`port` 0: anywhere at the address)."""
    return one.family == family and one.getsockname()[0] == address and port in (0, one.getsockname()[1])


def address_of(one: socket.socket) -> str:
    """Return `host:port` as it stands in a URL."""
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_name(address: str) -> str:
    """Return whom an address stands for: itself, or the network that one IPv6 subscriber has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found) if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))


def is_loopback(one: socket.socket) -> bool:
    """Whether only this machine reaches the socket."""
    host: str = one.getsockname()[0]
    return host == "::1" or host.startswith("127.")


def _addresses(settings: HttpSettings) -> list[tuple[socket.AddressFamily, str]]:
    host = settings.host.strip("[]")
    try:
        # ASCII as bytes: for text Python imports the tables of names in other scripts
        found = socket.getaddrinfo(
            host.encode("ascii") if host.isascii() else host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as exc:
        why = exc.strerror if isinstance(exc, socket.gaierror) else "not a name"
        raise UserError(f"cannot listen on {settings.host!r}: {why}", hint=_host_hint(settings)) from exc
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _open_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as stack:
        # The protocol is named: asyncio sets TCP_NODELAY only then, and without it each answer waits 40 ms for an ACK.
        one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        one.bind((address, port))
        one.listen(BACKLOG)
        one.setblocking(False)
        stack.pop_all()
        return one


def _explain_failure(settings: HttpSettings, exc: OSError) -> UserError:
    at = f"{settings.host}:{settings.port}"
    if exc.errno == errno.EADDRINUSE:
        return UserError(
            f"port {settings.port} on {settings.host} is in use",
            hint=f"Stop what uses it, or choose another one with {settings.port_from}"
            + (" or the variable API_SERVER_PORT." if settings.port_from == "server.port" else "."),
        )
    if exc.errno == errno.EACCES:
        return UserError(
            f"may not listen on {at}: {exc.strerror}", hint=f"Choose a port above 1023 with {settings.port_from}."
        )
    return UserError(f"cannot listen on {at}: {exc.strerror}", hint=_host_hint(settings))


def _host_hint(settings: HttpSettings) -> str:
    return "server.host (or the variable API_SERVER_HOST) must be an address of this machine, as 127.0.0.1 or 0.0.0.0."


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
