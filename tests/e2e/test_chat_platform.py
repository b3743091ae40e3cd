"""A chat platform in the daemon itself, over TCP: answers, a kill in the middle of a turn, an orderly end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from hermes_agent.testing import ScriptedModel, call, served
from peers.lines import LINE_PLUGIN, LineServer, line_server

TOOL = """
import os, time

def wait(args, **kwargs):
    flag = os.path.join(os.environ["HERMES_HOME"], "go")
    open(os.path.join(os.environ["HERMES_HOME"], "begun"), "w").close()
    while not os.path.exists(flag):
        time.sleep(0.02)
    return "{}"

def register_tool(ctx):
    schema = {"name": "wait", "description": "x", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("wait", "wait", schema, wait)
"""


def make_home(tmp_path: Path, base_url: str) -> Path:
    home = tmp_path / "home"
    folder = home / "plugins" / "lines"
    folder.mkdir(parents=True)
    plugin = LINE_PLUGIN.replace("def register(ctx):\n", TOOL + "\ndef register(ctx):\n    register_tool(ctx)\n")
    (folder / "__init__.py").write_text(plugin)
    (folder / "plugin.yaml").write_text("name: lines\n")
    config = {
        "plugins": {"enabled": ["lines"]},
        "server": {"port": 0},
        "model": {"provider": "custom", "base_url": base_url, "default": "scripted-model"},
        "platforms": {"lines": {"allow_from": ["ann"]}},
    }
    (home / "config.yaml").write_text(json.dumps(config))
    return home


class Daemon:
    """`hermes gateway run`."""

    def __init__(self, home: Path, server: LineServer) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home.parent),
            "HERMES_HOME": str(home),
            "LINES_SERVER": server.address,
        }
        hermes = str(Path(sys.executable).with_name("hermes"))
        self.log = (home.parent / "log").open("a")
        self.process = subprocess.Popen([hermes, "gateway", "run"], env=environment, stdout=self.log, stderr=self.log)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(60)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        status = self.process.wait(60)
        self.log.close()
        return status


def connected(server: LineServer) -> None:
    with server.changed:
        assert server.changed.wait_for(lambda: server.writer is not None, 60)


def begun(home: Path) -> None:
    while not (home / "begun").exists():
        threading.Event().wait(0.02)


def test_a_kill_in_the_middle_of_a_turn_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    model = ScriptedModel("hello ann", call("wait"), "the report is there", "and goodbye")

    with line_server() as server, served(model) as base_url:
        home = make_home(tmp_path, base_url)
        with Daemon(home, server) as daemon:
            connected(server)
            server.say("1 ann ann hi")
            server.heard("ann hello ann")
            server.say("2 ann ann write a report")
            begun(home)
            daemon.end(signal.SIGKILL)

        server.writer = None
        (home / "go").touch()
        with Daemon(home, server) as daemon:
            connected(server)
            server.heard("ann the report is there")
            server.say("2 ann ann write a report")  # the service redelivers what was not acknowledged
            server.say("3 ann ann bye")
            server.heard("ann and goodbye")
            assert daemon.end(signal.SIGTERM) == 0
        answers = [line for line in server.received if line.startswith("ann ")]

    assert answers == ["ann hello ann", "ann the report is there", "ann and goodbye"]
    last: list[dict[str, Any]] = model.messages
    assert [m["content"] for m in last if m["role"] == "user"][:2] == ["hi", "write a report"]
