"""The unit's end of the exec socket, with a pair of sockets in the place of systemd's."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

SERVE = "from hermes_agent.system import exec_unit; exec_unit.HEADER_S = 0.5; exec_unit.serve()"


@pytest.fixture
def unit() -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdin=theirs, env={"PYTHONPATH": ":".join(sys.path)})
    theirs.close()
    yield ours, process
    ours.close()
    process.wait(timeout=20)


def answer(connection: socket.socket) -> dict[str, object]:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    kind, length = struct.unpack("!cI", data[:5])
    assert kind == b"x" and length == len(data) - 5
    found = json.loads(data[5:])
    assert isinstance(found, dict)
    return found


def frame(kind: bytes, data: bytes) -> bytes:
    return struct.pack("!cI", kind, len(data)) + data


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("sent", [b"", b"h", frame(b"h", b"x" * 100)[:50]], ids=["nothing", "a letter", "half"])
def test_who_does_not_say_what_is_to_run_holds_no_unit(unit, sent: bytes) -> None:
    connection, process = unit
    connection.sendall(sent)
    assert answer(connection) == {"error": "ValueError: no command came within 0.5 s"}
    assert process.wait(timeout=20) == 0


@pytest.mark.attack("interfaces")
def test_letters_one_by_one_do_not_make_the_time_longer(unit) -> None:
    connection, process = unit
    began = time.monotonic()
    with pytest.raises(OSError):
        for letter in frame(b"h", b"x" * 200):
            connection.sendall(bytes([letter]))
            time.sleep(0.05)
    assert time.monotonic() - began < 8
    assert process.wait(timeout=20) == 0


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize(
    "sent",
    [
        b"h" + struct.pack("!I", 2**31),
        frame(b"h", b"no JSON"),
        frame(b"h", b"[]"),
        frame(b"h", b"{}"),
        frame(b"h", b'{"argv": 7, "cwd": "/", "env": {}}'),
        frame(b"h", b'{"argv": ["true"], "cwd": "/", "env": []}'),
        frame(b"i", b"input before the command"),
        frame(b"h", b'{"argv": ["/nowhere"], "cwd": "/", "env": {}}'),
        frame(b"h", b'{"argv": ["a\\u0000b"], "cwd": "/", "env": {}}'),
    ],
)
def test_nonsense_is_answered_and_ends_the_unit(unit, sent: bytes) -> None:
    connection, process = unit
    connection.sendall(sent)
    assert set(answer(connection)) == {"error"}
    assert process.wait(timeout=20) == 0
