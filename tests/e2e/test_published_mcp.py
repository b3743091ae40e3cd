"""Published MCP servers, as they are: `make compat` installs them (a package index, npm) and talks with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compat.guides import guide
from compat.test_guides_specialised import flat_yaml
from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import plugin_host

pytestmark = pytest.mark.skipif(not os.environ.get("HERMES_PUBLISHED_MCP"), reason="`make compat` runs it")

CACHE = Path(__file__).parents[2] / ".cache" / "mcp-servers"
TIME = "mcp-server-time==2026.10.19"
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"


def asked(server: dict[str, Any], tool: str, **arguments: Any) -> str:
    with plugin_host(lambda ctx: None, config={"mcp_servers": {"it": server}}) as host:
        host.host.service(McpServers).wait_connected(120)
        status = host.host.service(McpServers).status()[0]
        assert status.state == "connected", status
        return host.dispatch_tool(f"mcp__it__{tool}", arguments)


def test_the_server_of_the_time() -> None:
    place = CACHE / "time"
    if not (place / "bin").exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", TIME], check=True)
    server = {"command": str(place / "bin" / "mcp-server-time")}
    assert "Europe/Lisbon" in asked(server, "get_current_time", timezone="Europe/Lisbon")


def test_the_server_that_does_everything() -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    place = CACHE / "everything"
    if not (place / "node_modules").exists():
        place.mkdir(parents=True)
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--prefix", place, EVERYTHING], check=True)
    server = {"command": str(place / "node_modules" / ".bin" / "mcp-server-everything")}
    assert "Echo: hello" in asked(server, "echo", message="hello")


def test_the_server_of_files_as_the_guide_prints_it(tmp_path: Path) -> None:
    if shutil.which("npx") is None:
        pytest.skip("there is no npx")
    page = guide("build-a-plugin.newest.ko.txt").replace("@model컨텍스트protocol", "@modelcontextprotocol")
    server = flat_yaml(page, "mcp_servers:", "012221223")["mcp_servers"]["filesystem"]
    assert server["command"] == "npx" and server["args"][-1] == "/home/user/projects"
    (tmp_path / "notes.txt").write_text("tea at five")
    printed = {**server, "args": [*server["args"][:-1], str(tmp_path)]}
    assert "tea at five" in asked(printed, "read_text_file", path=str(tmp_path / "notes.txt"))
