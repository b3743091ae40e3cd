"""Both ends of the socket that runs a command in its own systemd unit.

systemd starts a unit for each connection (`packaging/systemd/hermes-exec@.service`); the connection is its standard
input. `serve` runs one command there. `main` is the agent's end, a program that behaves like the command. Each frame
has a letter, a length (4 bytes, network order) and data:

    agent  n  with a connection to the broker (`unit_network`)     unit  o  output
    agent  h  JSON: argv, cwd, env (over the unit's own), tty      unit  x  JSON: code, or error before it ran
    agent  i  input        e  end of the input

A closed connection ends the command: the unit ends, and systemd ends all of its processes.

`find_refusal` limits how many commands one user may run at a time; some slots stay free for root. systemd 256 counts
the connections of a user itself (`MaxConnectionsPerSource=`), earlier versions do not. So each unit reads the control
groups of the others: their names end in `@NUMBER-PID-UID.service` with the ids of the connection, and a command can
change neither the groups nor their names. This module imports little, since each command starts it.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system import unit_network
from hermes_agent.system.process_keeper import take_terminal
from hermes_agent.system.unit_network import READ_BYTES, BufferedPipe, wait_ready

CALLER_LIMIT, TOTAL_LIMIT = "HERMES_EXEC_PER_CALLER", "HERMES_EXEC_MOST"
"""Variables of the unit: most commands of one user, and of all users except root together."""
DEFAULTS = {CALLER_LIMIT: 48, TOTAL_LIMIT: 60}
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))


class _Instance(LazyNamedTuple):
    number: int
    """Number of the connection, in the order of arrival."""
    uid: int


def find_refusal() -> str:
    """Return why the user of this unit may not run another command now; empty if it may."""
    most = {name: int(os.environ.pop(name, "") or value) for name, value in DEFAULTS.items()}
    own, others = _find_instances()
    if own is None or own.uid == 0:
        return ""
    before = [other for other in others if other.number < own.number and other.uid != 0]
    mine = sum(other.uid == own.uid for other in before)
    if mine >= most[CALLER_LIMIT]:
        return (
            f"user {own.uid} runs {mine} commands at once already ({CALLER_LIMIT}={most[CALLER_LIMIT]}); wait for one"
        )
    if len(before) >= most[TOTAL_LIMIT]:
        return f"{len(before)} commands run at once already ({TOTAL_LIMIT}={most[TOTAL_LIMIT]}); wait for one"
    return ""


def _find_instances() -> tuple[_Instance | None, list[_Instance]]:
    """Return the instance of this process, None if it has none, and all running instances."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        group = Path(path)
        own = _instance(group.name)
        if own is None or kind not in ("", "name=systemd"):
            continue
        prefix = group.name.partition("@")[0]
        for root in _ROOTS:
            directory = root / group.parent.relative_to("/")
            if (directory / group.name).is_dir():
                return own, list(_read(prefix, (path.name for path in directory.iterdir())))
    return None, []


def _read(prefix: str, names: Iterable[str]) -> Iterable[_Instance]:
    for name in names:
        instance = _instance(name)
        if instance is not None and name.startswith(f"{prefix}@"):
            yield instance


def _instance(unit: str) -> _Instance | None:
    """Read an instance from the name of its unit; None for another name."""
    words = unit.partition("@")[2].removesuffix(".service").split("-")
    if not unit.endswith(".service") or len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return _Instance(int(words[0]), int(words[2]))


EXIT_UNREACHABLE = 125
"""Exit status of the agent's end if there is no unit."""
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hermes_agent.system.exec_unit import main; main()"
"""Code for an interpreter with `-I -S -c`; the source directory and the arguments of `main` follow."""

MOST_HEADER = 8_000_000
HEADER_S = 10.0
"""Seconds that a connection may hold a unit without a request."""
_HEAD = struct.Struct("!cI")
_HOMES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "HERMES_CALL")
"""Variables that the unit sets itself; the paths of the agent's home do not exist there."""


class _Frames:
    """Frames of a socket, decoded as their bytes arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._data += data
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            if length > MOST_HEADER:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._data) < _HEAD.size + length:
                return
            yield kind, bytes(self._data[_HEAD.size : _HEAD.size + length])
            del self._data[: _HEAD.size + length]


class _FrameConnection(BufferedPipe):
    """The connection between the two ends."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.broker: int | None = None
        """A connection to the network broker from the agent's end, or None."""

    def frame(self, kind: bytes, data: bytes = b"") -> None:
        self.waiting += _HEAD.pack(kind, len(data)) + data

    def begin(self) -> bytes | None:
        """Read like `read`, and accept a descriptor."""
        return unit_network.receive(self.fd, READ_BYTES, self._keep)

    def _keep(self, fd: int) -> None:
        if self.broker is None:
            self.broker = fd
        else:
            os.close(fd)


# -- in the unit --------------------------------------------------------------------------------------------------


