"""Calls of MCP servers by plugins: `ctx.call_mcp`. Source: plugin contract of 0.23 §6.9."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from hermes_agent.mcp.tools import tool_name
from hermes_agent.plugins.capabilities import entry_of
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.tool_access import dispatch_tool
from hermes_agent.runtime.workers import TimeLimitExceeded

DEFAULT_TIMEOUT_S, MIN_TIMEOUT_S, MAX_TIMEOUT_S = 30.0, 1.0, 600.0
MAX_CHARS = 65_536
TRUNCATED = "… [truncated]"


def call_mcp(
    services: HostServices,
    manifest: PluginManifest,
    server: str,
    tool: str,
    arguments: Mapping[str, Any] | None,
    timeout: object,
) -> dict[str, Any]:
    """Call a tool of a configured MCP server as the model does, and return its result or its error.

    Args:
        timeout: seconds, limited to the range 1 to 600; 30 if it is no number.

    Raises:
        PermissionError: the operator did not allow this server for the plugin.
    """
    allowed = entry_of(services.config.values, manifest).get("mcp_allowlist")
    if not isinstance(allowed, list) or server not in allowed:
        raise PermissionError(
            f"Plugin '{manifest.key}' may not call MCP server '{server}': add it to "
            f"plugins.entries.{manifest.key}.mcp_allowlist in config.yaml"
        )
    name = tool_name(server, tool)
    if services.tools.get(name) is None:
        return {"ok": False, "error": f"MCP server '{server}' has no tool '{tool}', or is not connected"}
    call = partial(dispatch_tool, services, manifest.key, name, dict(arguments or {}), {})
    limit_s = _clamped(timeout)
    try:
        text = services.bridge.run_with_limit(call, limit_s)
    except (TimeoutError, TimeLimitExceeded):
        return {"ok": False, "error": f"MCP server '{server}' did not answer '{tool}' within {limit_s:g} s"}
    return _result(text)


def _clamped(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout != timeout:
        return DEFAULT_TIMEOUT_S
    return min(max(float(timeout), MIN_TIMEOUT_S), MAX_TIMEOUT_S)


def _result(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict) and value.get("error"):
        return {"ok": False, **_bounded("error", str(value["error"]))}
    content = value.get("result", text) if isinstance(value, dict) else value
    found = {"ok": True, **_bounded("result", content if isinstance(content, str) else json.dumps(content))}
    if isinstance(value, dict) and "structuredContent" in value:
        found["structuredContent"] = value["structuredContent"]
    return found


def _bounded(key: str, text: str) -> dict[str, Any]:
    if len(text) <= MAX_CHARS:
        return {key: text}
    return {key: text[:MAX_CHARS] + TRUNCATED, "truncated": True}
