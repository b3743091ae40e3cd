"""The network broker: takes the connections of commands, decides about each, and forwards the data.

A program reaches the broker as an HTTP proxy (`CONNECT host:port`, or a request with an absolute address), or without
a proxy through DNS: `NameTable` answers each name with an address that stands for it, so that the address of a
connection identifies the name. DNS queries are not forwarded: what a command writes into a name goes nowhere.

`RateLimit` keeps commands from loading the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.network import InvalidHost, format_entry, is_address, log_connection, parse_host
from hermes_agent.system.safe_http import AddressRejected, resolve_host
from hermes_agent.workspace.egress.destinations import (
    ConnectionPolicy,
    Ends,
    HostUnreachable,
    NetworkCall,
    connect,
    relay,
)
from hermes_agent.workspace.egress.namespace_process import FAKE, PORTS

logger = logging.getLogger(__name__)


class RateLimit:
    """A limit of events per second; further events wait.

    Args:
        most: most events per second.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._since, self._count = 0.0, 0

    async def step(self) -> None:
        """Count an event; beyond the limit, wait for the next second."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= 1:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            await asyncio.sleep(self._since + 1 - now)


MAX_HEAD = 16_384
"""Most bytes of a request head."""

_REQUEST = re.compile(r"([A-Z]{1,20}) ([!-~]{1,8192}) HTTP/1\.[01]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#@\[\]]+)(?::([0-9]{1,5}))?")
_OWN = frozenset({"connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"})
"""Header fields for the proxy, or that it writes itself."""


class BadHead(ValueError):
    """A request head is invalid; the message has the reason."""


class Head(LazyNamedTuple):
    """The destination of a request to the proxy, and the data to send there first."""

    host: str
    port: int
    first: bytes
    """The request for the server; empty after `CONNECT`."""


def parse_head(data: bytes) -> Head:
    """Parse a request head; `data` ends with the empty line.

    Raises:
        BadHead: `data` is not a request to a proxy.
    """
    try:
        first, *rest_lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        request = _REQUEST.fullmatch(first)
        fields = [_FIELD.fullmatch(line) for line in rest_lines]
        if request is None or not all(fields):
            raise BadHead("this is not an HTTP/1.1 request")
        method, target = request[1], request[2]
        if method == "CONNECT":
            return Head(*_authority(target, 0), b"")
        scheme, slashes, rest = target.partition("://")
        if not slashes or scheme.lower() != "http":
            raise BadHead("this is a proxy: ask it for `http://host/…`, or `CONNECT host:port`")
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        path = rest[len(authority) :]
        host, port = _authority(authority, 80)
    except InvalidHost as exc:
        raise BadHead(str(exc)) from None
    path = path if path.startswith("/") else f"/{path}"
    forwarded = [f"{field[1]}: {field[2]}" for field in fields if field is not None and field[1].lower() not in _OWN]
    # one request for each connection: the next one may be for another host
    lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *forwarded, "Connection: close", "", ""]
    return Head(host, port, "\r\n".join(lines).encode("latin-1"))


def _authority(text: str, port: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise BadHead(f"{text[:100]!r} is not `host:port`; it must not contain a user")
    port = int(found[2] or port)
    if not 0 < port < 65536:
        raise BadHead(f"{text[:100]!r} has no port from 1 to 65535")
    return parse_host(found[1]), port


def proxy_answer(status: str, text: str) -> bytes:
    """Return an HTTP answer of the proxy itself."""
    body = f"hermes-agent: {text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


MOST_NAMES = 4096
"""Most names with an address in one network."""
TTL_S = 60

_HEAD = struct.Struct("!6H")
_A, _IN, _ANSWER, _NO_SUCH_NAME, _NOT_UNDERSTOOD = 1, 1, 0x8180, 3, 1
_FIRST = int(ipaddress.IPv4Address(FAKE[0])) + 1


class NameTable:
    """The names of one network, each with an address that stands for it.

    Args:
        refusal: returns why a name gets no address, or "".
    """

    def __init__(self, refusal: Callable[[str], str]) -> None:
        self._refusal = refusal
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def host(self, address: str) -> str | None:
        """Return the name of an address, or None."""
        number = int(ipaddress.IPv4Address(address)) - _FIRST
        return self._names[number] if 0 <= number < len(self._names) else None

    def address(self, name: str) -> str | None:
        """Return the address of a name, or None when there are too many names."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) >= MOST_NAMES:
                return None
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return str(ipaddress.IPv4Address(_FIRST + number))

    def answer(self, question: bytes) -> bytes | None:
        """Return the DNS answer to a datagram, or None when it is not a query."""
        try:
            number, flags, count, *_ = _HEAD.unpack_from(question)
            if flags & 0x8000:
                return None
            if count != 1 or flags & 0x7800:
                return _HEAD.pack(number, _ANSWER | _NOT_UNDERSTOOD, 0, 0, 0, 0)
            name, end = _read_name(question, _HEAD.size)
            kind, group = struct.unpack_from("!2H", question, end)
        except (struct.error, IndexError, UnicodeDecodeError):
            return None
        asked = question[_HEAD.size : end + 4]
        try:
            host = parse_host(name)
        except InvalidHost:
            host = ""
        if not host or self._refusal(host) or (address := self.address(host)) is None:
            return _HEAD.pack(number, _ANSWER | _NO_SUCH_NAME, 1, 0, 0, 0) + asked
        if kind != _A or group != _IN:  # the name exists, without a record of this type
            return _HEAD.pack(number, _ANSWER, 1, 0, 0, 0) + asked
        record = struct.pack("!3HIH4s", 0xC00C, _A, _IN, TTL_S, 4, ipaddress.IPv4Address(address).packed)
        return _HEAD.pack(number, _ANSWER, 1, 1, 0, 0) + asked + record


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """Return a name without its last dot, and the offset of its end."""
    labels = []
    while size := data[at]:
        if size > 63:
            raise IndexError("a pointer, or not a label")
        labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    return ".".join(labels), at + 1