def serve() -> None:
    """Run the command that the connection at standard input requests."""
    agent, frames = _FrameConnection(os.dup(0)), _Frames()
    if problem := find_refusal():
        _refuse(agent, problem)
        return
    waiting: list[tuple[bytes, bytes]] = []
    try:
        if not _receive_request(agent, frames, waiting):
            return
        kind, header = waiting.pop(0)
        command = _Command(agent, json.loads(header) if kind == b"h" else {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        _refuse(agent, f"{type(exc).__name__}: {exc}")
        return
    command.run(frames, waiting)


def _receive_request(agent: _FrameConnection, frames: _Frames, waiting: list[tuple[bytes, bytes]]) -> bool:
    """Wait for the request; return False if the agent disconnected.

    Raises:
        ValueError: it is late or too large.
    """
    limit = time.monotonic() + HEADER_S
    while not waiting:
        if time.monotonic() >= limit:
            raise ValueError(f"no command came within {HEADER_S:g} s")
        wait_ready([agent], [], limit_s=limit - time.monotonic())
        data = agent.begin()
        if data == b"":
            return False
        waiting += (frame for frame in frames.feed(data or b"") if frame[0] != b"n")
    return True


def _refuse(agent: _FrameConnection, problem: str) -> None:
    agent.frame(b"x", json.dumps({"error": problem}).encode())
    agent.write()


class _Command:
    """One process with its input, its output and the connection."""

    def __init__(self, agent: _FrameConnection, request: dict[str, Any]) -> None:
        self._agent = agent
        self._tty = bool(request.get("tty"))
        env = {**os.environ, **{str(k): str(v) for k, v in request["env"].items()}}
        self._network = None if agent.broker is None else unit_network.UnitNetwork(agent.broker)
        if self._network is not None:
            self._network.begin(env, way_out=bool(request.get("way_out")))
        output, theirs = pty.openpty() if self._tty else os.pipe()
        stdin, ours = (theirs, os.dup(output)) if self._tty else os.pipe()
        self._output, self._input = BufferedPipe(output), BufferedPipe(ours)
        self._input_ends = False
        try:
            self._process = subprocess.Popen(
                [str(word) for word in request["argv"]],
                cwd=str(request["cwd"]),
                env=env,
                stdin=stdin,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=take_terminal if self._tty else None,  # this process has no threads
            )
        finally:
            for fd in {theirs, stdin}:
                os.close(fd)

    def run(self, frames: _Frames, waiting: list[tuple[bytes, bytes]]) -> None:
        """Forward input and output until the command ends, then send its exit code."""
        agent, output = self._agent, self._output
        ended = os.pidfd_open(self._process.pid)
        while agent.open:
            for kind, data in waiting:
                self._take(kind, data)
            waiting = []
            if self._input_ends and not self._input.waiting and not self._tty and self._input.open:
                os.close(self._input.fd)
                self._input.open = False
            reading = ([] if self._input.is_full else [agent]) + ([output] if output.open and not agent.is_full else [])
            ready = self._wait(reading, ended)
            if agent.fd in ready and (came := agent.read()) is not None:
                if not came:
                    return
                waiting += frames.feed(came)
            if output.fd in ready:
                self._forward()
            if ended in ready:
                break
        while output.open and self._forward():
            pass
        code = self._process.wait()
        agent.frame(b"x", json.dumps({"code": 128 - code if code < 0 else code}).encode())
        while agent.open and agent.waiting:
            wait_ready([], [agent])

    def _wait(self, reading: list[BufferedPipe], ended: int) -> set[int]:
        network, writing = self._network, [self._agent, self._input]
        if network is None:
            return wait_ready(reading, writing, (ended,))
        others = (ended, *network.other_descriptors)
        ready = wait_ready([*reading, *network.reading], [*writing, *network.writing], others, network.limit_s)
        network.advance(ready)
        return ready

    def _forward(self) -> bool:
        """Send output of the command; return False if there is none now."""
        data = self._output.read()
        if data:
            self._agent.frame(b"o", data)
        elif data == b"":
            self._output.open = False
        return bool(data)

    def _take(self, kind: bytes, data: bytes) -> None:
        if not self._input.open:
            return
        if kind == b"i":
            self._input.waiting += data
        elif kind == b"e":
            self._input_ends = True
            self._input.waiting += b"\x04" if self._tty else b""


# -- on the agent's side ------------------------------------------------------------------------------------------


def main() -> None:
    """Run a command in a unit, and end with its exit code.

    `sys.argv[1:]`: socket, `tty` or `-`, socket of the broker or `-`, key of the network, whether it reaches hosts
    outside (`out` or `-`), cwd, program, arguments.
    """
    path, tty, broker, key, way, cwd, *argv = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as exc:
        sys.stderr.write(f"{path}: {exc.strerror or exc}\n")
        raise SystemExit(EXIT_UNREACHABLE) from None
    if broker != "-" and (joined := unit_network.connect_broker(broker, key)) is not None:
        with joined:
            socket.send_fds(connection, [_HEAD.pack(b"n", 0)], [joined.fileno()])
    env = {name: value for name, value in os.environ.items() if name not in _HOMES and not name.startswith("XDG_")}
    unit = _FrameConnection(connection.fileno())
    header = {"argv": argv, "cwd": cwd, "env": env, "tty": tty == "tty", "way_out": way == "out"}
    unit.frame(b"h", json.dumps(header).encode())
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))  # the closed connection is the message
    raise SystemExit(_relay(unit))


def _relay(unit: _FrameConnection) -> int:
    """Forward input to the unit and output from it; return the exit code of the command."""
    frames, given = _Frames(), BufferedPipe(0)
    while unit.open:
        ready = wait_ready([unit] + ([given] if given.open and not unit.is_full else []), [unit])
        if given.fd in ready and (data := given.read()) is not None:
            unit.frame(b"i" if data else b"e", data)
            given.open = bool(data)
        if unit.fd not in ready or (data := unit.read()) is None:
            continue
        if not data:
            break
        for kind, body in frames.feed(data):
            if kind == b"o":
                while body:
                    body = body[os.write(1, body) :]
            elif kind == b"x":
                answer = json.loads(body)
                if "error" in answer:
                    sys.stderr.write(f"{answer['error']}\n")
                return int(answer.get("code", EXIT_UNREACHABLE))
    sys.stderr.write("the unit of the command ended before the command did\n")
    return EXIT_UNREACHABLE


if __name__ == "__main__":
    serve()
