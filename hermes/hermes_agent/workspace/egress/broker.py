"""A bound on how often something happens in a second, so that commands cannot keep the agent busy.

What a program asks a proxy for: `CONNECT host:port`, or a request with a whole address.

Answers to questions for names in a task's network: each name has an address there that stands for it.

So programs that know no proxy connect through the broker as well: the address that they connect to tells the name.
Nothing is asked outside: what a command puts into a name goes nowhere.

Takes the connections of one task's commands, decides about each, and passes its bytes on.
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
from typing import NamedTuple

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
from hermes_agent.workspace.egress.inside import FAKE, PORTS


class RateLimit:
    """Args: `most` is how often it may happen in a second."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since, self._count = 0.0, 0

    async def step(self) -> None:
        """Count once; where it is too often, wait for the next second."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= 1:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            await asyncio.sleep(self._since + 1 - now)


MAX_HEAD = 16_384
"""Bytes of the longest head."""

_REQUEST = re.compile(r"([A-Z]{1,20}) ([!-~]{1,8192}) HTTP/1\.[01]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/?#@\[\]]+)(?::([0-9]{1,5}))?")
_OWN = frozenset({"connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"})
"""Fields that are for the proxy, or that it writes itself."""


class BadHead(ValueError):
    """A head that is not understood; the text says why."""


class Head(NamedTuple):
    """Where a program wants to go, and what is to be said there first."""

    host: str
    port: int
    first: bytes
    """The request for the server; empty after `CONNECT`, where the program goes on by itself."""


def parse_head(data: bytes) -> Head:
    """Return what a head asks for; `data` ends with its empty line.

    Raises:
        BadHead: it is no request for a proxy.
    """
    try:
        lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        request = _REQUEST.fullmatch(lines[0])
        fields = [_FIELD.fullmatch(line) for line in lines[1:]]
        if request is None or not all(fields):
            raise BadHead("this is no request of HTTP/1.1")
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
    kept = [f"{field[1]}: {field[2]}" for field in fields if field is not None and field[1].lower() not in _OWN]
    # one request for each connection: the next one may be for another host
    said = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close", "", ""]
    return Head(host, port, "\r\n".join(said).encode("latin-1"))


def _authority(text: str, port: int) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise BadHead(f"{text[:100]!r} is not `host:port`; a user has no place there")
    port = int(found[2] or port)
    if not 0 < port < 65536:
        raise BadHead(f"{text[:100]!r} has no port from 1 to 65535")
    return parse_host(found[1]), port


def proxy_answer(status: str, text: str) -> bytes:
    """Return the answer of the proxy itself."""
    body = f"hermes-agent: {text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


MOST_NAMES = 4096
"""Names that have an address in one task."""
TTL_S = 60

_HEAD = struct.Struct("!6H")
_A, _IN, _ANSWER, _NO_SUCH_NAME, _NOT_UNDERSTOOD = 1, 1, 0x8180, 3, 1
_FIRST = int(ipaddress.IPv4Address(FAKE[0])) + 1


class NameTable:
    """Args: `refusal` returns why a name has no address, or an empty text."""

    def __init__(self, refusal: Callable[[str], str]) -> None:
        self._refusal = refusal
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def host(self, address: str) -> str | None:
        """Return the name that an address stands for."""
        number = int(ipaddress.IPv4Address(address)) - _FIRST
        return self._names[number] if 0 <= number < len(self._names) else None

    def address(self, name: str) -> str | None:
        """Return the address that stands for a name; None where there are too many."""
        number = self._numbers.get(name)
        if number is None:
            if len(self._names) >= MOST_NAMES:
                return None
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return str(ipaddress.IPv4Address(_FIRST + number))

    def answer(self, question: bytes) -> bytes | None:
        """Return the answer to a datagram; None for what is no question."""
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
        if kind != _A or group != _IN:  # it is there, and has nothing of that kind
            return _HEAD.pack(number, _ANSWER, 1, 0, 0, 0) + asked
        record = struct.pack("!3HIH4s", 0xC00C, _A, _IN, TTL_S, 4, ipaddress.IPv4Address(address).packed)
        return _HEAD.pack(number, _ANSWER, 1, 1, 0, 0) + asked + record


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """Return a name without its last dot, and where it ends."""
    labels = []
    while size := data[at]:
        if size > 63:
            raise IndexError("a pointer, or no label")
        labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    return ".".join(labels), at + 1


logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""Of one task at once; more are closed."""
MOST_ALTOGETHER = 512
"""The same of all tasks."""
HEAD_S = 10.0
"""How long a program may take for the head of its request."""
CONNECT_S = 20.0
MOST_MORE = 32
"""Hosts and ports beyond 22, 80 and 443 that are taken without a proxy, of one task."""
MOST_A_SECOND, MOST_QUESTIONS = 50, 500
"""Connections that are taken, and questions for names that are answered, of one task; the rest waits."""


