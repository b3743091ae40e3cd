"""Sandboxes for local commands: in one they can change the working directory and nothing else.

`SandboxSelector` selects the first sandbox that works on this machine. `SystemdSandbox` runs each command in a unit of
its own, which systemd starts through a socket (`packaging/systemd/hermes-exec@.service`). The unit defines what a
command can do and whether it reaches the network. The agent needs only the right to connect to the socket, which
commands cannot. `BubblewrapSandbox` has a module of its own.
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
from typing import TYPE_CHECKING, Literal

import hermes_agent
from hermes_agent.workspace.sandbox.file_rules import is_inside

if TYPE_CHECKING:
    from hermes_agent.workspace.egress.networks import Networks

PROBE_LIMIT_S = 120.0
"""Time limit of a probe in seconds. A probe runs once; after a failure the sandbox is not used until the next start.
An idle machine needs less than a second, an emulated or very busy one half a minute.
"""


class Probed(abc.ABC):
    """A mechanism of the machine that is probed once, at its first use. Safe for threads."""

    probe_limit_s = PROBE_LIMIT_S

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problem: str | None = None

    @property
    def problem(self) -> str:
        """Why it does not work on this machine; empty when it does."""
        with self._lock:
            if self._problem is None:
                self._problem = self.probe()
            return self._problem

    @abc.abstractmethod
    def probe(self) -> str:
        """Try the mechanism and return why that failed; empty when it works."""


class Sandbox(Probed):
    """A kind of sandbox; a probe at the first command shows whether it works on this machine."""

    name: str
    makes_terminals = False
    opens = False
    """Whether it shows folders of the user, in which a command can be allowed to write."""
    keeps = False
    """Whether it can protect paths below the writable directory."""
    network = "there is no network"
    """The description of the network for the model."""
    offline = True
    """Whether commands reach no network but their own."""
    bounded = False
    """Whether the sandbox itself limits memory and processes."""

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
        work_dir: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        """Return the program and the environment that run `argv` in the sandbox.

        Args:
            argv: the command.
            cwd: its resolved working directory.
            env: its environment.
            root: the directory that may be written; `cwd` outside it can only be read.
            network: the key of a shared network; empty for a network of its own.
            tty: whether the command has a terminal; the sandbox makes it when `makes_terminals`.
            work_dir: an additional readable directory: the working directory of the session if `root` is another.
            keep: paths below `root` that it cannot change, if the sandbox `keeps` paths.
            sockets: paths of the Unix sockets below `root`; those of programs outside the sandbox are covered.
        """

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield rows `(ok, label, detail)` about the visible files, for `hermes doctor`."""
        yield from ()

    def network_problem(self) -> str:
        """Return why commands lack the network of `terminal.network`; empty when they have it."""
        return ""

    def is_hidden(self, cwd: str, root: str, work_dir: str = "") -> bool:
        """Return whether a directory does not exist in a sandbox for `root`."""
        return False

    def is_writable(self, root: str) -> bool:
        """Return whether a command may write to a directory as its `root`."""
        return True


def probe_sandbox(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str = "", limit_s: float = PROBE_LIMIT_S
) -> str:
    """Run a program without effect in a sandbox; return its error message, or "" on success."""
    name = name or argv[0]
    try:
        done = run_probe(argv, {"PATH": os.defpath, **(env or {})}, limit_s)
    except OSError as exc:
        return f"{name} does not run: {exc}"
    message = done.stderr.decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else f"{name} says: {message or f'exit status {done.returncode}'}"


def run_probe(
    argv: Sequence[str], env: Mapping[str, str], limit_s: float = PROBE_LIMIT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run a probe without input.

    Raises:
        OSError: the program cannot be run, or does not end in time.
    """
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"the probe did not end within {limit_s:g} s: it hangs, or the machine is too busy; a restart tries again"
        ) from None


logger = logging.getLogger(__name__)

Mode = Literal["auto", "systemd", "bwrap", "off"]
"""`terminal.sandbox`: `auto` uses a sandbox that works, a name requires that sandbox, `off` uses none."""


class SandboxSelector:
    """The selection of the sandbox.

    Args:
        sandboxes: the kinds of sandbox, best first.
        mode: `terminal.sandbox`.
    """

    def __init__(self, sandboxes: Sequence[Sandbox], *, mode: Mode = "auto") -> None:
        self.mode = mode
        self.sandboxes = [sandbox for sandbox in sandboxes if mode in ("auto", sandbox.name)]
        self._lock = threading.Lock()
        self._found: Sandbox | None = None
        self._is_selected = mode == "off"

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox for commands; None if none works, or the mode is `off`."""
        with self._lock:
            if not self._is_selected:
                self._is_selected = True
                self._found = next((sandbox for sandbox in self.sandboxes if not sandbox.problem), None)
                if self._found is None:
                    logger.warning("no sandbox, each command needs an approval: %s", self.problem)
            return self._found

    @property
    def works(self) -> bool:
        """Whether commands run in a sandbox."""
        return self.selected is not None

    @property
    def problem(self) -> str:
        """Why no sandbox works on this machine; empty when one does."""
        problems = [sandbox.problem for sandbox in self.sandboxes]
        return "; ".join(problems) if all(problems) else ""

    @property
    def refusal(self) -> str:
        """Why no command may run: the mode requires a sandbox that does not work; empty when commands may run."""
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
"""Prints whether there is a network; `/sys` may show that of another namespace."""


class SystemdSandbox(Sandbox):
    """The sandbox of systemd units.

    Args:
        socket: the socket at which systemd listens.
        work: the directory that units can write.
        networks: the networks with their broker; None for none.
    """

    name = "systemd"
    makes_terminals = True
    bounded = True

    def __init__(self, socket: str, work: str, networks: Networks | None = None) -> None:
        super().__init__()
        self._networks = networks
        self._alone = False
        """Whether units have only a loopback interface."""
        self._socket, self._work = socket, work

    def is_writable(self, root: str) -> bool:
        return is_inside(root, self._work)

    def probe(self) -> str:
        if not Path(self._socket).is_socket():
            return f"there is no socket {self._socket} (hermes-exec.socket)"
        argv, _ = self.wrap([shutil.which("sh") or "/bin/sh", "-c", _PROBE], self._work, {}, root=self._work)
        try:
            done = run_probe(argv, {}, self.probe_limit_s)
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
        work_dir: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        from hermes_agent.system.exec_unit import START  # here and below: for a machine with such units
        from hermes_agent.workspace.egress.units import UNIT_PROXY

        source = str(Path(hermes_agent.__file__).parents[1])
        inside, broker, way = dict(env), "-", "-"
        if network and self._alone and self._networks is not None and (path := self._networks.units_socket()):
            broker = path
            if self._networks.mode != "off":
                way, inside = "out", {**inside, **UNIT_PROXY}
        words = [START, source, self._socket, "tty" if tty else "-", broker, network or "-", way, cwd]
        return [sys.executable, "-I", "-S", "-c", *words, *argv], inside
