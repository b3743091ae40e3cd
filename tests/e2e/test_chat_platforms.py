"""The daemon on chat platforms: somebody writes at a real server and is answered there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import worlds
from peers.install import NotInstalled
from peers.irc import IrcServer, Person, ngircd
from peers.scripted import ScriptedModel
from peers.telegram import ANN, BOB, TOKEN, BotApi

Scripted = Callable[..., AbstractContextManager[ScriptedModel]]


@contextmanager
def daemon(home: Path, **variables: str) -> Iterator[None]:
    """Run `hermes gateway run` while the block lasts; what it says is in `log` beside the home."""
    environ = worlds.environment(home, **{"API_SERVER_PORT": "0", **variables})
    with (home.parent / "log").open("ab") as log:
        command = [worlds.HERMES, "gateway", "run"]
        running = subprocess.Popen(command, env=environ, cwd=home.parent, stdout=log, stderr=log)
        try:
            yield
        finally:
            running.terminate()
            status = running.wait(60)
    assert status == 0, (home.parent / "log").read_text()


async def test_who_is_listed_is_answered_on_irc_and_nobody_else(scripted: Scripted, tmp_path: Path) -> None:
    prompt = worlds.power_prompt()

    async def talk(server: IrcServer) -> None:
        ann = await Person("ann").come(server, "#lab")
        eve = await Person("eve").come(server, "#lab")
        await ann.hear(":hermes!")
        eve.say("#lab", f"hermes: {prompt.question}")
        await ann.hear(f":hermes: {prompt.question}")
        ann.say("#lab", f"hermes: {prompt.question}")
        assert (await ann.hear(prompt.result)).split()[1:3] == ["PRIVMSG", "#lab"]
        ann.say("hermes", "!help")
        assert " PRIVMSG ann " in await ann.hear(" PRIVMSG ann ")
        await ann.leave()
        await eve.leave()

    try:
        with ngircd(tmp_path / "irc") as server, scripted(worlds.script(prompt)) as model:
            said = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(server.port), "IRC_USE_TLS": "false"}
            said |= {"IRC_NICKNAME": "hermes", "IRC_CHANNEL": "#lab", "IRC_ALLOWED_USERS": "ann"}
            with daemon(worlds.make_home(tmp_path, model), **said):
                await talk(server)
            asked = [b for b in model.bodies() if prompt.question in str(b["messages"][-1].get("content"))]
    except NotInstalled as exc:
        pytest.skip(str(exc))

    assert len(asked) == 1, "Eve's question did not reach the model"


def test_what_came_on_telegram_while_it_did_not_run_is_answered_once(scripted: Scripted, tmp_path: Path) -> None:
    prompt = worlds.power_prompt()

    def answered(api: BotApi) -> list[int]:
        return [m["chat"]["id"] for m in api.messages.values() if prompt.result in m.get("text", "")]

    with BotApi() as api, scripted(worlds.script(prompt)) as model:
        home = worlds.make_home(tmp_path, model)
        said = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_BASE_URL": api.url, "TELEGRAM_ALLOWED_USERS": str(ANN["id"])}
        for expected in ([100], [100, 100]):
            api.say(100, ANN, prompt.question)
            api.say(200, BOB, prompt.question)
            with daemon(home, **said):
                api.wait_for(lambda expected=expected: answered(api) == expected)  # type: ignore[misc]
        assert answered(api) == [100, 100]

    assert TOKEN.partition(":")[2] not in (tmp_path / "log").read_text()