class Broker:
    """On the broker's loop.

    Args:
        listening: where commands connect to; at addresses of names, and at the broker's own as to a proxy.
        names: where names are asked for; None: there is no such place, and each connection is one to a proxy.
        work: returns the tool call that the task's commands run for now, and whether it is under way.
        listen: opens another place where commands connect to, in a worker; None: none can be.
    """

    def __init__(
        self,
        listening: Sequence[socket.socket],
        names: socket.socket | None,
        deciding: ConnectionPolicy,
        work: Callable[[], tuple[NetworkCall | None, bool]],
        listen: Callable[[str, int], socket.socket] | None = None,
    ) -> None:
        self._listen = listen
        self._found: list[str] = []
        """Names whose question is not answered yet."""
        self._more: dict[tuple[str, int], socket.socket | None] = {}
        """Places at ports that the table names for a host; None: it could not be opened."""
        self._listening, self._asked_at = listening, names
        self._deciding, self._work = deciding, work
        self._names = NameTable(self._name_refusal)
        self._tasks: list[asyncio.Task[None]] = []
        self._open: set[asyncio.Task[None]] = set()
        self._pace = RateLimit(MOST_A_SECOND)

    async def open(self) -> None:
        """Begin to take connections and questions for names."""
        self._tasks = [asyncio.create_task(self._accept(one, one.getsockname()[1])) for one in self._listening]
        if self._asked_at is not None:
            self._tasks.append(asyncio.create_task(self._answer(self._asked_at)))

    async def close(self) -> None:
        """End every connection, and listen no more."""
        tasks = [*self._tasks, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._more.values():
            if listening is not None:
                listening.close()

    async def _accept(self, listening: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as exc:  # no descriptor is left, say
                logger.warning("network: no connection can be taken: %s", exc)
                await asyncio.sleep(1)
                continue
            if len(self._open) >= MOST_CONNECTIONS or self._deciding.connections >= MOST_ALTOGETHER:
                connection.close()
            else:
                self._deciding.connections += 1
                task = asyncio.create_task(self._take(connection, port))
                self._open.add(task)
                task.add_done_callback(self._ended)
            await self._pace.step()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._deciding.connections -= 1

    async def _answer(self, asked: socket.socket) -> None:
        """Answer questions for names."""
        loop, pace = asyncio.get_running_loop(), RateLimit(MOST_QUESTIONS)
        while True:
            try:
                question, sender = await loop.sock_recvfrom(asked, 4096)
                answer = self._names.answer(question)
                while self._found:
                    await self._open_ports(self._found.pop())
                if answer is not None:
                    await loop.sock_sendto(asked, answer, sender)
            except OSError as exc:
                logger.debug("network: a question for a name is not answered: %s", exc)
            await pace.step()

    def _name_refusal(self, host: str) -> str:
        work, _ = self._work()
        why = self._deciding.name_refusal(host)
        if work is not None and why:
            work.refuse(host, why)
        elif work is not None:
            work.looked_up.setdefault(host, sorted({*PORTS, *self._deciding.table.ports(host)}))
        if not why:
            self._found.append(host)
        return why

    async def _open_ports(self, host: str) -> None:
        """Take connections to a name at the ports that the table names for it, besides those that are always taken."""
        address = self._names.address(host)
        for port in sorted(self._deciding.table.ports(host).difference(PORTS)):
            if (host, port) in self._more or address is None or self._listen is None or len(self._more) >= MOST_MORE:
                continue
            self._more[host, port] = None
            try:
                listening = await asyncio.to_thread(self._listen, address, port)
            except OSError as exc:
                logger.warning("network: connections to %s:%d are not taken without a proxy: %s", host, port, exc)
                if (work := self._work()[0]) is not None:
                    work.refuse(format_entry(host, port), f"{exc}: a proxy reaches it (`http_proxy`)")
            else:
                self._more[host, port] = listening
                self._tasks.append(asyncio.create_task(self._accept(listening, port)))

    async def _take(self, connection: socket.socket, port: int) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_HEAD)
        try:
            await self._serve((reader, writer), port)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ExceptionGroup) as exc:
            logger.debug("network: a connection ended: %s", exc)
        finally:
            writer.close()

    async def _serve(self, command: Ends, port: int) -> None:
        address = command[1].get_extra_info("sockname")[0]
        if address == FAKE[0] or self._asked_at is None:
            await self._as_proxy(command)
        elif (host := self._names.host(address)) is not None:
            await self._pass(command, host, port, b"", proxy=False)

    async def _as_proxy(self, command: Ends) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = parse_head(await command[0].readuntil(b"\r\n\r\n"))
        except BadHead as exc:
            command[1].write(proxy_answer("400 Bad Request", str(exc)))
            return
        except asyncio.LimitOverrunError:
            command[1].write(proxy_answer("431 Request Header Fields Too Large", f"over {MAX_HEAD} bytes"))
            return
        await self._pass(command, head.host, head.port, head.first, proxy=True)

    async def _pass(self, command: Ends, host: str, port: int, first: bytes, *, proxy: bool) -> None:
        """Decide about a destination and connect the two; a line of the journal says what came of it."""
        work, under_way = self._work()
        moved, verdict = [0, 0], "refused"
        if work is not None:
            work.looked_up.pop(host, None)
        try:
            why = self._address_refusal(host, port)
            why = why or await self._deciding.refusal(work if under_way else None, host, port)
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
                await self._joined(command, server, first, moved, proxy=proxy)
            finally:
                server[1].close()
        finally:
            session, tool = (work.session, work.tool) if work else ("", "")
            log_connection(session, tool, host, port, verdict, (moved[0], moved[1]))

    async def _joined(self, command: Ends, server: Ends, first: bytes, moved: list[int], *, proxy: bool) -> None:
        if first:
            server[1].write(first)
            moved[0] += len(first)
        elif proxy:
            command[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await relay(command, server, moved)

    async def _connect(self, host: str, port: int) -> Ends:
        try:
            async with asyncio.timeout(CONNECT_S):
                table = self._deciding.table
                found = await resolve_host(host, port, lambda address: table.may_connect(address, port))
                return await connect(host, port, found)
        except TimeoutError:
            raise HostUnreachable(f"{host} did not answer within {CONNECT_S:g} s") from None

    def _address_refusal(self, host: str, port: int) -> str:
        """Return why an address that is given as such is not asked; a name is looked up once it is allowed."""
        refused = is_address(host) and not self._deciding.table.may_connect(host, port)
        return f"{host} is not a public address, and `network.hosts` does not name it" if refused else ""

    async def _refuse(self, command: Ends, work: NetworkCall | None, named: str, why: str, code: str) -> None:
        """Say why to a proxy's client; a connection without proxy is reset."""
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
