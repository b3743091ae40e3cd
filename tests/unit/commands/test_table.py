from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from hermes_agent.commands import RESERVED, CommandTable
from hermes_agent.commands.runner import run_command
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.registry import Conflict
from hermes_agent.runtime.bridge import Bridge


def handler(raw_args):
    return raw_args.upper()


def test_a_command_is_found_by_its_normalised_name():
    commands = CommandTable()

    assert commands.register(SlashCommand("/My Scan", handler, args_hint="<x>"), owner="p")
    assert commands.get("my-scan") == SlashCommand("my-scan", handler, "Plugin command", "<x>")
    assert commands.owner("my-scan") == "p"


def test_an_empty_name_is_refused_with_the_contracts_warning(caplog):
    commands = CommandTable()

    assert not commands.register(SlashCommand(" / ", handler), owner="p")
    assert caplog.messages == ["Plugin 'p' tried to register a command with an empty name."]
    assert len(commands) == 0


@pytest.mark.parametrize("name", ["help", "/Quit", "reload-mcp", "set-home", "bg"])
def test_a_built_in_name_is_refused_with_the_contracts_warning(caplog, name):
    commands = CommandTable()

    assert not commands.register(SlashCommand(name, handler), owner="p")
    (message,) = caplog.messages
    assert message.startswith("Plugin 'p' tried to register command '/")
    assert message.endswith("' which conflicts with a built-in command. Skipping.")


def test_a_name_of_the_agents_own_that_the_contract_does_not_list_is_the_agents(caplog):
    commands = CommandTable()
    commands.register(SlashCommand("ours", handler))

    assert not commands.register(SlashCommand("ours", len), owner="p")
    assert commands.get("ours").handler is handler


def test_the_agent_may_take_the_reserved_names():
    assert CommandTable().register(SlashCommand("help", handler))


def test_of_two_plugins_the_first_keeps_the_name():
    commands = CommandTable()
    commands.register(SlashCommand("scan", handler), owner="a")
    with pytest.raises(Conflict, match="slash command `scan` belongs to plugin `a`; plugin `b` wants it too"):
        commands.register(SlashCommand("scan", len), owner="b")

    assert commands.get("scan").handler is handler
    assert commands.register(SlashCommand("scan", len), owner="a")


def test_the_names_of_the_contract_are_reserved():
    assert {"start", "new", "reset", "bg", "memory-graph", "sethome", "set-home", "v", "exit", "quit"} <= RESERVED


def run(function, arguments=""):
    bridge = Bridge()
    try:
        return asyncio.run(asyncio.wait_for(run_command(SlashCommand("x", function), arguments, bridge), 30))
    finally:
        bridge.close()


def test_a_command_answers_with_text_or_nothing():
    async def later(raw_args):
        return raw_args * 2

    assert run(handler, "abc") == "ABC"
    assert run(later, "ab") == "abab"
    assert run(lambda raw_args: None) is None
    assert run(lambda raw_args: 5) == "5"


def test_a_command_that_fails_or_exits_is_a_text_for_the_person():
    def broken(raw_args):
        raise ValueError("no such city")

    assert run(broken) == "Plugin command error: no such city"
    assert "SystemExit(3)" in run(lambda raw_args: sys.exit(3))


def test_a_timeout_of_the_handler_s_own_is_told_as_that():
    async def own(raw_args):
        raise TimeoutError("the kettle took too long")

    async def nameless(raw_args):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert run(own) == "Plugin command error: the kettle took too long"
    assert run(nameless) == "Plugin command error: TimeoutError"


def test_an_async_handler_has_a_limit_and_a_sync_one_has_none():
    bridge, gone_on = Bridge(), threading.Event()

    async def endless(raw_args):
        await asyncio.Event().wait()

    def slow(raw_args):
        assert gone_on.wait(30)
        return "done"

    async def both():
        waits = asyncio.ensure_future(run_command(SlashCommand("slow", slow), "", bridge, limit_s=0.01))
        said = await run_command(SlashCommand("endless", endless), "", bridge, limit_s=0.01)
        gone_on.set()
        return said, await waits

    try:
        said, answered = asyncio.run(asyncio.wait_for(both(), 30))
    finally:
        bridge.close()
    assert said == "Plugin command error: Plugin command async handler did not complete within 0.01s"
    assert answered == "done"
