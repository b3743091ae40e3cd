"""A unit of its own for each command, started by systemd through a socket: `packaging/systemd/hermes-exec@.service`.

What a command can do in there, and whether it reaches the network, is written in the unit. The agent needs no rights
for it but to connect, which the commands cannot.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import hermes_agent
from hermes_agent.io.exec_unit import START
from hermes_agent.workspace.box import Sandbox, run_probe
from hermes_agent.workspace.egress.networks import UNIT_PROXY, Networks
from hermes_agent.workspace.places import is_inside

__all__ = ["SystemdSandbox"]

_PROBE = """
test -d . || exit
[ -r /proc/self/net/dev ] || echo network
while read -r device rest; do
    case "$device" in lo:*|Inter-*|face*) ;; *) echo network ;; esac
done < /proc/self/net/dev
exit 0
"""
"""Says whether there is a network; what `/sys` shows may be another one's."""


class SystemdSandbox(Sandbox):
    """Args: `socket` is where systemd listens; `work` a directory that units have; `networks` has the broker."""

    name = "systemd"
    makes_terminals = True
    bounded = True

    def __init__(self, socket: str, work: str, networks: Networks | None = None) -> None:
        super().__init__()
        self._networks = networks
        self._alone = False
        """Whether units have nothing but a loopback."""
        self._socket, self._work = socket, work

    def is_writable(self, root: str) -> bool:
        return is_inside(root, self._work)

    def probe(self) -> str:
        if not Path(self._socket).is_socket():
            return f"there is no socket {self._socket} (hermes-exec.socket)"
        argv, _ = self.wrap([shutil.which("sh") or "/bin/sh", "-c", _PROBE], self._work, {}, root=self._work)
        try:
            done = run_probe(argv, {})
        except OSError as exc:
            return f"no unit answers at {self._socket}: {exc}"
        if done.returncode:
            return f"no unit runs at {self._socket}: {done.stderr.decode('utf-8', 'replace').strip()}"
        if b"network" in done.stdout:
            self.network = "the network can be reached"
            self.offline = False
        elif self._networks is not None:
            self._alone = True
            self.network, self.offline = self._networks.units_description, self._networks.mode == "off"
        return ""

    def network_problem(self) -> str:
        if not self._alone and self._networks is not None:
            return "units have a network of their own (PrivateNetwork=no), which the table of hosts does not rule"
        return (
            "" if self._networks is None or self._networks.units_socket() else "the broker cannot be reached by units"
        )

    def wrap(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        *,
        root: str,
        tty: bool = False,
        network: str = "",
        keep: Sequence[str] = (),
        sockets: Sequence[str] = (),
        beside: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        source = str(Path(hermes_agent.__file__).parents[1])
        inside, broker, way = dict(env), "-", "-"
        if network and self._alone and self._networks is not None and (path := self._networks.units_socket()):
            broker = path
            if self._networks.mode != "off":
                way, inside = "out", {**inside, **UNIT_PROXY}
        words = [START, source, self._socket, "tty" if tty else "-", broker, network or "-", way, cwd]
        return [sys.executable, "-I", "-S", "-c", *words, *argv], inside
