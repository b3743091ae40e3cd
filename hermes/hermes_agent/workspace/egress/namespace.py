"""Network namespaces for commands: made by a short-lived program, kept by descriptors, entered by each command's box.

The descriptors are all that lives of one: no process stays. The sockets in it were opened inside, so that the agent
accepts there what commands connect to, without being in there and without a socket that anything else can reach.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.workspace.egress.inside import PORTS

__all__ = ["Namespace", "NoNamespace", "make_namespace"]

LIMIT_S = 10.0
_PROGRAM = str(Path(__file__).with_name("inside.py"))


class NoNamespace(OSError):
    """None can be made here; the text says why."""


class Namespace(NamedTuple):
    """A network with a loopback of its own and no way out but its sockets."""

    user: int
    net: int
    listening: tuple[socket.socket, ...]
    """One for each of `PORTS`; none where there is no broker."""
    names: socket.socket | None
    """Where names are asked for."""
    nsenter: str

    def enter_command(self) -> list[str]:
        """Return the words that bring a program into it, which is started while the agent holds it."""
        place = f"/proc/{os.getpid()}/fd"
        spaces = [f"--user={place}/{self.user}", f"--net={place}/{self.net}"]
        return [self.nsenter, *spaces, "--preserve-credentials", "--"]

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens in there. In a worker, while the agent holds it.

        Raises:
            NoNamespace: there is none, with the reason.
        """
        spaces = [os.dup(self.user), os.dup(self.net)]
        try:
            (fd,) = _run_helper([], ["at", *map(str, spaces), address, str(port)], 1, spaces)
        finally:
            for space in spaces:
                os.close(space)
        listening = socket.socket(fileno=fd)
        listening.setblocking(False)
        return listening

    def close(self) -> None:
        """Let go of it: it lives on in the processes that are in it."""
        for one in (*self.listening, *([self.names] if self.names else [])):
            one.close()
        for fd in (self.user, self.net):
            os.close(fd)


def make_namespace(path: str | None, *, sockets: bool) -> Namespace:
    """Make one.

    Args:
        path: where `unshare` and `nsenter` are looked for.
        sockets: whether there is a broker to connect to.

    Raises:
        NoNamespace: the programs or the rights are missing.
    """
    unshare, nsenter = (shutil.which(name, path=path) for name in ("unshare", "nsenter"))
    if unshare is None or nsenter is None:
        raise NoNamespace("the programs unshare and nsenter (package util-linux) are not there")
    spaces = ["--user", "--map-current-user", "--net", "--keep-caps"]
    fds = _run_helper([unshare, *spaces, "--"], ["open"] if sockets else [], len(PORTS) + 3)
    opened = [socket.socket(fileno=fd) for fd in fds[2:]]
    listening, names = (tuple(opened[:-1]), opened[-1]) if sockets else ((), None)
    for one in opened:
        one.setblocking(False)
    return Namespace(fds[0], fds[1], listening, names, nsenter)


def _run_helper(begin: list[str], words: list[str], most: int, keep: Sequence[int] = ()) -> list[int]:
    """Run `inside`, and return the descriptors that it hands over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(LIMIT_S)
        try:
            done = subprocess.run(
                [*begin, sys.executable, "-I", "-S", _PROGRAM, *words],
                stdin=theirs.fileno(),
                pass_fds=keep,
                capture_output=True,
                timeout=LIMIT_S,
                env={"PATH": os.defpath},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise NoNamespace(f"{(begin or [sys.executable])[0]} does not run: {exc}") from exc
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit status {done.returncode}"]
            raise NoNamespace(f"no network namespace can be made: {said[-1]}" if begin else said[-1])
        _, fds, _, _ = socket.recv_fds(ours, 1, most)
    for fd in fds:
        os.set_inheritable(fd, False)
    return list(fds)
