"""The networks of all tasks: made at their first command, let go of when the task is closed or long unused."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.io.unit_network import PORT
from hermes_agent.policy.network import HostTables, Mode
from hermes_agent.workspace.egress.broker import Broker
from hermes_agent.workspace.egress.deciding import ConnectionPolicy, NetworkCall
from hermes_agent.workspace.egress.inside import FAKE
from hermes_agent.workspace.egress.namespace import Namespace, make_namespace
from hermes_agent.workspace.egress.units import NetworkUnits

if TYPE_CHECKING:
    from hermes_agent.io.bridge import Bridge
    from hermes_agent.io.loop_thread import LoopThread

__all__ = ["MOST_NETWORKS", "PROXY", "RESOLVER", "Networks"]

logger = logging.getLogger(__name__)

MOST_NETWORKS = 64
"""Networks that are held; the one that was used longest ago is let go of."""
AGAIN_S = 60.0
"""After a failure, how long no further network is made."""
CLOSE_S = 5.0
_BROKER = f"http://{FAKE[0]}:80"
_HOW = "through a proxy (`http_proxy`) or at ports 22, 80, 443 and those that the operator lists"
PROXY = {
    **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), _BROKER),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""What tells programs about the broker."""
_ABOUT = {
    "off": "there is no network",
    "hosts": f"of the network, hosts that the operator lists alone are reached, {_HOW}",
    "ask": f"the user is asked about each host of the network that the operator does not list, {_HOW}",
    "on": f"public hosts of the network are reached, {_HOW}",
}
UNIT_PROXY = {**PROXY, **{name: f"http://127.0.0.1:{PORT}" for name, value in PROXY.items() if value == _BROKER}}
"""The same in a unit of systemd."""
RESOLVER = str(Path(__file__).with_name("resolv.txt"))
"""What `/etc/resolv.conf` is for commands."""


@dataclass(eq=False)
class _Network:
    namespace: Namespace
    broker: Broker | None = None
    works: list[NetworkCall] = field(default_factory=list)
    """The calls under way, the youngest last."""
    last: NetworkCall | None = None

    def work(self) -> tuple[NetworkCall | None, bool]:
        try:
            return self.works[-1], True
        except IndexError:
            return self.last, False


class Networks:
    """Safe for threads.

    Args:
        mode: `terminal.network`.
        path: where programs are looked for.
    """

    def __init__(self, mode: Mode, tables: HostTables, bridge: Bridge, *, path: str | None = None) -> None:
        self.mode = mode
        self._deciding = ConnectionPolicy(mode, tables, bridge)
        self._bridge, self._path = bridge, path
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Network] = OrderedDict()
        self._begun: dict[str, list[NetworkCall]] = {}
        self._loop: LoopThread | None = None
        self._units: NetworkUnits | None = None
        self._problem, self._until = "", 0.0

    @property
    def description(self) -> str:
        """What the model is told."""
        return _ABOUT[self.mode]

    @property
    def units_description(self) -> str:
        """What the model is told where commands run in units of systemd."""
        return _ABOUT[self.mode].replace(_HOW, "through a proxy (`http_proxy`; git over SSH, too)")

    @property
    def problem(self) -> str:
        """Why the last network could not be made; empty when it could."""
        return self._problem

    def namespace(self, key: str) -> Namespace | None:
        """Return the network of a task; None where none can be made. In a worker."""
        with self._lock:
            network = self._known.get(key)
            if network is None and time.monotonic() < self._until:
                return None
            if network is None:
                try:
                    network = self._known[key] = self._made(key)
                except (OSError, RuntimeError) as exc:
                    self._problem, self._until = str(exc), time.monotonic() + AGAIN_S
                    logger.warning("network: each command has one of its own, which leads nowhere: %s", exc)
                    return None
                self._problem = ""
            self._known.move_to_end(key)
            gone = self._superfluous()
        for old in gone:
            self._end(old)
        return network.namespace

    def probe(self) -> str:
        """Make a network and let go of it; return why that failed, or an empty text."""
        key = "hermes doctor"
        made = self.namespace(key)
        self.close(key)
        return "" if made is not None else self._problem

    @contextlib.contextmanager
    def use(self, key: str, work: NetworkCall) -> Iterator[NetworkCall]:
        """Let the commands of a task run for this call meanwhile."""
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
        """Return the socket where the commands of units join their session; empty where there is none."""
        with self._lock:
            if self._units is None:
                self._units = NetworkUnits(None if self.mode == "off" else self._deciding, self._work_of)
                try:
                    self._running_loop().run(self._units.open(), timeout_s=CLOSE_S)
                except (OSError, RuntimeError) as exc:
                    self._units = None
                    logger.warning("network: units have none: %s", exc)
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
        """Let go of a task's network; processes that are in it keep it, without a way out."""
        with self._lock:
            network = self._known.pop(key, None)
        if network is not None:
            self._end(network)

    def close_all(self) -> None:
        """Let go of all of them, and end the broker."""
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

    def _made(self, key: str) -> _Network:
        network = _Network(make_namespace(self._path, sockets=self.mode != "off"))
        if key in self._begun:
            network.works = self._begun[key]
            network.last = network.works[-1]
        if self.mode != "off":
            loop = self._running_loop()
            space = network.namespace
            network.broker = Broker(space.listening, space.names, self._deciding, network.work, space.listen)
            try:
                loop.run(network.broker.open(), timeout_s=CLOSE_S)
            except BaseException:
                network.namespace.close()
                raise
        return network

    def _superfluous(self) -> list[_Network]:
        idle = [key for key in self._known if key not in self._begun]
        return [self._known.pop(key) for key in idle[: max(len(self._known) - MOST_NETWORKS, 0)]]

    def _end(self, network: _Network, loop: LoopThread | None = None) -> None:
        loop = loop or self._loop
        if network.broker is not None and loop is not None:
            try:
                loop.run(network.broker.close(), timeout_s=CLOSE_S)
            except (TimeoutError, RuntimeError) as exc:
                logger.warning("network: connections did not end: %s", exc)
        network.namespace.close()


async def _cancel_questions(work: NetworkCall) -> None:
    """Close the questions of a call that has ended."""
    for answer in work.answers.values():
        answer.cancel()
