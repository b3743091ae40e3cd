"""A command in a unit of its own: both ends of the socket that starts one. Imports little.

systemd starts a unit for each connection (`packaging/systemd/hermes-exec@.service`), whose standard input is the
connection: `serve` there runs one command and nothing else. `main` is the other end, a program for the agent's side
that acts as if it were the command. Frames go both ways: a letter, a length (4 bytes, network order), data.

    agent  h  JSON: argv, cwd, env (over the unit's own), tty      unit  o  output
    agent  i  input        e  the input has ended                  unit  x  JSON: code, or error before it ran
                                                                   unit  n  with a socket (`unit_network`)

A connection that is closed ends the command: the unit ends, and systemd ends everything that is in it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from hermes_agent.io import unit_network
from hermes_agent.io.exec_callers import refusal
from hermes_agent.io.supervise import take_terminal

__all__ = ["EXIT_UNREACHABLE", "START", "main", "serve"]

EXIT_UNREACHABLE = 125
"""Status of the agent's side when there is no unit."""
START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from hermes_agent.io.exec_unit import main; main()"
"""What an interpreter with `-I -S -c` runs: source directory, and the arguments of `main`."""

READ_BYTES = 65_536
MOST_WAITING = 1_000_000
MOST_HEADER = 8_000_000
HEADER_S = 10.0
"""How long a connection may hold a unit without saying what is to run."""
_HEAD = struct.Struct("!cI")
_HOMES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "HERMES_CALL")
"""Variables that are the unit's own affair; those of the agent's home would lead nowhere."""


class _Frames:
    """Frames out of a socket, as their bytes come."""

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


class _Line:
    """A connection, or one end of a pipe, that is never waited for: what cannot be written yet is kept."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.open = True
        os.set_blocking(fd, False)

    @property
    def full(self) -> bool:
        """Whether no more should be added."""
        return len(self.waiting) > MOST_WAITING

    def frame(self, kind: bytes, data: bytes = b"") -> None:
        self.waiting += _HEAD.pack(kind, len(data)) + data

    def read(self) -> bytes | None:
        """Return what came; nothing at the end, None when there is nothing now."""
        try:
            return os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # a terminal whose other end is closed says EIO
            return b""

    def write(self) -> None:
        """Write what can be written now; to who does not listen any more nothing is."""
        try:
            del self.waiting[: os.write(self.fd, self.waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.open = False
            self.waiting.clear()


def _wait(
    reading: list[_Line], writing: list[_Line], others: tuple[int, ...] = (), limit_s: float | None = None
) -> set[int]:
    """Wait until one of them can go on, at most `limit_s`; return the descriptors that can be read."""
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


# -- in the unit --------------------------------------------------------------------------------------------------


def serve() -> None:
    """Run the one command that the connection at standard input asks for."""
    agent, frames = _Line(os.dup(0)), _Frames()
    if problem := refusal():
        _refuse(agent, problem)
        return
    waiting: list[tuple[bytes, bytes]] = []
    try:
        if not _first(agent, frames, waiting):
            return
        kind, header = waiting.pop(0)
        command = _Command(agent, json.loads(header) if kind == b"h" else {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        _refuse(agent, f"{type(exc).__name__}: {exc}")
        return
    command.run(frames, waiting)


def _first(agent: _Line, frames: _Frames, waiting: list[tuple[bytes, bytes]]) -> bool:
    """Wait for the first frame; false when the agent hung up.

    Raises:
        ValueError: it did not come in time, or is too large.
    """
    limit = time.monotonic() + HEADER_S
    while not waiting:
        if time.monotonic() >= limit:
            raise ValueError(f"no command came within {HEADER_S:g} s")
        _wait([agent], [], limit_s=limit - time.monotonic())
        data = agent.read()
        if data == b"":
            return False
        waiting += frames.feed(data or b"")
    return True


def _refuse(agent: _Line, problem: str) -> None:
    agent.frame(b"x", json.dumps({"error": problem}).encode())
    agent.write()


class _Command:
    """One process, its input and output, and the connection."""

    def __init__(self, agent: _Line, request: dict[str, Any]) -> None:
        self._agent = agent
        self._tty = bool(request.get("tty"))
        env = {**os.environ, **{str(k): str(v) for k, v in request["env"].items()}}
        if request.get("network"):
            unit_network.offered(agent.fd, _HEAD.pack(b"n", 0), env)
        output, theirs = pty.openpty() if self._tty else os.pipe()
        stdin, ours = (theirs, os.dup(output)) if self._tty else os.pipe()
        self._output, self._input = _Line(output), _Line(ours)
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
                preexec_fn=take_terminal if self._tty else None,  # there are no threads here
            )
        finally:
            for fd in {theirs, stdin}:
                os.close(fd)

    def run(self, frames: _Frames, waiting: list[tuple[bytes, bytes]]) -> None:
        """Pass input and output on until the command ends, then say how."""
        agent, output = self._agent, self._output
        ended = os.pidfd_open(self._process.pid)
        while agent.open:
            for kind, data in waiting:
                self._take(kind, data)
            waiting = []
            if self._input_ends and not self._input.waiting and not self._tty and self._input.open:
                os.close(self._input.fd)
                self._input.open = False
            reading = ([] if self._input.full else [agent]) + ([output] if output.open and not agent.full else [])
            ready = _wait(reading, [agent, self._input], (ended,))
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
            _wait([], [agent])

    def _forward(self) -> bool:
        """Send what the command printed; false when there is nothing now."""
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
    """Run a command in a unit; end as it ends.

    `sys.argv[1:]`: socket, `tty` or `-`, socket of the broker or `-`, whose network, cwd, program, arguments.
    """
    path, tty, broker, key, cwd, *argv = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as exc:
        sys.stderr.write(f"{path}: {exc.strerror or exc}\n")
        raise SystemExit(EXIT_UNREACHABLE) from None
    env = {name: value for name, value in os.environ.items() if name not in _HOMES and not name.startswith("XDG_")}
    unit = _Line(connection.fileno()) if broker == "-" else _Unit(connection.fileno(), broker, key)
    header = {"argv": argv, "cwd": cwd, "env": env, "tty": tty == "tty", "network": broker != "-"}
    unit.frame(b"h", json.dumps(header).encode())
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))  # closing is the message
    raise SystemExit(_relay(unit))


class _Unit(_Line):
    """The connection to a unit that sends a socket for the broker."""

    def __init__(self, fd: int, path: str, key: str) -> None:
        super().__init__(fd)
        self._path, self._key = path, key
        self._broker: socket.socket | None = None

    def read(self) -> bytes | None:
        return unit_network.received(self.fd, READ_BYTES, self._keep)

    def _keep(self, fd: int) -> None:
        if self._broker is None:
            self._broker = unit_network.hand_over(fd, self._path, self._key)
        else:
            os.close(fd)


def _relay(unit: _Line) -> int:
    """Pass input to the unit and output from it; return how the command ended."""
    frames, given = _Frames(), _Line(0)
    while unit.open:
        ready = _wait([unit] + ([given] if given.open and not unit.full else []), [unit])
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
