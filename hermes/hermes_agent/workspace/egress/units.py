"""The network of commands in systemd units: a unit joins the other units of its session, and a broker.

Every unit has a loopback of its own. It reports where its command listens, and gets the listening places of the other
units of its session. A connection that it accepts at such a place is passed to the right unit as a descriptor. No other
session has its key, and descriptors of this process are never passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.unit_network import MOST_PORTS, PACKET, PORT, HostPort, is_listening, reset_connection
from hermes_agent.workspace.egress.broker import PROXY, PROXY_URL, Broker, RateLimit
from hermes_agent.workspace.egress.destinations import ConnectionPolicy, NetworkCall

logger = logging.getLogger(__name__)

MOST_UNITS = 64
"""Most units with a network; `hermes-exec.socket` starts as many."""
HAND_OVER_S = 10.0
ANSWER_S = 1.0
"""Seconds that a command waits for the reports of the other units of its session."""
MOST_MESSAGES = 200
"""Most messages of one unit per second; further ones wait."""
UNIT_PROXY = {**PROXY, **{name: f"http://127.0.0.1:{PORT}" for name, value in PROXY.items() if value == PROXY_URL}}
"""The variables of `PROXY` for a systemd unit."""


@lazy_dataclass(eq=False)
class _Unit:
    """A unit that is connected."""

    channel: socket.socket
    key: str
    """Key of its session, which the caller sends before the unit gets the connection."""
    ports: list[HostPort] = field(default_factory=list)
    listens: list[HostPort] | None = None
    """The places of other units at which it listens; None before its command runs."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, kind: str, value: Any, *fds: int) -> None:
        """Send a message; disconnect a unit that does not accept it."""
        try:
            socket.send_fds(self.channel, [json.dumps([kind, value]).encode()], fds)
        except OSError as exc:
            logger.debug("network: unit accepts no message: %s", exc)
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_RDWR)


