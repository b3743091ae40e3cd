"""Destinations of commands: the decision about a host, and the connection to it.

`ConnectionPolicy` decides by the table of hosts, then by the mode, then by the answer of the user. `connect` connects
to an address that was judged, or through the proxy of the operator. `relay` forwards the data.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from urllib.parse import unquote, urlsplit

from hermes_agent.adapters.proxies import resolve_proxy_url
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.policy import Refusal
from hermes_agent.policy.network import HostTable, HostTables, Mode, format_entry
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.system.safe_http import METADATA_NAMES
from hermes_agent.tools import CallScope
from hermes_agent.tools.call_scope import ReachedHost

logger = logging.getLogger(__name__)

IDLE_S = 900.0
"""Seconds after which a silent connection is closed."""
PIECE = 65_536

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def relay(command: Ends, server: Ends, moved: list[int]) -> None:
    """Forward data in both directions; `moved` counts the bytes sent and received.

    Raises:
        OSError: a connection failed.
        TimeoutError: no data moved for `IDLE_S`.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE_S) as limit:

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: int) -> None:
            while piece := await source.read(PIECE):
                moved[way] += len(piece)
                limit.reschedule(loop.time() + IDLE_S)
                sink.write(piece)
                await sink.drain()
            with contextlib.suppress(OSError):
                sink.write_eof()

        async with asyncio.TaskGroup() as both:
            both.create_task(pump(command[0], server[1], 0))
            both.create_task(pump(server[0], command[1], 1))


class HostUnreachable(OSError):
    """A host accepts no connection; the message has the reason."""


async def connect(host: str, port: int, addresses: Sequence[str]) -> Ends:
    """Return a connection to a host, at the first of its judged addresses that accepts one.

    Raises:
        HostUnreachable: no address accepts a connection.
    """
    if (proxy := resolve_proxy_url(target_hosts=[host])) is not None:
        return await _through(proxy, host, port)
    why = "it has no address"
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as exc:
            why = exc.strerror or str(exc)
    raise HostUnreachable(f"{host}:{port} accepts no connection: {why}")


async def _through(proxy: str, host: str, port: int) -> Ends:
    """Return a connection through the proxy of the operator, which resolves the name again."""
    parts = urlsplit(proxy)
    if parts.scheme != "http":
        raise HostUnreachable(f"the proxy of the environment is {parts.scheme}://: commands need one that is http://")
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as exc:
        raise HostUnreachable(f"the proxy of the environment accepts no connection: {exc}") from exc
    try:
        name = f"[{host}]" if ":" in host else host
        lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}"]
        if parts.username:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(None, 2)[1:2] != [b"200"]:
            raise HostUnreachable(f"the proxy of the environment refused {host}:{port}")
    except BaseException as exc:
        writer.close()
        if isinstance(exc, OSError | EOFError | asyncio.LimitOverrunError) and not isinstance(exc, HostUnreachable):
            raise HostUnreachable(f"the proxy of the environment does not answer: {exc}") from exc
        raise
    return reader, writer


MOST_ASKED = 10
"""Most hosts about which the user is asked for one call."""
MOST_NOTED = 1000
MOST_NAMED = 5
"""Most hosts that a result names."""

_UNRESOLVED = (
    "Could not resolve",
    "Temporary failure in name resolution",
    "Name or service not known",
    "EAI_AGAIN",
    "ENOTFOUND",
)
"""Output of programs that cannot resolve a name."""

UNLISTED = "`network.hosts` does not name it (`terminal.network` is `hosts`)"


