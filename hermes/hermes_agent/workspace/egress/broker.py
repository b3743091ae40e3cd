"""Takes the connections of one task's commands, decides about each, and passes its bytes on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Sequence

from hermes_agent.io.http import AddressRejected, resolve_host
from hermes_agent.policy.network import format_entry, is_address, log_connection
from hermes_agent.workspace.egress import heads
from hermes_agent.workspace.egress.deciding import ConnectionPolicy, NetworkCall
from hermes_agent.workspace.egress.inside import FAKE, PORTS
from hermes_agent.workspace.egress.names import NameTable
from hermes_agent.workspace.egress.onward import HostUnreachable, connect
from hermes_agent.workspace.egress.pace import RateLimit
from hermes_agent.workspace.egress.relay import Ends, relay

__all__ = ["MOST_CONNECTIONS", "Broker"]

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
        reader, writer = await asyncio.open_connection(sock=connection, limit=heads.MAX_HEAD)
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
                head = heads.parse_head(await command[0].readuntil(b"\r\n\r\n"))
        except heads.BadHead as exc:
            command[1].write(heads.proxy_answer("400 Bad Request", str(exc)))
            return
        except asyncio.LimitOverrunError:
            command[1].write(heads.proxy_answer("431 Request Header Fields Too Large", f"over {heads.MAX_HEAD} bytes"))
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
            command[1].write(heads.proxy_answer(code, f"{named} is not reached: {why}"))
            with contextlib.suppress(OSError):
                await command[1].drain()
        else:
            ended = struct.pack("ii", 1, 0)  # a reset: an end would look like an empty answer
            command[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ended)
            command[1].transport.abort()
