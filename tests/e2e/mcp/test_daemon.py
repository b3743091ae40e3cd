"""The daemon with an MCP server: ready first, then connected; a reload; and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.mcp.conftest import plain, until

pytest.importorskip("mcp")


def processes(word: str) -> list[int]:
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0") if place.name.isdigit() else []
        except OSError:
            continue
        found += [int(place.name)] if word.encode() in words else []
    return found


def test_the_daemon_is_ready_before_it_connects_reloads_what_changed_and_leaves_nothing(tmp_path: Path) -> None:
    server = plain()
    server["args"] = [*server["args"], str(tmp_path)]
    silent = {"command": sys.executable, "args": ["-c", "import time; time.sleep(3600)", str(tmp_path)]}
    config = {"mcp_servers": {"weather": server, "silent": silent}, "server": {"enabled": False}}
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config))
    env = {**os.environ, "HERMES_HOME": str(tmp_path)}
    daemon = subprocess.Popen([sys.executable, "-m", "hermes_agent", "gateway", "run"], env=env)
    log = tmp_path / "logs" / "agent.log"
    try:
        until(lambda: log.exists() and "MCP server weather: connected, 5 tools" in log.read_text())
        text = log.read_text()
        assert text.index("ready, without HTTP") < text.index("MCP server weather: connected")
        assert len(processes(str(tmp_path))) == 2
        file.write_text(json.dumps({**config, "mcp_servers": {}}))
        daemon.send_signal(signal.SIGHUP)
        until(lambda: not processes(str(tmp_path)))
        file.write_text(json.dumps(config))
        daemon.send_signal(signal.SIGHUP)
        until(lambda: len(processes(str(tmp_path))) == 2)
    finally:
        daemon.terminate()
        assert daemon.wait(60) == 0
    assert processes(str(tmp_path)) == []
