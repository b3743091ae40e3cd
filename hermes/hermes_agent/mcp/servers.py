"""All MCP servers of the config: their start in the background, their tools, and their reload."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hermes_agent.config.settings import Settings
from hermes_agent.contracts.command import FOR_OPERATORS, SlashCommand
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import Owner, registration_context
from hermes_agent.mcp.settings import McpServerSettings, servers_of
from hermes_agent.policy.network import HostTables
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import ToolRegistry, current_scope

if TYPE_CHECKING:
    from hermes_agent.mcp.connection import McpConnection
    from hermes_agent.mcp.sdk import Json
    from hermes_agent.mcp.server_requests import Sampler
    from hermes_agent.mcp.tools import OfferedTool
    from hermes_agent.runtime.loops import LoopThread


logger = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S = 0.1
"""Seconds after which a call notices that its turn was interrupted."""
CLOSES_WITHIN_S = 40.0


class McpServerStatus(LazyNamedTuple):
    """The state of a server."""

    name: str
    state: str
    """`connecting`, `connected`, `asleep`, `lost`, `failed`; `off` (by the config), `idle` (not started here)."""
    tools: tuple[str, ...]
    error: str


class McpServerSource(Protocol):
    """The MCP servers that plugins add to those of the config."""

    @property
    def mcp_listeners(self) -> list[Callable[[], object]]:
        """Functions that are called in a worker after the servers of plugins changed."""
        ...

    def mcp_blocks(self, config: Mapping[str, Any] | None, /) -> Mapping[str, Any]:
        """Return the blocks of all servers by name; those of the config win."""
        ...


class McpServers:
    """The servers of a host.

    Args:
        blocks: returns the blocks of all servers for those of the config.
        settings: returns the settings in effect.
        sample: sends a model request of a server.
        tables: the operator's lists of hosts.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        blocks: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
        registry: ToolRegistry,
        bridge: Bridge,
        home: Path,
        sample: Sampler,
        tables: HostTables,
    ) -> None:
        self._current = settings
        self._blocks = blocks
        self._registry = registry
        self._bridge = bridge
        self._home = home
        self._sample = sample
        self._tables = tables
        self._loop: LoopThread | None = None
        self._lock, self._reloading = threading.Lock(), threading.Lock()
        self._connections: dict[str, McpConnection] = {}
        self._published: dict[str, tuple[list[Json], Json]] = {}
        self._only = ""
        self._first: Future[None] | None = None
        """Every server was tried once."""
        self._is_requested = self._has_waited = self._missing = self._closed = False

    @property
    def settings(self) -> dict[str, McpServerSettings]:
        """What the config and portable packages say now."""
        return servers_of(self._blocks(self._current().mcp_servers))

    def _selected(self) -> dict[str, McpServerSettings]:
        return {n: each for n, each in self.settings.items() if (n == self._only if self._only else each.enabled)}

    # -- life cycle --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to connect in the background, from any thread; without a server nothing is imported."""
        with self._lock:
            self._is_requested = True
            if self._first is not None or self._closed or not self._selected():
                return
            from hermes_agent.mcp import sdk  # here and below: needed only with servers

            if not sdk.is_installed():
                if not self._missing:
                    self._missing = True
                    logger.warning("%s", sdk.mcp_install_hint())
                return
            if self._loop is None:
                self._loop = self._bridge.loop("hermes-mcp")
            self._first = self._loop.begin(self._start())

    async def _start(self) -> None:
        await self._apply()
        await self._wait_first_attempts()

    async def _wait_first_attempts(self) -> None:
        await asyncio.gather(*(each.first_attempt.wait() for each in self._connections.values()))

    def reload(self, *, reconnect: bool = False) -> list[str]:
        """Apply the present config, in a worker; return the names of the changed servers.

        Args:
            reconnect: whether unchanged servers are connected again, too.
        """
        self._missing = False
        if not reconnect and not self._is_requested:  # a command of the terminal, which uses no server
            return []
        with self._reloading:
            if self._loop is None:
                self.start()
                return []
            changed = self._loop.run(self._apply(reconnect=reconnect), timeout_s=CLOSES_WITHIN_S)
            self._first = self._loop.begin(self._wait_first_attempts())
            return changed

    async def _apply(self, *, reconnect: bool = False) -> list[str]:
        from hermes_agent.mcp.connection import McpConnection
        from hermes_agent.mcp.server_requests import ServerRequests  # here and below: needed only with servers

        selected = self._selected()
        old = {n: c for n, c in self._connections.items() if reconnect or selected.get(n) != c.settings}
        await asyncio.gather(*(connection.close() for connection in old.values()))
        for name in old:
            del self._connections[name]
        new = [settings for name, settings in selected.items() if name not in self._connections]
        for settings in new:
            requests = ServerRequests(settings, self._bridge, self._sample)
            self._connections[settings.name] = McpConnection(
                settings, self._home, requests, partial(self._publish, settings), self._tables
            )
        return sorted({*old, *(settings.name for settings in new)})

    async def wait_discovered(self) -> None:
        """Wait before the first turn for the first attempt of each server, at most `mcp_discovery_timeout`."""
        self.start()
        if self._first is None or self._has_waited:
            return
        self._has_waited = self._first.done()
        if not self._has_waited:
            first = asyncio.ensure_future(asyncio.wrap_future(self._first))
            await asyncio.wait({asyncio.shield(first)}, timeout=self._current().mcp_discovery_timeout)
            self._has_waited = True

    def wait_connected(self, limit_s: float, *, only: str = "") -> None:
        """Start, and wait for the first attempt of each server; not on a loop.

        Args:
            only: the only server that starts, even if it is disabled; "" starts all enabled ones.
        """
        self._only = only
        self.start()
        if self._first is not None:
            try:
                self._first.result(limit_s)
            except TimeoutError:
                logger.warning("MCP servers: not all connected within %g s", limit_s)

    async def aclose(self) -> None:
        """End every connection and program."""
        with self._lock:
            loop, self._loop, self._closed = self._loop, None, True
        if loop is not None:
            await self._bridge.run(self._end, loop)

    def _end(self, loop: LoopThread) -> None:
        async def end() -> None:
            await asyncio.gather(*(connection.close() for connection in self._connections.values()))

        try:
            loop.run(end(), timeout_s=CLOSES_WITHIN_S)
        except TimeoutError:
            logger.warning("MCP servers: not all ended within %g s", CLOSES_WITHIN_S)
        loop.close()

    # -- status ------------------------------------------------------------------------------------------------

    def status(self) -> list[McpServerStatus]:
        """Return the state of each server of the config, ordered by name."""
        from hermes_agent.mcp import sdk

        found = []
        for name, settings in sorted(self.settings.items()):
            connection = self._connections.get(name)
            tools = tuple(self._registry.get_tool_names_for_toolset(settings.toolset))
            state, error = ("idle" if settings.enabled else "off"), settings.problem
            if connection is not None:
                state, error = connection.state, connection.error
            elif settings.enabled and not sdk.is_installed():
                error = sdk.mcp_install_hint()
            found.append(McpServerStatus(name, state, tools, error))
        return found

    # -- tools -------------------------------------------------------------------------------------------------

    def _publish(self, settings: McpServerSettings, tools: list[Json] | None, capabilities: Json) -> None:
        """Register exactly the present tools of a server."""
        from hermes_agent.mcp.tools import offered_tools

        before = self._published.pop(settings.name, None)
        if tools is not None:
            self._published[settings.name] = (tools, capabilities)
        if tools is not None and before == (tools, capabilities):
            return
        registry, owner = self._registry, Owner(settings.owner)
        offered = {} if tools is None else {offer.name: offer for offer in offered_tools(settings, tools, capabilities)}
        for name in registry.get_tool_names_for_toolset(settings.toolset):
            if name not in offered and registry.owner(name) == owner.key:
                with registration_context(owner):
                    registry.deregister(name)
        for offer in offered.values():
            if (present := registry.get(offer.name)) is not None and present.toolset != settings.toolset:
                text = "MCP server %s: tool %s left out: %s has that name"
                logger.warning(text, settings.name, offer.name, present.toolset)
                continue
            registry.register(
                offer.name,
                settings.toolset,
                offer.schema,
                partial(self._call, settings, offer),
                emoji="🔌",
                parallel_safe=settings.parallel,
                effect=offer.effect,
                owner=owner,
            )
        taken = registry.get_tool_names_for_toolset(settings.name)
        if offered and (not taken or registry.get_toolset_alias_target(settings.name) == settings.toolset):
            registry.register_toolset_alias(settings.name, settings.toolset)

    def _call(self, settings: McpServerSettings, offer: OfferedTool, args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.mcp.tools import result_of

        connection, scope = self._connections.get(settings.name), current_scope.get()
        if connection is None or self._loop is None:
            raise ToolFailed(f"the MCP server {settings.name} was removed")
        work = connection.call(lambda session: offer.work(session, args), scope)
        cancelled = None if scope is None else scope.cancelled
        return result_of(settings.name, _wait_result(self._loop, work, cancelled))


def _wait_result(loop: LoopThread, work: Coroutine[Any, Any, T], cancelled: threading.Event | None) -> T:
    """Return the result of `work`, which is cancelled soon after an interrupt of the turn.

    Raises:
        ToolFailed: the turn was interrupted.
    """
    future = loop.begin(work)
    while True:
        try:
            return future.result(TICK_S)
        except TimeoutError:
            if future.done():
                raise
            if cancelled is not None and cancelled.is_set():
                future.cancel()
                raise ToolFailed("the call was abandoned: the user interrupted the turn") from None
        except BaseException:
            future.cancel()
            raise


WAIT_S = 15.0
"""Seconds that `/reload-mcp` waits for the servers."""


class McpDeps(LazyNamedTuple):
    """Services of the MCP servers."""

    bridge: Bridge
    extensions: McpServerSource
    settings: Callable[[], Settings]
    home: Path
    network: HostTables
    reread_config: Callable[[], list[str]]
    side_request: Callable[..., Coroutine[Any, Any, Any]]
    tools: ToolRegistry


class McpServices(LazyNamedTuple):
    """Services that this feature provides."""

    mcp: McpServers


def register(ctx: Registrar, deps: McpDeps) -> McpServices:
    """Register `/reload-mcp` and return the servers, which connect after `McpServers.start`."""
    blocks, sample = deps.extensions.mcp_blocks, partial(deps.side_request, "mcp")
    servers = McpServers(deps.settings, blocks, deps.tools, deps.bridge, deps.home, sample, deps.network)

    def apply_config() -> None:
        if deps.settings().mcp.auto_reload_on_config_change:
            servers.reload()

    ctx.register_slash_command(
        SlashCommand(
            "reload-mcp",
            partial(_run_reload_command, servers, deps.reread_config),
            "Read the config and connect the MCP servers again",
            where=FOR_OPERATORS,
        )
    )
    ctx.on_reload(apply_config)
    deps.extensions.mcp_listeners.append(servers.reload)
    ctx.on_close(servers.aclose)
    return McpServices(servers)


def _run_reload_command(servers: McpServers, reread_config: Callable[[], object], raw_args: str) -> str:
    try:
        reread_config()
    except UserError as error:
        return str(error)
    servers.reload(reconnect=True)
    servers.wait_connected(WAIT_S)
    lines = [_status_line(*status) for status in servers.status()]
    return "\n".join(lines) or "The config names no MCP server (mcp_servers)."


def _status_line(name: str, state: str, tools: tuple[str, ...], error: str) -> str:
    return f"{name}: {state}, {len(tools)} tools" + (f": {error}" if error else "")