CONNECT_S = 20.0


class BrokerLimits(LazyNamedTuple):
    """What the commands of a network may use of a broker."""

    connections: int = 64
    """Most open connections of one network; further ones are closed."""
    all_connections: int = 512
    """Most open connections of all networks."""
    head_s: float = 10.0
    """Seconds in which a program must send the head of its request."""
    further_ports: int = 32
    """Most pairs of host and port besides 22, 80 and 443 that are reached without a proxy, in one network."""
    connections_per_s: int = 50
    """Most connections per second in one network; further ones wait."""
    queries_per_s: int = 500
    """Most DNS queries per second in one network; further ones wait."""


LIMITS = BrokerLimits()
"""The limits of each broker where the caller names none."""
PROXY_URL = f"http://{FAKE[0]}:80"
PROXY = {
    **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), PROXY_URL),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""Environment variables that name the broker as proxy."""
RESOLVER = str(Path(__file__).with_name("resolv.txt"))
"""The file that commands see as `/etc/resolv.conf`."""


class Broker:
    """The broker of one network, or of one unit. It runs on the loop of the brokers.

    Args:
        listening: the sockets to which commands connect, at addresses of names or at that of the proxy.
        names: the socket for DNS queries; without it each connection is one to the proxy.
        policy: decides about destinations.
        work: returns the tool call for which commands run, and whether it is still running.
        listen: opens a further listening socket, called in a worker; None if none can be opened.
        limits: what commands may use.
    """

    def __init__(
        self,
        listening: Sequence[socket.socket],
        names: socket.socket | None,
        policy: ConnectionPolicy,
        work: Callable[[], tuple[NetworkCall | None, bool]],
        listen: Callable[[str, int], socket.socket] | None = None,
        *,
        limits: BrokerLimits = LIMITS,
    ) -> None:
        self._listen, self._limits = listen, limits
        self._unanswered: list[str] = []
        """Names of queries that are not answered yet."""
        self._further: dict[tuple[str, int], socket.socket | None] = {}
        """Sockets at further ports of the table, by host and port; None if one could not be opened."""
        self._listening, self._dns = listening, names
        self._policy, self._work = policy, work
        self._names = NameTable(self._name_refusal)
        self._tasks: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[None]] = set()
        self._pace = RateLimit(limits.connections_per_s)

    async def open(self) -> None:
        """Start to accept connections and DNS queries."""
        self._tasks = [
            asyncio.create_task(self._accept(listening, listening.getsockname()[1])) for listening in self._listening
        ]
        if self._dns is not None:
            self._tasks.append(asyncio.create_task(self._answer_queries(self._dns)))

    async def close(self) -> None:
        """Close all connections and further sockets."""
        tasks = [*self._tasks, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._further.values():
            if listening is not None:
                listening.close()

    async def _accept(self, listening: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as exc:  # such as no free descriptor
                logger.warning("network: connection not accepted: %s", exc)
                await asyncio.sleep(1)
                continue
            limits = self._limits
            if len(self._open) >= limits.connections or self._policy.connections >= limits.all_connections:
                connection.close()
            else:
                self._policy.connections += 1
                task = asyncio.create_task(self._handle(connection, port))
                self._open.add(task)
                task.add_done_callback(self._ended)
            await self._pace.step()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._policy.connections -= 1

    async def _answer_queries(self, dns: socket.socket) -> None:
        """Answer DNS queries."""
        loop, pace = asyncio.get_running_loop(), RateLimit(self._limits.queries_per_s)
        while True:
            try:
                question, sender = await loop.sock_recvfrom(dns, 4096)
                answer = self._names.answer(question)
                while self._unanswered:
                    await self._open_ports(self._unanswered.pop())
                if answer is not None:
                    await loop.sock_sendto(dns, answer, sender)
            except OSError as exc:
                logger.debug("network: query not answered: %s", exc)
            await pace.step()

    def _name_refusal(self, host: str) -> str:
        work, _ = self._work()
        why = self._policy.name_refusal(host)
        if work is not None and why:
            work.refuse(host, why)
        elif work is not None:
            work.looked_up.setdefault(host, sorted({*PORTS, *self._policy.table.ports(host)}))
        if not why:
            self._unanswered.append(host)
        return why

    async def _open_ports(self, host: str) -> None:
        """Accept connections to a name at further ports that the table names for it."""
        address = self._names.address(host)
        for port in sorted(self._policy.table.ports(host).difference(PORTS)):
            if (
                (host, port) in self._further
                or address is None
                or self._listen is None
                or len(self._further) >= self._limits.further_ports
            ):
                continue
            self._further[host, port] = None
            try:
                listening = await asyncio.to_thread(self._listen, address, port)
            except OSError as exc:
                logger.warning("network: not reached without a proxy: %s: %s:%d", exc, host, port)
                if (work := self._work()[0]) is not None:
                    work.refuse(format_entry(host, port), f"{exc}: a proxy reaches it (`http_proxy`)")
            else:
                self._further[host, port] = listening
                self._tasks.append(asyncio.create_task(self._accept(listening, port)))

    async def _handle(self, connection: socket.socket, port: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_HEAD)
        try:
            await self._serve((reader, writer), port)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ExceptionGroup) as exc:
            logger.debug("network: connection ended: %s", exc)
        finally:
            writer.close()

    async def _serve(self, command: Ends, port: int) -> None:
        address = command[1].get_extra_info("sockname")[0]
        if address == FAKE[0] or self._dns is None:
            await self._as_proxy(command)
        elif (host := self._names.host(address)) is not None:
            await self._pass(command, host, port, b"", proxy=False)

    async def _as_proxy(self, command: Ends) -> None:
        try:
            async with asyncio.timeout(self._limits.head_s):
                head = parse_head(await command[0].readuntil(b"\r\n\r\n"))
        except BadHead as exc:
            command[1].write(proxy_answer("400 Bad Request", str(exc)))
            return
        except asyncio.LimitOverrunError:
            command[1].write(proxy_answer("431 Request Header Fields Too Large", f"over {MAX_HEAD} bytes"))
            return
        await self._pass(command, head.host, head.port, head.first, proxy=True)

    async def _pass(self, command: Ends, host: str, port: int, first: bytes, *, proxy: bool) -> None:
        """Decide about a destination, connect both sides, and log the connection."""
        work, under_way = self._work()
        moved, verdict = [0, 0], "refused"
        if work is not None:
            work.looked_up.pop(host, None)
        try:
            why = self._address_refusal(host, port)
            why = why or await self._policy.refusal(work if under_way else None, host, port)
            if not why:
                try:
                    server = await self._connect(host, port)
                except AddressRejected as exc:
                    why = str(exc)
                except HostUnreachable as exc:
                    why, verdict = str(exc), "failed"
            if why:
                code = "403 Forbidden" if verdict == "refused" else "502 Bad Gateway"
                verdict = f"{verdict} ({why})"
                await self._refuse(command, work, format_entry(host, port), why, code if proxy else "")
                return
            verdict = "allowed"
            try:
                await self._relay(command, server, first, moved, proxy=proxy)
            finally:
                server[1].close()
        finally:
            session, tool = (work.session, work.tool) if work else ("", "")
            log_connection(session, tool, host, port, verdict, (moved[0], moved[1]))

    async def _relay(self, command: Ends, server: Ends, first: bytes, moved: list[int], *, proxy: bool) -> None:
        if first:
            server[1].write(first)
            moved[0] += len(first)
        elif proxy:
            command[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await relay(command, server, moved)

    async def _connect(self, host: str, port: int) -> Ends:
        try:
            async with asyncio.timeout(CONNECT_S):
                table = self._policy.table
                found = await resolve_host(host, port, lambda address: table.may_connect(address, port))
                return await connect(host, port, found)
        except TimeoutError:
            raise HostUnreachable(f"{host} did not answer within {CONNECT_S:g} s") from None

    def _address_refusal(self, host: str, port: int) -> str:
        """Return why an IP address as destination is refused; names are resolved after they are allowed."""
        refused = is_address(host) and not self._policy.table.may_connect(host, port)
        return f"{host} is not a public address, and `network.hosts` does not name it" if refused else ""

    async def _refuse(self, command: Ends, work: NetworkCall | None, named: str, why: str, code: str) -> None:
        """Answer the reason to a client of the proxy; reset a connection without a proxy."""
        if work is not None:
            work.refuse(named, why)
        if code:
            command[1].write(proxy_answer(code, f"{named} is not reached: {why}"))
            with contextlib.suppress(OSError):
                await command[1].drain()
        else:
            ended = struct.pack("ii", 1, 0)  # a reset: an end would look like an empty answer
            command[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ended)
            command[1].transport.abort()
