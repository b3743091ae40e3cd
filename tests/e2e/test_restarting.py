"""The daemon begins anew while people are there: they are told, and nobody is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import worlds
from e2e.test_chat_platforms import Scripted, daemon
from peers.install import NotInstalled
from peers.irc import IrcServer, Person, ngircd
from peers.running import free_port

KEY = "key-of-this-test-0123456789"
KNOCKING = Path(__file__).parents[1] / "peers" / "knocking.py"


def test_who_restarts_it_from_a_chat_is_told_there_when_it_is_back(scripted: Scripted, tmp_path: Path) -> None:
    prompt = worlds.power_prompt()

    async def talk(server: IrcServer) -> None:
        ann = await Person("ann").come(server, "#lab")
        await ann.hear(":hermes!")
        ann.say("#lab", "hermes: !restart")
        await ann.hear("Restarting: what runs may finish first.")
        await ann.hear("I am back.")
        ann.say("#lab", f"hermes: {prompt.question}")
        assert (await ann.hear(prompt.result)).split()[1:3] == ["PRIVMSG", "#lab"]
        await ann.leave()

    try:
        with ngircd(tmp_path / "irc") as server, scripted(worlds.script(prompt)) as model:
            said = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(server.port), "IRC_USE_TLS": "false"}
            said |= {"IRC_NICKNAME": "hermes", "IRC_CHANNEL": "#lab", "IRC_ALLOWED_USERS": "ann"}
            home = worlds.make_home(tmp_path, model)
            with daemon(home, **said):
                asyncio.run(talk(server))
    except NotInstalled as exc:
        pytest.skip(str(exc))


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
