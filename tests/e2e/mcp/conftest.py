"""Servers that the tests of this folder start, and hosts that connect to them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import PluginHost, plugin_host

PEER = str(Path(__file__).parents[2] / "peers" / "mcp_server.py")
NAME = "weather"


def program(**more: Any) -> dict[str, Any]:
    """Return the settings of the test server as a program."""
    return {"command": sys.executable, "args": [PEER], **more}


def plain(**more: Any) -> dict[str, Any]:
    """Return the settings of a server that starts in an instant."""
    return {"command": sys.executable, "args": ["-S", PEER.replace("mcp_server", "mcp_lines")], **more}


def mcp_config(**servers: Any) -> dict[str, Any]:
    """Return a config whose first turn waits for the servers."""
    return {"mcp_servers": servers, "mcp_discovery_timeout": 60}


def result(host: PluginHost, tool: str, **arguments: Any) -> str:
    """Return what a call of a tool of the server `weather` gives."""
    return host.dispatch_tool(f"mcp__{NAME}__{tool}", arguments)


def until(condition: Callable[[], Any]) -> None:
    """Wait for what happens in the background; nobody tells of it."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.02)


def shown(text: str) -> str:
    """Return what the server said, without the marks."""
    return text.removeprefix('<foreign-text from="MCP server weather">\n').removesuffix("\n</foreign-text>")


def quiet(ctx: Any) -> None:
    """Register nothing."""


@pytest.fixture(scope="module")
def host() -> Iterator[PluginHost]:
    """A host with the server `weather`, for the tests of one module."""
    pytest.importorskip("mcp")
    with plugin_host(quiet, config=mcp_config(weather=program()), env={"OPENAI_API_KEY": "sk-of-the-agent"}) as host:
        host.host.service(McpServers).wait_connected(60)
        yield host