@lazy_dataclass(eq=False)
class NetworkCall:
    """A running tool call with commands that use the network."""

    session: str
    tool: str
    scope: CallScope | None
    what: str = ""
    """The command, for the approval request."""
    answers: dict[tuple[str, int], asyncio.Task[str]] = field(default_factory=dict)
    """Answers of the user by host and port: the reason of a refusal, or ""."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why hosts were not reached, for the result."""
    looked_up: dict[str, list[int]] = field(default_factory=dict)
    """Resolved names without a connection, with the ports at which the broker would see one."""
    in_unit: bool = False
    """Whether its commands run in systemd units, without a name server; set at the end of the call."""
    problem: str = ""
    """Why no network could be made; set at the end of the call."""

    def refuse(self, host: str, why: str) -> None:
        """Record a host that was not reached."""
        if len(self.refused) < MOST_NOTED:
            self.refused.setdefault(host, why)

    def result_text(self, output: str = "") -> str:
        """Return the text about the network for the result of the call, or "".

        Args:
            output: the output of the commands.
        """
        if self.problem:
            return f"there is no network: {self.problem}"
        if self.refused:
            return "not reached: " + "; ".join(
                f"{host}: {why}" for host, why in list(self.refused.items())[:MOST_NAMED]
            )
        if self.looked_up:
            hosts = ", ".join(
                f"{host} (at port {', '.join(map(str, ports))})"
                for host, ports in list(self.looked_up.items())[:MOST_NAMED]
            )
            return (
                f"looked up, and not connected to: {hosts}. Connections to other ports need a proxy (`http_proxy`), or"
                f" an entry of `network.hosts` with the port, such as `{next(iter(self.looked_up))}:5432`"
            )
        if self.in_unit and any(sign in output for sign in _UNRESOLVED):
            return (
                "no names are resolved here: programs reach hosts only through a proxy (`http_proxy`, `all_proxy`; git"
                " over SSH does by itself). Use one that knows proxies, or set its own option for one"
            )
        return ""


class ConnectionPolicy:
    """The decisions about destinations, for all networks. It runs on the loop of the brokers.

    Args:
        mode: the treatment of hosts that no list names (`terminal.network`).
        tables: the table of hosts.
        bridge: through which users are asked.
    """

    def __init__(self, mode: Mode, tables: HostTables, bridge: Bridge) -> None:
        self.mode = mode
        self.connections = 0
        """Number of open connections of all networks."""
        self._tables, self._bridge = tables, bridge

    @property
    def table(self) -> HostTable:
        """The current table of hosts."""
        return self._tables.current()

    def name_refusal(self, host: str) -> str:
        """Return why a name is not resolved: it would be refused at every port; empty if it is resolved."""
        rule = self.table.judge(host, 0)
        if rule.verdict == "denied":
            return rule.why
        if host in METADATA_NAMES:
            return "it serves the machine's own credentials"
        return UNLISTED if self.mode == "hosts" and not self.table.is_listed(host) else ""

    async def refusal(self, work: NetworkCall | None, host: str, port: int) -> str:
        """Return why a host may not be reached, or "". It may wait for the user."""
        why = await self._refusal(work, host, port)
        if not why and work is not None and work.scope is not None:
            work.scope.reached.append(ReachedHost(time.time(), host, (host, port) in work.answers))
        return why

    async def _refusal(self, work: NetworkCall | None, host: str, port: int) -> str:
        rule = self.table.judge(host, port)
        if rule.verdict == "denied":
            return rule.why
        if rule.verdict == "listed" or self.mode == "on":
            return ""
        if self.mode != "ask":
            return UNLISTED
        if work is None or work.scope is None:
            return "no command is under way for which the user could be asked (`terminal.network` is `ask`)"
        answer = work.answers.get((host, port))
        if answer is None and len(work.answers) >= MOST_ASKED:
            return f"the user was asked about {MOST_ASKED} hosts for this call already"
        if answer is None:
            answer = work.answers[host, port] = asyncio.create_task(self._ask(work, work.scope, host, port))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if answer.cancelled():  # the command ended before there was an answer
                return "the command ended before the user answered"
            raise

    async def _ask(self, work: NetworkCall, scope: CallScope, host: str, port: int) -> str:
        named = format_entry(host, port)
        request = ApprovalRequest(
            work.tool,
            f"let commands reach {named}",
            f"{named}\nfor {work.what or work.tool}",
            f"network:{host}:{port}",
            keep=partial(self._tables.allow_always, named),
            covers="this host",
        )
        try:
            decided = scope.approvals.decide(request, turn_id=scope.turn_id, cancelled=scope.cancelled)
            refused = await self._bridge.on_core(decided)
            await asyncio.to_thread(scope.approvals.save_always)
        except Exception:
            logger.exception("network: asking the user failed: %s", named)
            return "asking the user failed"
        return refused.reason if isinstance(refused, Refusal) else ""
