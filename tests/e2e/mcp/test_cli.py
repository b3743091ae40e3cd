"""`hermes mcp`, and where else servers show at the command line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.mcp.conftest import plain

pytest.importorskip("mcp")


def hermes(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hermes_agent", *words]
    env = {**os.environ, "HERMES_HOME": str(home), **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_server_is_added_tested_shown_and_removed(tmp_path: Path) -> None:
    server = plain()
    line = shlex.join([server["command"], *server["args"]])
    added = hermes(tmp_path, "mcp", "add", "weather", "--env", "TEST_NAME=${SKY}", "--command", line)
    assert added.returncode == 0, added.stderr
    assert (
        "there is an MCP server 'weather' already" in hermes(tmp_path, "mcp", "add", "weather", "--command", "x").stderr
    )
    listed = json.loads(hermes(tmp_path, "mcp", "list", "--json").stdout)[0]
    assert listed["state"] == "mcp_servers.weather needs SKY, which is not set: put it into .env"
    (tmp_path / ".env").write_text("SKY=blue\n")
    (tmp_path / ".env").chmod(0o600)
    tested = hermes(tmp_path, "mcp", "test", "weather")
    assert "mcp__weather__say" in tested.stdout, tested.stderr
    rows = json.loads(hermes(tmp_path, "tools", "list", "--json").stdout)
    assert {row["toolset"] for row in rows if row["name"] == "mcp__weather__say"} == {"mcp-weather"}
    assert "weather is connected, 5 tools" in hermes(tmp_path, "doctor").stdout
    assert hermes(tmp_path, "mcp", "remove", "weather").returncode == 0
    assert "there is no MCP server 'weather'" in hermes(tmp_path, "mcp", "test", "weather").stderr


def test_what_cannot_be_used_says_why(tmp_path: Path) -> None:
    assert hermes(tmp_path, "mcp", "add", "wiki", "--url", "http://127.0.0.1:9/mcp").returncode == 0
    tested = hermes(tmp_path, "mcp", "test", "wiki")
    assert tested.returncode == 1
    assert tested.stderr.startswith("hermes: wiki cannot be used: ")
    assert "the server wiki has no sign-in" in hermes(tmp_path, "mcp", "login", "wiki").stderr
    assert "Name an address (--url), or a program (--command)" in hermes(tmp_path, "mcp", "add", "both").stderr


def test_without_the_library_it_is_named(tmp_path: Path) -> None:
    hermes(tmp_path, "mcp", "add", "weather", "--command", "weather")
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mcp' else found(name, *more)\n"
    )
    said = hermes(tmp_path, "doctor", PYTHONPATH=str(hide)).stdout
    assert f"{sys.executable} -m pip install" in said and "[mcp]" in said
