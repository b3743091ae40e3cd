"""A running daemon takes a plugin's new code: by `hermes plugins reload`, and by SIGHUP; systemd is told."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from peers.running import free_port, running
from worlds import HERMES, environment, run

CODE = """
def register(ctx):
    ctx.register_tool({name!r}, "t", {{"name": {name!r}, "description": "d"}}, lambda args, **kw: "x")
"""


def write(home: Path, tool: str) -> None:
    folder = home / "plugins" / "p"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.yaml").write_text("name: p\n")
    (folder / "__init__.py").write_text(CODE.format(name=tool))


def get(port: int, key: str, path: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def plugin(port: int, key: str) -> dict[str, Any]:
    every = json.loads(get(port, key, "/v1/plugins"))["plugins"]
    (found,) = [one for one in every if one["source"] != "bundled"]
    return dict(found)


def heard(listener: socket.socket, wanted: str) -> str:
    """Read what systemd is told until a message has `wanted`."""
    while wanted not in (message := listener.recv(65536).decode()):
        continue
    return message


def test_the_daemon_takes_new_code_and_says_what_it_cannot_take(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, "one")
    (home / "config.yaml").write_text("plugins: {enabled: [p], entries: {p: {trust: dev}}}\n")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(60)
    port = free_port()
    environ = environment(home, API_SERVER_PORT=str(port), NOTIFY_SOCKET=str(tmp_path / "notify"))
    nobody = run(home, "plugins", "reload")
    assert (nobody.returncode, "no daemon runs" in nobody.stderr) == (1, True)
    with running([HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ) as process:
        assert isinstance(process, subprocess.Popen)
        key = run(home, "gateway", "key").stdout.strip()
        assert plugin(port, key)["tools"] == ["one"]
        heard(listener, "READY=1")

        write(home, "two")
        done = run(home, "plugins", "reload", "p")
        assert (done.returncode, done.stdout) == (0, "p: reloaded\n")
        assert plugin(port, key)["tools"] == ["two"]

        (home / "plugins" / "p" / "__init__.py").write_text("import missing_thing\n")
        done = run(home, "plugins", "reload")
        assert done.returncode == 1
        assert done.stdout.startswith("p: failed: ModuleNotFoundError: No module named 'missing_thing' (")
        found = plugin(port, key)
        assert (found["tools"], found["status"]) == (["two"], "enabled")
        assert "missing_thing" in found["stale"]

        wrong = run(home, "plugins", "reload", "q")
        assert (wrong.returncode, "unknown plugin `q`" in wrong.stderr) == (1, True)

        write(home, "three")
        process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in heard(listener, "RELOADING=1")
        assert "STATUS=ready: 1 plugins" in heard(listener, "READY=1")
        assert plugin(port, key)["tools"] == ["three"]

        assert "hermes_plugin_errors_total" not in get(port, key, "/metrics")  # it was never called
        (home / "config.yaml").write_text("plugins: {enabled: []}\n")
        process.send_signal(signal.SIGHUP)
        heard(listener, "RELOADING=1")
        assert "STATUS=ready: 0 plugins" in heard(listener, "READY=1")
    listener.close()


COUNTS = """
def register(ctx):
    ctx.register_command("twice", lambda raw_args: ctx.dispatch_tool("one", {}) + ctx.dispatch_tool("one", {}))
    ctx.register_tool("one", "t", {"name": "one", "description": "d"}, lambda args, **kw: "x")
"""


def test_info_shows_what_the_plugin_did_in_the_daemon(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home, "one")
    (home / "plugins" / "p" / "__init__.py").write_text(COUNTS)
    (home / "config.yaml").write_text("plugins: {enabled: [p]}\n")
    port = free_port()
    environ = environment(home, API_SERVER_PORT=str(port))
    assert "account    none: no daemon runs with the home" in run(home, "plugins", "info", "p").stdout
    nobody = json.loads(run(home, "plugins", "info", "p", "--json").stdout)
    assert (nobody["account"], "no daemon runs" in nobody["account_missing"]) == (None, True)

    with running([HERMES, "gateway", "run"], host="127.0.0.1", port=port, path="/health", environ=environ):
        assert "nothing was called since the start" in run(home, "plugins", "info", "p").stdout
        key = run(home, "gateway", "key").stdout.strip()
        body = json.dumps({"messages": [{"role": "user", "content": "/twice"}]}).encode()
        headers = {"Authorization": f"Bearer {key}", "X-Hermes-Session-Id": "s1", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == "xx"

        assert "tools: 2 calls, 0 errors, " in run(home, "plugins", "info", "p").stdout
        account = json.loads(run(home, "plugins", "info", "p", "--json").stdout)["account"]
        assert (account["tool_calls"], account["errors"], account["llm_calls"]) == (2, 0, 0)
