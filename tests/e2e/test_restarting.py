"""The daemon begins anew while people are there: they are told, and nobody is refused."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import worlds
from e2e.test_chat_platforms import Scripted, daemon
from peers.install import NotInstalled
from peers.irc import IrcServer, Person, ngircd
from peers.running import free_port
from peers.telegram import ANN, TOKEN, BotApi

KEY = "key-of-this-test-0123456789"
KNOCKING = Path(__file__).parents[1] / "peers" / "knocking.py"


async def test_who_restarts_it_from_a_chat_is_told_there_when_it_is_back(scripted: Scripted, tmp_path: Path) -> None:
    prompt = worlds.power_prompt()

    async def talk(server: IrcServer) -> None:
        ann = await Person("ann").come(server, "#lab")
        await ann.hear(":hermes!")
        ann.say("#lab", "hermes: !restart")
        await ann.hear("Restarting after the running turns.")
        await ann.hear("The agent has restarted.")
        ann.say("#lab", f"hermes: {prompt.question}")
        assert (await ann.hear(prompt.result)).split()[1:3] == ["PRIVMSG", "#lab"]
        await ann.leave()

    try:
        with ngircd(tmp_path / "irc") as server, scripted(worlds.script(prompt)) as model:
            said = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(server.port), "IRC_USE_TLS": "false"}
            said |= {"IRC_NICKNAME": "hermes", "IRC_CHANNEL": "#lab", "IRC_ALLOWED_USERS": "ann"}
            home = worlds.make_home(tmp_path, model)
            with daemon(home, **said):
                await talk(server)
    except NotInstalled as exc:
        pytest.skip(str(exc))


def test_a_chat_hears_of_processes_that_end_after_the_daemon_was_killed_and_while_it_is_down(
    scripted: Scripted, tmp_path: Path
) -> None:
    """Two of the three were started by a subagent."""

    def begin(name: str) -> dict[str, Any]:
        command = f"until [ -e {tmp_path}/{name} ]; do sleep 0.05; done; echo {name} is built"
        return {"command": command, "background": True, "notify_on_complete": True}

    def calls(tool: str, **arguments: dict[str, Any]) -> dict[str, Any]:
        made = [{"id": f"call_{n}", "name": tool, "arguments": json.dumps(a)} for n, a in arguments.items()]
        return {"toolCalls": made}

    task = {"tasks": [{"goal": "Start one and two."}]}
    asked = calls("terminal", three=begin("three"))["toolCalls"] + calls("delegate_task", task=task)["toolCalls"]
    begun = calls("terminal", one=begin("one"), two=begin("two"))
    script = [
        {"match": {"userMessage": "Build", "hasToolResult": False}, "response": {"toolCalls": asked}},
        {"match": {"userMessage": "Start one", "hasToolResult": False}, "response": begun},
        {"match": {"userMessage": "Start one"}, "response": {"content": "They were started."}},
        {"match": {"userMessage": "three is built"}, "response": {"content": "Three is ready."}},
        {"match": {"userMessage": "one is built"}, "response": {"content": "One is ready."}},
        {"match": {"userMessage": "two is built"}, "response": {"content": "Two is ready."}},
        {"match": {"userMessage": "Build"}, "response": {"content": "They are being built."}},
    ]

    def said(api: BotApi, text: str) -> int:
        return sum(text in str(m.get("text", "")) for m in api.messages.values())

    with BotApi() as api, scripted(script) as model:
        home = worlds.make_home(tmp_path, model)
        with (home / "config.yaml").open("a") as config:
            config.write("approvals:\n  mode: off\n")
        variables = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_BASE_URL": api.url, "API_SERVER_PORT": "0"}
        variables["TELEGRAM_ALLOWED_USERS"] = str(ANN["id"])
        environ = worlds.environment(home, **variables)
        with (tmp_path / "log").open("ab") as log:
            first = subprocess.Popen(
                [worlds.HERMES, "gateway", "run"], env=environ, cwd=tmp_path, stdout=log, stderr=log
            )
        try:
            api.say(100, ANN, "Build all.")
            api.wait_for(lambda: said(api, "They are being built.") == 1)
        finally:
            first.kill()
            first.wait()
        known = [json.loads(path.read_bytes()) for path in (home / "processes").glob("*/meta.json")]
        keeper = os.pidfd_open(next(p["keeper"] for p in known if "/one" in p["command"]))
        (tmp_path / "one").touch()
        assert select.select([keeper], [], [], 60)[0], "the process has not ended"
        os.close(keeper)
        with daemon(home, **variables):
            api.wait_for(lambda: said(api, "One is ready.") == 1)
            for name in ("two", "three"):
                (tmp_path / name).touch()
                api.wait_for(lambda name=name: said(api, f"{name.title()} is ready.") == 1)
        assert said(api, "One is ready.") == 1


def test_hermes_gateway_restart_waits_for_the_new_one_and_refuses_nobody(scripted: Scripted, tmp_path: Path) -> None:
    port = free_port()
    with scripted(worlds.script(worlds.power_prompt())) as model:
        home = worlds.make_home(tmp_path, model)
        with daemon(home, API_SERVER_PORT=str(port), API_SERVER_KEY=KEY):
            control = _control(home)
            command = [sys.executable, str(KNOCKING), KEY, control, str(port)]
            knocker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert knocker.stdout is not None and knocker.stdin is not None
            knocker.stdout.readline()
            restart = [worlds.HERMES, "gateway", "restart"]
            done = subprocess.run(
                restart, env=worlds.environment(home), cwd=tmp_path, capture_output=True, text=True, timeout=120
            )
            told, _ = knocker.communicate(timeout=120)
        assert done.stdout.startswith("restarted (pid "), done.stderr
        found = json.loads(told)
        assert (set(found["counts"]), found["pids"]) == ({"control", "http"}, 1)
        assert not Path(control).exists()


def _control(home: Path) -> str:
    """Return where the daemon's control socket is, once it is there."""
    status = [worlds.HERMES, "gateway", "status", "--json"]
    for _ in range(600):
        done = subprocess.run(status, env=worlds.environment(home), capture_output=True, text=True, timeout=60)
        if json.loads(done.stdout).get("http", {}).get("status") == "ok":
            return str(json.loads((home / "gateway_state.json").read_text())["control"])
    raise AssertionError(done.stdout + done.stderr)
