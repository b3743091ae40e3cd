"""A box for commands: in it they can harm the working directory and nothing else.

The sandbox of this machine's commands: the first way to make a box that works here.

A unit of its own for each command, started by systemd through a socket: `packaging/systemd/hermes-exec@.service`.

What a command can do in there, and whether it reaches the network, is written in the unit. The agent needs no rights
for it but to connect, which the commands cannot.
"""

from __future__ import annotations

import abc
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import hermes_agent
from hermes_agent.system.exec_unit import START
from hermes_agent.workspace.egress.networks import UNIT_PROXY, Networks
from hermes_agent.workspace.sandbox.file_rules import is_inside

PROBE_LIMIT_S = 120.0
"""How long a trial may take. It is done once, and after one that fails the agent has no such box until it starts again:
an idle machine needs less than a second, an emulated or very busy one half a minute."""


class Sandbox(abc.ABC):
    """One way to make boxes. Whether it works here is tried out once, at the first command."""

    name: str
    makes_terminals = False
    opens = False
    """Whether it shows folders of the user's, which a command can be let write in."""
    keeps = False
    """Whether it can protect paths below the directory that may be written."""
    network = "there is no network"
    """What the model is told about the network."""
    offline = True
    """Whether commands reach no network but their own."""
    bounded = False
    """Whether the box itself limits memory and processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problem: str | None = None

    @property
    def problem(self) -> str:
        """Why no box can be made here; empty when it can."""
        with self._lock:
            if self._problem is None:
                self._problem = self.probe()
            return self._problem

    @abc.abstractmethod
    def probe(self) -> str:
        """Make a box and return why that failed; empty when it did not."""

    @abc.abstractmethod
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
        """Return the program and the environment that run `argv` in a box, in the resolved directory `cwd`.

        Args:
            root: what may be written; elsewhere `cwd` can be read at most.
            network: whose network it shares; empty: it has one of its own.
            tty: the command has a terminal, which the box makes when `makes_terminals`.
            beside: a directory that it sees, too: the working directory, where `root` is another.
            keep: paths below `root` that it cannot change, where the box `keeps` any.
            sockets: paths below `root` of the Unix sockets in it: whose program is outside, that one it cannot reach.
        """

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield rows of `(ok, label, detail)` about what the box shows, for `hermes doctor`."""
        yield from ()

    def network_problem(self) -> str:
        """Return why commands do not have the network that `terminal.network` asks for; empty when they have."""
        return ""

    def is_hidden(self, cwd: str, root: str, beside: str = "") -> bool:
        """Say whether a directory is known not to be there in a box for `root`."""
        return False

    def is_writable(self, root: str) -> bool:
        """Say whether a command may write to a directory that is its `root`."""
        return True


def probe_sandbox(argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str = "") -> str:
    """Run a program that does nothing, in a box; return what it says when it fails, under its name."""
    name = name or argv[0]
    try:
        done = run_probe(argv, {"PATH": os.defpath, **(env or {})})
    except OSError as exc:
        return f"{name} does not run: {exc}"
    said = done.stderr.decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else f"{name} says: {said or f'exit status {done.returncode}'}"


def run_probe(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program that tries something out, without input.

    Raises:
        OSError: it cannot be run, or has not ended in time.
    """
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"it had not ended after {PROBE_LIMIT_S:g} s: it hangs, or the machine is too busy; a restart tries again"
        ) from None


logger = logging.getLogger(__name__)

Mode = Literal["auto", "systemd", "bwrap", "off"]
"""`terminal.sandbox`: a box where one can be made; no command without one of that kind; none."""


class SandboxSelector:
    """Args: `boxes` are the ways to make one, best first; `mode` is what the operator wants."""

    def __init__(self, boxes: Sequence[Sandbox], *, mode: Mode = "auto") -> None:
        self.mode = mode
        self.sandboxes = [box for box in boxes if mode in ("auto", box.name)]
        self._lock = threading.Lock()
        self._found: Sandbox | None = None
        self._is_selected = mode == "off"

    @property
    def selected(self) -> Sandbox | None:
        """What commands are put into; None where none can be made, or none is wanted."""
        with self._lock:
            if not self._is_selected:
                self._is_selected = True
                self._found = next((box for box in self.sandboxes if not box.problem), None)
                if self._found is None:
                    logger.warning("commands run without a sandbox, and each is asked about: %s", self.problem)
            return self._found

    @property
    def works(self) -> bool:
        """Whether commands run in a box."""
        return self.selected is not None

    @property
    def problem(self) -> str:
        """Why no box can be made here; empty when one can."""
        problems = [box.problem for box in self.sandboxes]
        return "; ".join(problems) if all(problems) else ""

    @property
    def refusal(self) -> str:
        """Why no command may run at all: the operator wants a box and none can be made. Empty when they may."""
        if self.mode in ("auto", "off") or self.works:
            return ""
        what = "enable hermes-exec.socket" if self.mode == "systemd" else "install bubblewrap and allow user namespaces"
        return (
            f"no sandbox can be made: {self.problem}. `terminal.sandbox: {self.mode}` runs nothing without one; {what},"
            " or set it to `auto`, which asks for each command"
        )


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
