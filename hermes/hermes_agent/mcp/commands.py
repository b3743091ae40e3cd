"""The slash command `/reload-mcp`."""

from __future__ import annotations

from collections.abc import Callable

from hermes_agent.commands import CommandTable
from hermes_agent.core.errors import UserError
from hermes_agent.mcp.servers import McpServers

__all__ = ["register"]


def register(registry: CommandTable, servers: McpServers, reread: Callable[[], object]) -> None:
    """Register it. `reread`: reads the config."""

    def reload(raw_args: str) -> str:
        try:
            reread()
        except UserError as error:
            return str(error)
        servers.reload(anew=True)
        servers.wait_connected(WAIT_S)
        lines = [_status_line(*one) for one in servers.status()]
        return "\n".join(lines) or "The config names no MCP server (mcp_servers)."

    registry.register("reload-mcp", reload, description="Read the config and connect the MCP servers anew")


WAIT_S = 15.0


def _status_line(name: str, state: str, tools: tuple[str, ...], error: str) -> str:
    return f"{name}: {state}, {len(tools)} tools" + (f": {error}" if error else "")
