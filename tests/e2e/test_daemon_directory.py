"""The directory that a daemon works in where its operator names none: a chat user's first commands write there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import worlds
from hermes_agent.testing import ScriptedModel, call, served
from peers.telegram import ANN, TOKEN, BotApi

ORDER = re.compile(r"\buse (\w+) (\{.*\})", re.DOTALL)


def obey(request: dict[str, Any]) -> Any:
    """Answer as a model that does as it is told: `use NAME {ARGUMENTS}` calls that tool, `send PATH` sends the file."""
    last = request["messages"][-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return f"The tool said: {text}"
    if order := ORDER.search(text):
        return call(order[1], json.loads(order[2]))
    return f"Here it is.\nMEDIA:{text.rpartition('send ')[2]}" if "send " in text else "Nothing to do."


class Chat:
    """Ann's chat with a running daemon."""

    def __init__(self, api: BotApi) -> None:
        self.api = api

    def ask(self, text: str, answered: str) -> str:
        """Say something, and return the message that has `answered`."""
        known = set(self.api.messages)

        def fresh() -> list[str]:
            new = [m for number, m in self.api.messages.items() if number not in known]
            return [m["text"] for m in new if answered in m.get("text", "") and m["from"]["id"] != ANN["id"]]

        self.api.say(100, ANN, text)
        self.api.wait_for(lambda: bool(fresh()))
        return fresh()[0]

    def command(self, command: str) -> str:
        return self.ask(f"use terminal {json.dumps({'command': command})}", "The tool said")


@contextmanager
def daemon(
    home: Path, address: str, *, sandbox: str = "auto", cwd: Path | None = None, **variables: str
) -> Iterator[Chat]:
    """Run a daemon that was started in `cwd`, by default in the user's home, while the block lasts."""
    home.mkdir(exist_ok=True)
    model = {"provider": "custom", "base_url": address, "default": "scripted-model"}
    (home / "config.yaml").write_text(json.dumps({"model": model, "terminal": {"sandbox": sandbox}}))
    with BotApi() as api, (home.parent / "log").open("ab") as log:
        said = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_BASE_URL": api.url, "TELEGRAM_ALLOWED_USERS": str(ANN["id"])}
        running = subprocess.Popen(
            [worlds.HERMES, "gateway", "run"],
            env=worlds.environment(home, API_SERVER_PORT="0", **said, **variables),
            cwd=cwd or home.parent,
            stdout=log,
            stderr=log,
        )
        try:
            yield Chat(api)
        finally:
            running.terminate()
            status = running.wait(60)
    assert status == 0, (home.parent / "log").read_text()


@pytest.fixture
def address() -> Iterator[str]:
    with served(ScriptedModel(*[obey] * 200)) as base_url:
        yield base_url


def test_a_chat_user_s_commands_write_without_a_question_and_the_file_is_sent(tmp_path: Path, address: str) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap (package bubblewrap) is not installed")
    home = tmp_path / ".hermes"
    place = home / "workspace"
    with daemon(home, address) as chat:
        made = chat.command("echo forty-two > note.txt && pwd")
        assert '"exit_code": 0' in made and str(place) in made, made
        assert (place / "note.txt").read_text() == "forty-two\n"
        assert place.stat().st_mode & 0o777 == 0o700

        arguments = {"path": "list.txt", "content": "milk"}
        chat.ask(f"use write_file {json.dumps(arguments)}", "The tool said")
        assert (place / "list.txt").read_text() == "milk"
        assert "forty-two" in chat.ask('use read_file {"path": "note.txt"}', "The tool said")
        assert "note.txt" in chat.ask('use search_files {"pattern": "forty"}', "The tool said")
        code = "open('by-script.txt', 'w').write('x')"
        script = chat.ask(f"use execute_code {json.dumps({'code': code})}", "The tool said")
        assert (place / "by-script.txt").exists(), script

        chat.api.say(100, ANN, f"send {place}/note.txt")
        chat.api.wait_for(lambda: bool(chat.api.sent("sendDocument")))
        assert chat.api.sent("sendDocument")[0]["document"][1] == b"forty-two\n"

        inside = chat.command(f"ls -A {home}; cat {home}/config.yaml")  # the home around it stays closed
        assert "scripted-model" not in inside and "state.db" not in inside
        refused = chat.command(f"echo x > {tmp_path}/beside.txt; ls")
        assert "Read-only file system" in refused and not (tmp_path / "beside.txt").exists()
        asked = [m["text"] for m in chat.api.messages.values() if "/approve" in m.get("text", "")]
        assert asked == []

        status = worlds.run(home, "gateway", "status")
        assert f"works in {place}\n" in status.stdout, status.stdout
        assert json.loads(worlds.run(home, "gateway", "status", "--json").stdout)["cwd"] == str(place)
        assert f"works in {place}" in worlds.run(home, "doctor", "--offline").stdout
    terminal = worlds.run(home, "-z", 'use terminal {"command": "pwd"}')
    assert str(tmp_path) in terminal.stdout and str(place) not in terminal.stdout  # where it was started


def test_what_the_operator_names_wins(tmp_path: Path, address: str) -> None:
    named = tmp_path / "named"
    named.mkdir()
    home = tmp_path / ".hermes"
    with daemon(home, address, sandbox="off", TERMINAL_CWD=str(named)):
        for _ in range(100):
            status = worlds.run(home, "gateway", "status").stdout
            if "works in" in status:
                break
    assert f"works in {named}\n" in status
    assert not (home / "workspace").exists()
