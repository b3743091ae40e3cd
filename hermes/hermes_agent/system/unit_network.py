"""The network of a command in a systemd unit: ways out, and to other units of the session.

The agent's end of the exec socket connects to the broker in the daemon, names the session, and hands the connection to
the unit. Over it go JSON messages, one in a packet, some with a descriptor:

    unit    proxy    whether it hands over a socket for connections that lead out
    unit    ports    where its command listens           broker  listen   where other units of the session listen
    unit    reach    a connection to one of those        broker  connect  a connection of another unit to forward

So a unit reaches ports of other units, and the broker passes descriptors without a byte of the data. `BufferedPipe` and
`JoinedConnections` never block. This module imports little, since each command starts it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

READ_BYTES = 65_536
MAX_BUFFERED = 1_000_000


class BufferedPipe:
    """A connection or one end of a pipe that never blocks; data that cannot be written yet is buffered."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.open = True
        os.set_blocking(fd, False)

    @property
    def is_full(self) -> bool:
        """Whether the buffer should not grow."""
        return len(self.waiting) > MAX_BUFFERED

    def read(self) -> bytes | None:
        """Return data; b"" at the end, None if there is none now."""
        try:
            return os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # a terminal with a closed other end reports EIO
            return b""

    def write(self) -> None:
        """Write what can be written now; data for a closed end is dropped."""
        try:
            del self.waiting[: os.write(self.fd, self.waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.open = False
            self.waiting.clear()


def wait_ready(
    reading: list[BufferedPipe], writing: list[BufferedPipe], others: tuple[int, ...] = (), limit_s: float | None = None
) -> set[int]:
    """Wait at most `limit_s` seconds until an end is ready; return the readable descriptors."""
    poll = select.poll()
    wanted: dict[int, int] = dict.fromkeys(others, select.POLLIN)
    for line in reading:
        wanted[line.fd] = wanted.get(line.fd, 0) | select.POLLIN
    for line in writing:
        if line.waiting:
            wanted[line.fd] = wanted.get(line.fd, 0) | select.POLLOUT
    for fd, events in wanted.items():
        poll.register(fd, events)
    ready = dict(poll.poll(None if limit_s is None else max(limit_s, 0) * 1000))
    for line in writing:
        if line.waiting and ready.get(line.fd, 0) & ~select.POLLIN:
            line.write()
    return {fd for fd, events in ready.items() if events & ~select.POLLOUT}


class JoinedConnections:
    """Two connections that forward data to each other."""

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        self._ends = (one, other)
        self._lines = (BufferedPipe(one.fileno()), BufferedPipe(other.fileno()))
        self._ended = [False, False]
        """Whether the data of each end is over."""
        self._passed = [False, False]
        """Whether the end of each end's data was forwarded."""

    @property
    def reading(self) -> list[BufferedPipe]:
        """The ends to read from now."""
        return [self._lines[at] for at in (0, 1) if not self._ended[at] and not self._lines[1 - at].is_full]

    @property
    def writing(self) -> list[BufferedPipe]:
        """The ends to write to."""
        return list(self._lines)

    def step(self, ready: set[int]) -> bool:
        """Forward data; return False after both have ended or one failed."""
        for at in (0, 1):
            line, to = self._lines[at], self._lines[1 - at]
            if not self._ended[at] and line.fd in ready and (data := line.read()) is not None:
                to.waiting += data
                self._ended[at] = not data
            if self._ended[at] and not to.waiting and not self._passed[at]:
                self._passed[at] = True
                with contextlib.suppress(OSError):
                    self._ends[1 - at].shutdown(socket.SHUT_WR)
        return not all(self._passed) and all(line.open for line in self._lines)

    def close(self) -> None:
        """Close both connections."""
        for end in self._ends:
            end.close()


HostPort = tuple[str, int]
"""An address of the loopback, and a port."""

PORT = 3128
"""Port of the broker inside a unit."""
PACKET = 16_384
"""Bytes of the longest message."""
MOST_PORTS = 64
"""Most ports of one unit that others reach, and of others that one reaches."""
MOST_JOINED = 64
"""Most connections of other units to one unit at a time."""
BEGIN_S = 5.0
"""Seconds that a command waits for the ports of other units."""
SHORTEST_S, LONGEST_S = 0.1, 2.0
"""Seconds between looks at the listening ports, while there are other units; longer if little changes."""
_BACKLOG = 64
_LISTENS = "0A"
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


# -- on the agent's side ------------------------------------------------------------------------------------------


def connect_broker(path: str, key: str) -> socket.socket | None:
    """Return a connection to the broker at `path` for the session `key`, or None without a broker."""
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        broker.connect(path)
        broker.send(key.encode())
    except OSError as exc:
        sys.stderr.write(f"the command has no network: {exc.strerror or exc}\n")
        broker.close()
        return None
    return broker


def is_listening(one: socket.socket) -> bool:
    """Return whether a socket listens for TCP connections."""
    kind = one.family == socket.AF_INET and one.type == socket.SOCK_STREAM
    return kind and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def reset_connection(connection: socket.socket) -> None:
    """Reset a connection: a normal close would look like an empty answer."""
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# -- in the unit --------------------------------------------------------------------------------------------------


def receive(connection: int, size: int, keep: Callable[[int], None]) -> bytes | None:
    """Read like `os.read`; None if there is nothing now. `keep` is called with a received descriptor."""
    with socket.socket(fileno=os.dup(connection)) as agent:
        try:
            data, fds, _, _ = socket.recv_fds(agent, size, 1)
        except BlockingIOError:
            return None
        except OSError:
            return b""
    for fd in fds:
        os.set_inheritable(fd, False)
        keep(fd)
    return data


class UnitNetwork:
    """The unit's end of the connection to the broker; only `begin` blocks."""

    def __init__(self, broker: int) -> None:
        self._broker: socket.socket | None = socket.socket(fileno=broker)
        self._proxy = -1
        self._others: dict[HostPort, socket.socket] = {}
        """Listening sockets for the ports of other units."""
        self._joined: list[JoinedConnections] = []
        self._reported: list[HostPort] | None = None
        self._watches, self._changed, self._next = False, 0.0, 0.0

    def begin(self, env: dict[str, str], *, way_out: bool) -> None:
        """Prepare the network for the command with the environment `env`.

        Args:
            way_out: the broker leads to hosts outside.
        """
        assert self._broker is not None
        self._broker.settimeout(BEGIN_S)
        try:
            if way_out:
                with socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG) as listening:
                    self._proxy = os.fstat(listening.fileno()).st_ino
                    self._send("proxy", True, listening.fileno())
                proxy = [sys.executable, "-I", "-S", str(Path(__file__).with_name("proxy_tunnel.py")), str(PORT)]
                command = shlex.quote(f"ProxyCommand={shlex.join(proxy)} %h %p")
                env.setdefault("GIT_SSH_COMMAND", f"ssh -o {command}")
            else:
                self._send("proxy", False)
            self._take()
        except OSError as exc:
            sys.stderr.write(f"the command has no network: {exc.strerror or exc}\n")
            self._end()
        if self._broker is not None:
            self._broker.setblocking(False)

    @property
    def other_descriptors(self) -> tuple[int, ...]:
        """Descriptors for `advance`, besides `reading` and `writing`."""
        own = () if self._broker is None else (self._broker.fileno(),)
        return (*own, *(one.fileno() for one in self._others.values()))

    @property
    def reading(self) -> list[BufferedPipe]:
        """Connections to read from."""
        return [line for one in self._joined for line in one.reading]

    @property
    def writing(self) -> list[BufferedPipe]:
        """Connections to write to."""
        return [line for one in self._joined for line in one.writing]

    @property
    def limit_s(self) -> float | None:
        """Seconds until `advance` must be called at the latest; None without a limit."""
        return max(self._next - time.monotonic(), 0) if self._watches and self._broker is not None else None

    def advance(self, ready: set[int]) -> None:
        """Handle the readable descriptors and what is due."""
        for one in [one for one in self._joined if not one.step(ready)]:
            self._joined.remove(one)
            one.close()
        try:
            for place, listening in list(self._others.items()):
                if listening.fileno() in ready:
                    self._reach(place, listening)
            if self._broker is not None and self._broker.fileno() in ready:
                self._take()
            if self._watches and time.monotonic() >= self._next:
                self._report_listening()
        except BlockingIOError:
            return
        except OSError as exc:
            sys.stderr.write(f"the command has no network any more: {exc.strerror or exc}\n")
            self._end()

    def _end(self) -> None:
        for one in self._others.values():
            one.close()
        self._others.clear()
        self._watches = False
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def _send(self, kind: str, value: Any, *fds: int) -> None:
        if self._broker is not None:
            socket.send_fds(self._broker, [json.dumps([kind, value]).encode()], fds)

    def _take(self) -> None:
        """Handle one message of the broker."""
        assert self._broker is not None
        data, fds, _, _ = socket.recv_fds(self._broker, PACKET, 1)
        given = [socket.socket(fileno=fd) for fd in fds]
        if not data:
            self._end()
            return
        kind, value = json.loads(data)
        if kind == "listen":
            self._listen([(str(address), int(port)) for address, port in value["at"]])
            self._watches, self._reported = bool(value["others"]), None
            if self._watches:
                self._report_listening()
        elif kind == "connect" and given:
            self._connect((value[0], value[1]), given[0])

    def _listen(self, places: list[HostPort]) -> None:
        """Listen at the ports of other units, and at no others."""
        for place in [place for place in self._others if place not in places]:
            self._others.pop(place).close()
        for place in places:
            if place not in self._others:
                family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
                with contextlib.suppress(OSError):  # the command listens there itself, or there is no IPv6
                    self._others[place] = socket.create_server(place, family=family, backlog=_BACKLOG)
                    self._others[place].setblocking(False)

    def _reach(self, place: HostPort, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            self._send("reach", place, connection.fileno())

    def _connect(self, place: HostPort, other: socket.socket) -> None:
        """Connect another unit to the port of the command."""
        if place in self._others or len(self._joined) >= MOST_JOINED:
            reset_connection(other)
            return
        own = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
        own.setblocking(False)
        if own.connect_ex(place) in (0, errno.EINPROGRESS):
            self._joined.append(JoinedConnections(other, own))
        else:
            own.close()
            reset_connection(other)

    def _report_listening(self) -> None:
        """Send the listening ports of the command to the broker if they have changed."""
        mine = {self._proxy, *(os.fstat(one.fileno()).st_ino for one in self._others.values())}
        found = sorted({place for inode, place in _listening() if inode not in mine})[:MOST_PORTS]
        now = time.monotonic()
        if found != self._reported:
            self._send("ports", found)
            self._reported, self._changed = found, now
        self._next = now + min(max((now - self._changed) / 8, SHORTEST_S), LONGEST_S)


def _listening() -> Iterator[tuple[int, HostPort]]:
    """Yield the listening sockets on the loopback: inode, address and port."""
    for path in _TABLES:
        try:
            lines = Path(path).read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # there is no IPv6
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS:
                address, _, port = fields[1].partition(":")
                for place in _of_loopback(address):
                    yield int(fields[9]), (place, int(port, 16))


def _of_loopback(text: str) -> tuple[str, ...]:
    """Return the loopback addresses that an address stands for; the kernel writes words of 32 bits."""
    words = struct.pack(f"={len(text) // 8}I", *(int(text[at : at + 8], 16) for at in range(0, len(text), 8)))
    if len(words) == 16 and words.startswith(bytes(10) + b"\xff\xff"):
        words = words[12:]
    address = socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)
    if address == "::":
        return ("127.0.0.1", "::1")
    if address == "0.0.0.0":
        return ("127.0.0.1",)
    return (address,) if address == "::1" or address.startswith("127.") else ()
