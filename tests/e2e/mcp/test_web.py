"""Servers at an address: both transports, and signing in at a real authorization server on loopback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.mcp.conftest import PEER, mcp_config, quiet, result, shown, until
from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import plugin_host
from peers.running import free_port, running

pytest.importorskip("mcp")


def serving(kind: str, port: int, **environ: str) -> Any:
    command = [sys.executable, PEER, kind, str(port)]
    return running(command, host="127.0.0.1", port=port, path="", environ=environ)


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
def test_a_server_at_an_address_is_asked_with_its_headers_and_found_again_after_a_restart(kind: str, path: str) -> None:
    port = free_port()
    weather = {"url": f"http://127.0.0.1:{port}/{path}", "transport": kind, "headers": {"X-Key": "k1"}}
    with plugin_host(quiet, config=mcp_config(weather=weather)) as host:
        with serving(kind, port):
            host.host.service(McpServers).wait_connected(60)
            until(lambda: host.host.service(McpServers).status()[0].state == "connected")
            assert shown(result(host, "echo", text="rain")) == "test: rain"
            assert shown(result(host, "header", name="X-Key")) == "k1"
        assert "error" in result(host, "echo", text="gone")
        with serving(kind, port):
            until(lambda: "test: back" in result(host, "echo", text="back"))


@pytest.fixture
def guarded() -> Iterator[str]:
    port = free_port()
    with serving("http", port, TEST_GUARDED=str(port)):
        yield f"http://127.0.0.1:{port}/mcp"


def hermes(home: Path, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "HERMES_HOME": str(home)}
    command = [sys.executable, "-m", "hermes_agent", "mcp", *words]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_daemon_without_tokens_says_what_to_do_and_after_the_login_it_is_let_in(guarded: str) -> None:
    weather = {"url": guarded, "auth": {"type": "oauth"}, "oauth": {"scope": "user"}}
    with plugin_host(quiet, config=mcp_config(weather=weather)) as host:
        host.host.service(McpServers).wait_connected(60)
        assert "hermes mcp login weather" in host.host.service(McpServers).status()[0].error
        login = hermes(host.home, "login", "weather", "--no-open")
        assert login.stdout is not None
        address = next(line for line in login.stdout if line.startswith("http"))
        with urllib.request.urlopen(address.strip(), timeout=60) as page:  # the browser, which is sent back
            assert "Signed in" in page.read().decode()
        assert "Signed in at weather" in login.stdout.read()
        assert login.wait(60) == 0
        tokens = host.home / "mcp-tokens" / "weather.json"
        assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
        said = host.run_command("/reload-mcp") or ""
        assert "weather: connected" in said
        assert shown(result(host, "echo", text="in")) == "test: in"
        stored = json.loads(tokens.read_text())
        tokens.write_text(json.dumps({**stored, "ends_at": time.time() - 1}))  # it ended while nobody looked
        assert "weather: connected" in (host.run_command("/reload-mcp") or "")
        assert json.loads(tokens.read_text())["tokens"]["access_token"] != stored["tokens"]["access_token"]
