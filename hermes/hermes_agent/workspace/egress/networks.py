"""The networks of commands: one network namespace for each session, with a broker.

A short-lived program makes a namespace (`workspace.egress.namespace_process`). The agent keeps it by descriptors,
without a process, and each sandbox enters it. The sockets of the broker were opened inside, so that the agent accepts
connections of commands without a socket that any other program can reach.

A network is made at the first command of a session, and closed with the session or when it was not used for long.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.policy.network import HostTables, Mode
from hermes_agent.workspace.egress.destinations import ConnectionPolicy, NetworkCall
from hermes_agent.workspace.egress.namespace_process import PORTS

if TYPE_CHECKING:
    from hermes_agent.runtime.bridge import Bridge
    from hermes_agent.runtime.loops import LoopThread
    from hermes_agent.workspace.egress.broker import Broker, BrokerLimits
    from hermes_agent.workspace.egress.units import NetworkUnits


logger = logging.getLogger(__name__)

LIMIT_S = 10.0
_PROGRAM = str(Path(__file__).with_name("namespace_process.py"))


class NoNamespace(OSError):
    """No namespace can be made; the message has the reason."""


class Namespace(LazyNamedTuple):
    """A network namespace with a loopback of its own; its sockets are the only way out."""

    user: int
    net: int
    listening: tuple[socket.socket, ...]
    """A listening socket for each of `PORTS`; () without a broker."""
    names: socket.socket | None
    """The socket for DNS queries."""
    nsenter: str

    def enter_command(self) -> list[str]:
        """Return the words that start a program in the namespace while the agent holds it."""
        place = f"/proc/{os.getpid()}/fd"
        spaces = [f"--user={place}/{self.user}", f"--net={place}/{self.net}"]
        return [self.nsenter, *spaces, "--preserve-credentials", "--"]

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens in the namespace. Call it in a worker while the agent holds it.

        Raises:
            NoNamespace: the socket cannot be opened.
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
        """Close the descriptors; the namespace exists as long as processes in it."""
        for opened in (*self.listening, *([self.names] if self.names else [])):
            opened.close()
        for fd in (self.user, self.net):
            os.close(fd)


def make_namespace(path: str | None, *, sockets: bool) -> Namespace:
    """Make a namespace.

    Args:
        path: the PATH for `unshare` and `nsenter`.
        sockets: whether to open sockets for a broker.

    Raises:
        NoNamespace: programs or permissions are missing.
    """
    unshare, nsenter = (shutil.which(name, path=path) for name in ("unshare", "nsenter"))
    if unshare is None or nsenter is None:
        raise NoNamespace("the programs unshare and nsenter (package util-linux) are not installed")
    spaces = ["--user", "--map-current-user", "--net", "--keep-caps"]
    fds = _run_helper([unshare, *spaces, "--"], ["open"] if sockets else [], len(PORTS) + 3)
    opened = [socket.socket(fileno=fd) for fd in fds[2:]]
    listening, names = (tuple(opened[:-1]), opened[-1]) if sockets else ((), None)
    for each in opened:
        each.setblocking(False)
    return Namespace(fds[0], fds[1], listening, names, nsenter)


def _run_helper(begin: list[str], words: list[str], most: int, keep: Sequence[int] = ()) -> list[int]:
    """Run the program for namespaces, and return the descriptors that it passes."""
    parent, child = socket.socketpair()
    with parent, child:
        parent.settimeout(LIMIT_S)
        try:
            done = subprocess.run(
                [*begin, sys.executable, "-I", "-S", _PROGRAM, *words],
                stdin=child.fileno(),
                pass_fds=keep,
                capture_output=True,
                timeout=LIMIT_S,
                env={"PATH": os.defpath},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise NoNamespace(f"{(begin or [sys.executable])[0]} does not run: {exc}") from exc
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit status {done.returncode}"]
            raise NoNamespace(f"no network namespace can be made: {lines[-1]}" if begin else lines[-1])
        _, fds, _, _ = socket.recv_fds(parent, 1, most)
    for fd in fds:
        os.set_inheritable(fd, False)
    return list(fds)


MOST_NETWORKS = 64
RETRY_S = 60.0
"""Seconds after a failure in which no network is made."""
CLOSE_S = 5.0
_HOW = "through a proxy (`http_proxy`) or at ports 22, 80, 443 and those that the operator lists"
_DESCRIPTIONS = {
    "off": "there is no network",
    "hosts": f"of the network, hosts that the operator lists alone are reached, {_HOW}",
    "ask": f"the user is asked about each host of the network that the operator does not list, {_HOW}",
    "on": f"public hosts of the network are reached, {_HOW}",
}


@lazy_dataclass(eq=False)
class _Network:
    """A network namespace with its broker."""

    namespace: Namespace
    broker: Broker | None = None
    works: list[NetworkCall] = field(default_factory=list)
    """The running calls, the latest last."""
    last: NetworkCall | None = None

    def work(self) -> tuple[NetworkCall | None, bool]:
        try:
            return self.works[-1], True
        except IndexError:
            return self.last, False


class Networks:
    """The networks of all sessions. Safe for threads.

    Args:
        mode: `terminal.network`.
        tables: the table of hosts.
        bridge: through which users are asked.
        path: the PATH for programs.
        limits: what the commands of each network may use; None for the usual limits.
        most: most open networks; the least recently used one is closed.
    """

    def __init__(
        self,
        mode: Mode,
        tables: HostTables,
        bridge: Bridge,
        *,
        path: str | None = None,
        limits: BrokerLimits | None = None,
        most: int = MOST_NETWORKS,
    ) -> None:
        self.mode, self.limits, self.most = mode, limits, most
        self._policy = ConnectionPolicy(mode, tables, bridge)
        self._bridge, self._path = bridge, path
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Network] = OrderedDict()
        self._begun: dict[str, list[NetworkCall]] = {}
        self._loop: LoopThread | None = None
        self._units: NetworkUnits | None = None
        self._problem, self._until = "", 0.0

    @property
    def description(self) -> str:
        """The description of the network for the model."""
        return _DESCRIPTIONS[self.mode]

    @property
    def units_description(self) -> str:
        """The description of the network for the model when commands run in systemd units."""
        return _DESCRIPTIONS[self.mode].replace(_HOW, "through a proxy (`http_proxy`; git over SSH, too)")

    @property
    def problem(self) -> str:
        """Why the last network could not be made; empty when it was made."""
        return self._problem

    def namespace(self, key: str) -> Namespace | None:
        """Return the namespace of a session, or None when none can be made. Call it in a worker."""
        with self._lock:
            network = self._known.get(key)
            if network is None and time.monotonic() < self._until:
                return None
            if network is None:
                try:
                    network = self._known[key] = self._make(key)
                except (OSError, RuntimeError) as exc:
                    self._problem, self._until = str(exc), time.monotonic() + RETRY_S
                    logger.warning("network: not made, commands have none: %s", exc)
                    return None
                self._problem = ""
            self._known.move_to_end(key)
            gone = self._pop_idle()
        for old in gone:
            self._end(old)
        return network.namespace

    def probe(self) -> str:
        """Make a network and close it; return why that failed, or ""."""
        key = "hermes doctor"
        namespace = self.namespace(key)
        self.close(key)
        return "" if namespace is not None else self._problem

    @contextlib.contextmanager
    def use(self, key: str, work: NetworkCall) -> Iterator[NetworkCall]:
        """Attribute the commands of a session to a call within the context."""
        with self._lock:
            works = self._begun.setdefault(key, [])
            works.append(work)
            if (network := self._known.get(key)) is not None:
                network.works, network.last = works, work
        try:
            yield work
        finally:
            with self._lock:
                if self.mode != "off" and key not in self._known:
                    work.problem = self._problem
                    work.in_unit = self._units is not None
                works.remove(work)
                if not works:
                    self._begun.pop(key, None)
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):
                    self._loop.begin(_cancel_questions(work))

    def units_socket(self) -> str:
        """Return the socket at which systemd units join their session; empty when there is none."""
        from hermes_agent.workspace.egress.units import NetworkUnits  # for the first command

        with self._lock:
            if self._units is None:
                self._units = NetworkUnits(None if self.mode == "off" else self._policy, self._work_of)
                try:
                    self._running_loop().run(self._units.open(), timeout_s=CLOSE_S)
                except (OSError, RuntimeError) as exc:
                    self._units = None
                    logger.warning("network: not available in systemd units: %s", exc)
                    return ""
            return self._units.path

    def _work_of(self, key: str) -> NetworkCall | None:
        works = self._begun.get(key)
        return works[-1] if works else None

    def _running_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = self._bridge.loop("hermes-network")
        return self._loop

    def close(self, key: str) -> None:
        """Close the network of a session; processes in it keep it, without a way out."""
        with self._lock:
            network = self._known.pop(key, None)
        if network is not None:
            self._end(network)

    def close_all(self) -> None:
        """Close all networks, and stop the brokers."""
        with self._lock:
            networks = list(self._known.values())
            self._known.clear()
            loop, self._loop = self._loop, None
            units, self._units = self._units, None
        if units is not None and loop is not None:
            with contextlib.suppress(TimeoutError, RuntimeError):
                loop.run(units.close(), timeout_s=CLOSE_S)
        for network in networks:
            self._end(network, loop)
        if loop is not None:
            loop.close()

    def _make(self, key: str) -> _Network:
        network = _Network(make_namespace(self._path, sockets=self.mode != "off"))
        if key in self._begun:
            network.works = self._begun[key]
            network.last = network.works[-1]
        if self.mode != "off":
            from hermes_agent.workspace.egress.broker import LIMITS, Broker  # for the first command

            loop = self._running_loop()
            space = network.namespace
            limits = self.limits or LIMITS
            network.broker = Broker(
                space.listening, space.names, self._policy, network.work, space.listen, limits=limits
            )
            try:
                loop.run(network.broker.open(), timeout_s=CLOSE_S)
            except BaseException:
                network.namespace.close()
                raise
        return network

    def _pop_idle(self) -> list[_Network]:
        idle = [key for key in self._known if key not in self._begun]
        return [self._known.pop(key) for key in idle[: max(len(self._known) - self.most, 0)]]

    def _end(self, network: _Network, loop: LoopThread | None = None) -> None:
        loop = loop or self._loop
        if network.broker is not None and loop is not None:
            try:
                loop.run(network.broker.close(), timeout_s=CLOSE_S)
            except (TimeoutError, RuntimeError) as exc:
                logger.warning("network: connections not closed: %s", exc)
        network.namespace.close()


async def _cancel_questions(work: NetworkCall) -> None:
    """Cancel the approval requests of an ended call."""
    for answer in work.answers.values():
        answer.cancel()