class NetworkUnits:
    """The units with a network. It runs on the loop of the brokers.

    Args:
        policy: decides about destinations; without it a unit reaches only others of its session.
        work: returns the running call of a session.
    """

    def __init__(self, policy: ConnectionPolicy | None, work: Callable[[str], NetworkCall | None]) -> None:
        self._policy, self._work = policy, work
        self.path = ""
        """Path of the socket at which units join; only the agent's user reaches it."""
        self._listening: socket.socket | None = None
        self._taking: asyncio.Task[None] | None = None
        self._served: set[asyncio.Task[None]] = set()
        self._sessions: dict[str, list[_Unit]] = {}

    async def open(self) -> None:
        """Start to accept units."""
        self.path = str(Path(tempfile.mkdtemp(prefix="hermes-network-"), "socket"))
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(self.path)
        self._listening.listen(MOST_UNITS)
        self._listening.setblocking(False)
        self._taking = asyncio.create_task(self._take(self._listening))

    async def close(self) -> None:
        """Close all connections, and accept no more."""
        tasks = [*self._served, *([self._taking] if self._taking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        shutil.rmtree(Path(self.path).parent, ignore_errors=True)

    async def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            channel, _ = await loop.sock_accept(listening)
            if len(self._served) >= MOST_UNITS:
                channel.close()
                continue
            task = asyncio.create_task(self._serve(channel))
            self._served.add(task)
            task.add_done_callback(self._served.discard)

    async def _serve(self, channel: socket.socket) -> None:
        """Serve one unit until it ends."""
        with channel, contextlib.ExitStack() as opened:
            unit, broker = _Unit(channel, ""), None
            try:
                async with asyncio.timeout(HAND_OVER_S):
                    key, _ = await _packet(channel)
                    unit.key = key.decode("utf-8", "replace")
                    kind, has_proxy, proxy = await _message(channel)
                if kind != "proxy":
                    raise ValueError(f"its first message is {kind!r}")
                if has_proxy and self._policy is not None:
                    if proxy is None or not is_listening(proxy):
                        raise ValueError("the descriptor that it passed is not a listening socket")
                    broker = await self._make_broker(opened.enter_context(proxy), unit.key, self._policy)
                elif proxy is not None:
                    proxy.close()
                await self._join(unit)
                pace = RateLimit(MOST_MESSAGES)
                while True:
                    self._act(unit, *await _message(channel))
                    await pace.step()
            except (EOFError, OSError) as exc:
                logger.debug("network: unit disconnected: %s", exc)
            except (ValueError, TypeError) as exc:
                logger.warning("network: unit rejected: %s", exc)
            finally:
                self._leave(unit)
                if broker is not None:
                    await broker.close()

    async def _make_broker(self, listening: socket.socket, key: str, policy: ConnectionPolicy) -> Broker:
        """Return a broker for the command of a unit."""
        listening.setblocking(False)
        first = self._work(key)

        def work() -> tuple[NetworkCall | None, bool]:
            now = self._work(key)
            return (first, False) if now is None else (now, True)

        broker = Broker([listening], None, policy, work)
        await broker.open()
        return broker

    async def _join(self, unit: _Unit) -> None:
        """Start the command of a unit after the reports of all units of its session."""
        session = self._sessions.setdefault(unit.key, [])
        others = list(session)
        session.append(unit)
        for other in others:
            other.answered.clear()
            self._send_places(other, always=True)
        waiting = [asyncio.create_task(other.answered.wait()) for other in others]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=ANSWER_S)
            for task in late:
                task.cancel()
        unit.listens = []
        self._send_places(unit, always=True)

    def _leave(self, unit: _Unit) -> None:
        unit.answered.set()
        session = self._sessions.get(unit.key, [])
        if unit in session:
            session.remove(unit)
            for other in session:
                self._send_places(other, always=len(session) == 1)
            if not session:
                del self._sessions[unit.key]

    def _send_places(self, unit: _Unit, *, always: bool = False) -> None:
        """Send a unit the listening places of the others, if they changed or with `always`."""
        session = self._sessions[unit.key]
        places = sorted({place for other in session if other is not unit for place in other.ports} - {*unit.ports})
        if unit.listens is not None and (always or places[:MOST_PORTS] != unit.listens):
            unit.listens = places[:MOST_PORTS]
            unit.send("listen", {"at": unit.listens, "others": len(session) > 1})

    def _act(self, unit: _Unit, kind: str, value: Any, given: socket.socket | None) -> None:
        """Handle a message of a unit; `given` is the socket that came with it."""
        if kind == "reach" and given is not None:
            place = _place(value)
            targets = [other for other in self._sessions[unit.key] if other is not unit and place in other.ports]
            with given:
                if targets:
                    targets[0].send("connect", place, given.fileno())
            if not targets:
                reset_connection(given)
            return
        if given is not None:
            given.close()
        if kind != "ports" or not isinstance(value, list):
            raise ValueError(f"it sent {kind!r}")
        unit.ports = sorted({_place(pair) for pair in value[:MOST_PORTS]})
        unit.answered.set()
        for other in self._sessions[unit.key]:
            if other is not unit:
                self._send_places(other)


def _place(value: Any) -> HostPort:
    address, port = value
    if not (isinstance(address, str) and isinstance(port, int) and 0 < port < 65536):
        raise ValueError(f"{value!r} is not an address with a port")
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError(f"{address} is not a loopback address")
    return address, port


async def _packet(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next packet and the descriptors that came with it.

    Raises:
        EOFError: the unit has ended.
    """
    loop, channel_fd = asyncio.get_running_loop(), channel.fileno()
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(channel, PACKET, 1)
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(channel_fd, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(channel_fd)
            continue
        for fd in fds:
            os.set_inheritable(fd, False)
        if not data:
            for fd in fds:
                os.close(fd)
            raise EOFError("the unit has ended")
        return data, list(fds)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _message(channel: socket.socket) -> tuple[str, Any, socket.socket | None]:
    """Return the kind and the value of the next message, and a socket that came with it.

    Raises:
        EOFError: the unit has ended.
        ValueError: the message is invalid, or its descriptor is not a TCP socket.
    """
    data, fds = await _packet(channel)
    given = None
    try:
        if fds:
            given = socket.socket(fileno=fds[0])
            if given.family not in (socket.AF_INET, socket.AF_INET6) or given.type != socket.SOCK_STREAM:
                raise ValueError("the descriptor that it passed is not a TCP socket")
            given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))  # closing it must not wait
        kind, value = json.loads(data)
    except (OSError, ValueError) as exc:
        if given is not None:
            given.close()
        elif fds:
            os.close(fds[0])
        raise ValueError(str(exc)) from None
    return str(kind), value, given
