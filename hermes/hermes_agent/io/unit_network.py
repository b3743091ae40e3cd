"""The network of a command in a unit: a socket that is opened in there, and accepted at by the agent.

The unit has a loopback of its own. Its end of the exec socket listens there before the command starts, and hands the
listening socket over; the agent's end passes it to the broker in the daemon, which accepts connections at it. Imports
little.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["PORT", "hand_over", "is_listening", "offered", "received"]

PORT = 3128
"""Where programs in a unit find the broker; there is nothing else in that network."""
_BACKLOG = 64


def offered(connection: int, frame: bytes, env: dict[str, str]) -> bool:
    """Listen, and send the socket with a frame; tell ssh in `env` how to connect. False where that cannot be."""
    proxy = [sys.executable, "-I", "-S", str(Path(__file__).with_name("through.py")), str(PORT)]
    try:
        listening = socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG)
        with listening, socket.socket(fileno=os.dup(connection)) as agent:
            socket.send_fds(agent, [frame], [listening.fileno()])
    except OSError as exc:
        sys.stderr.write(f"the command has no network: {exc.strerror or exc}\n")
        return False
    command = shlex.quote(f"ProxyCommand={shlex.join(proxy)} %h %p")
    env.setdefault("GIT_SSH_COMMAND", f"ssh -o {command}")
    return True


def received(connection: int, size: int, keep: Callable[[int], None]) -> bytes | None:
    """Read as `os.read` does, None when there is nothing now; `keep` is given a socket that came with it."""
    with socket.socket(fileno=os.dup(connection)) as unit:
        try:
            data, fds, _, _ = socket.recv_fds(unit, size, 1)
        except BlockingIOError:
            return None
        except OSError:
            return b""
    for fd in fds:
        keep(fd)
    return data


def hand_over(listening: int, path: str, key: str) -> socket.socket | None:
    """Give a listening socket to the broker at `path`; the returned connection says by its end that it ended."""
    broker = socket.socket(socket.AF_UNIX)
    try:
        broker.connect(path)
        socket.send_fds(broker, [key.encode()], [listening])
    except OSError as exc:
        sys.stderr.write(f"the command has no network: {exc.strerror or exc}\n")
        broker.close()
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(listening)
    return broker


def is_listening(one: socket.socket) -> bool:
    """Say whether a socket takes connections of TCP."""
    kind = one.family == socket.AF_INET and one.type == socket.SOCK_STREAM
    return kind and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
