"""Slash commands in sessions over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from hermes_agent.agent.command_router import CommandCall, CommandRouter, UnknownCommand
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.quick_commands import QuickCommands
from hermes_agent.commands import CommandTable
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import MASK
from hermes_agent.hooks import HookBus
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.skills import PluginSkills, SkillLibrary
from hermes_agent.skills.library import SkillSettings
from hermes_agent.skills.skill_commands import SkillCommands
from hermes_agent.tools import current_scope
from unit.server.scripted_door import LIMIT_S, Gate, Running, ScriptedAgent, echo, serving

QUICK = {"disk": {"command": 'echo 42% of "$1"'}, "again": {"type": "alias", "target": "/scan-it"}}


class CommandBench:
    """A real `CommandRouter` with a command `scan` and a skill `tea`."""

    def __init__(self, home: Path) -> None:
        self.bridge = Bridge()
        self.commands = CommandTable()
        self.inboxes = InjectedMessages()
        self.asked: list[tuple[str, str, str]] = []
        (home / "skills" / "tea").mkdir(parents=True)
        (home / "skills" / "tea" / "SKILL.md").write_text("Warm the pot.\n")
        self.hooks = HookBus(self.bridge.wait_plugin)
        library = SkillLibrary(
            home,
            SkillSettings(),
            plugins=PluginSkills(),
            hooks=self.hooks,
            has_value=lambda name: True,
            disabled_plugins=list,
        )
        self.commands.register(SlashCommand("scan-it", self.scan), owner="p")
        self.slash = CommandRouter(
            self.commands,
            SkillCommands(library),
            self.bridge,
            self.inboxes,
            self.hooks,
            QuickCommands(lambda: {"quick_commands": QUICK}, home),
            cwd=home,
            approval_timeout_s=1,
        )

    def scan(self, raw_args: str) -> str:
        scope = current_scope.get()
        assert scope is not None
        self.asked.append((raw_args, scope.session_id, scope.principal))
        return f"scanned {raw_args}"

    @contextlib.asynccontextmanager
    async def serving(self, play: Any, **settings: Any) -> AsyncIterator[Running]:
        async with serving(play, self.slash, **settings) as running:
            yield running
        self.bridge.close()


async def post(running: Running, text: Any, session: str | None = "s1", **body: Any) -> httpx.Response:
    headers = running.headers | ({} if session is None else {"X-Hermes-Session-Id": session})
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        return await http.post(
            f"{running.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": text}], **body},
            headers=headers,
        )


def said(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


async def test_a_command_is_answered_beside_the_turn_of_its_session(tmp_path: Path) -> None:
    world, gate = CommandBench(tmp_path), Gate()

    async def run() -> None:
        async with world.serving(gate.play, max_concurrent_turns=1) as running:
            turn = asyncio.create_task(post(running, "work"))
            assert await asyncio.wait_for(gate.begun.get(), LIMIT_S) == "work"
            answer = await post(running, "/scan_it the house")
            assert (answer.status_code, said(answer)) == (200, "scanned the house")
            assert answer.headers["x-hermes-session-id"] == "s1"
            assert not turn.done()
            gate.go.set()
            assert said(await turn) == "work"

    await run()
    assert world.asked == [("the house", "s1", "api_server")]


async def test_observers_are_told_of_a_command_before_it_runs_and_of_nothing_else(tmp_path: Path) -> None:
    world, told = CommandBench(tmp_path), []

    def observe(**keywords: Any) -> None:
        scope = current_scope.get()
        assert scope is not None
        told.append((keywords, scope.session_id, list(world.asked)))

    world.hooks.add("pre_command", observe, "p")

    async def run() -> None:
        async with world.serving(echo) as running:
            for line in ("/scan_it  the house", "/tea two cups", "/nothing here", "hello"):
                await post(running, line)

    await run()
    ((keywords, session, asked_before),) = told
    assert (session, asked_before, world.asked) == ("s1", [], [("the house", "s1", "api_server")])
    schema = keywords.pop("telemetry_schema_version")
    assert (keywords, schema) == (
        {
            "command": "scan-it",
            "alias_used": "scan_it",
            "args": "the house",
            "args_raw": "the house",
            "session_id": "s1",
            "session_key": "api_server:s1",
            "platform": "api_server",
            "surface": "gateway",
        },
        "hermes.observer.v1",
    )


async def test_an_observer_that_fails_keeps_no_command_from_running(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)

    def broken(**keywords: Any) -> None:
        raise ValueError("left out")

    world.hooks.add("pre_command", broken, "p")

    async def run() -> str:
        async with world.serving(echo) as running:
            return said(await post(running, "/scan-it x"))

    assert await run() == "scanned x"


async def test_what_a_command_says_waits_for_the_session_s_turn(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)
    world.commands.register(SlashCommand("ring", lambda raw_args: world.inboxes.push("the bell", "s1")), owner="p")

    async def run() -> None:
        async with world.serving(echo) as running:
            assert said(await post(running, "/ring")) == "taken"

    await run()
    assert world.inboxes.take("s1") == ["the bell"]


async def test_a_command_s_answer_is_streamed_as_any_other(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)

    async def run() -> str:
        async with world.serving(echo) as running:
            return (await post(running, [{"type": "text", "text": "/scan-it x"}], stream=True)).text

    lines = [line.removeprefix("data: ") for line in (await run()).split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-1]]
    assert "".join(pieces) == "scanned x"


async def test_a_failure_is_told_and_falls_through_to_nothing(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)

    async def broken(raw_args: str) -> None:
        raise ValueError("no luck")

    world.commands.register(SlashCommand("tea", broken), owner="p")

    async def run() -> str:
        async with world.serving(echo) as running:
            return said(await post(running, "/tea"))

    assert await run() == "Plugin command error: no luck"


async def test_a_skill_becomes_the_message_of_a_turn(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)
    agent = ScriptedAgent(echo)

    async def run() -> None:
        async with world.serving(agent) as running:
            await post(running, "/tea two cups")

    await run()
    (message,) = agent.stored["s1"]
    assert "Warm the pot." in message
    assert message.endswith("\ntwo cups")


async def test_what_is_no_command_or_has_no_session_goes_to_the_model_as_it_is(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)

    async def run() -> list[str]:
        async with world.serving(echo) as running:
            return [
                said(await post(running, "/nothing here")),
                said(await post(running, "/etc/hosts")),
                said(await post(running, "/sca")),
                said(await post(running, "/scan-it x", session=None)),
            ]

    assert await run() == ["/nothing here", "/etc/hosts", "/sca", "/scan-it x"]
    assert world.asked == []


async def test_a_caller_that_leaves_lets_the_tools_of_its_command_stop(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)
    begun, stopped = threading.Event(), threading.Event()

    def wait(raw_args: str) -> None:
        scope = current_scope.get()
        assert scope is not None
        begun.set()
        if scope.cancelled.wait(LIMIT_S):
            stopped.set()

    world.commands.register(SlashCommand("wait", wait), owner="p")

    async with world.serving(echo) as running:
        task = asyncio.create_task(post(running, "/wait"))
        assert await asyncio.to_thread(begun.wait, LIMIT_S)
        task.cancel()
        assert await asyncio.to_thread(stopped.wait, LIMIT_S)


async def test_a_quick_command_of_the_config_runs_over_http(tmp_path: Path) -> None:
    world = CommandBench(tmp_path)

    async def run() -> list[str]:
        async with world.serving(echo) as running:
            return [said(await post(running, line)) for line in ("/disk '/ $(id)'", "/again x")]

    assert await run() == ["42% of / $(id)", "scanned x"]


async def test_a_known_secret_after_a_slash_is_not_read_as_the_beginning_of_a_name(tmp_path: Path) -> None:
    bench = CommandBench(tmp_path)
    redactor.learn(["s9Xw2LmQ8vRt4ZbN7cYd"])

    async def resolved(line: str) -> Any:
        return await bench.slash.resolve(line, where="terminal", session_id="s1", platform="cli", prefixes=True)

    called, spelled = await resolved("/s the 9 pots"), await resolved("/" + " ".join("s9Xw2LmQ8vRt4ZbN7cYd"))
    bench.bridge.close()
    assert isinstance(called, CommandCall) and (called.command.name, called.arguments) == ("scan-it", "the 9 pots")
    assert isinstance(spelled, UnknownCommand) and spelled.name == MASK
