from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace

import pytest

from hermes_agent.commands import RESERVED, CommandTable, help_text
from hermes_agent.commands.runner import run_command
from hermes_agent.contracts.command import BY_FRONT_END, Confirmation, SlashCommand
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


def test_a_command_is_declared_once_and_each_of_its_front_ends_binds_a_handler():
    commands = CommandTable()
    where = frozenset({"terminal", "chat"})
    commands.register(SlashCommand("new", BY_FRONT_END, aliases=("reset",), where=where, waits_in={"terminal"}))

    assert commands.find("new", "terminal") is None, "no console in this process"
    commands.bind("terminal", {"new": handler})
    commands.bind("chat", {"new": len})

    found = commands.find("new", "terminal"), commands.find("reset", "chat")
    assert [(each.handler, each.during_turn, each.is_bound) for each in found] == [
        (handler, False, True),
        (len, True, True),
    ]
    assert commands.find("new", "http") is None
    assert commands.owner("new") == "builtin" and commands.names() == ["new"]


def test_a_second_declaration_of_the_agent_is_refused():
    commands = CommandTable()
    commands.register(SlashCommand("new", handler))
    with pytest.raises(ValueError, match="the slash command /new is declared twice"):
        commands.register(SlashCommand("New", handler, where=frozenset({"chat"})))


def test_a_front_end_may_bind_its_own_handler_to_a_command_of_all():
    commands = CommandTable()
    commands.register(SlashCommand("context", handler))
    commands.bind("terminal", {"context": len})

    assert commands.find("context", "terminal").handler is len
    assert (commands.find("context", "chat").handler, commands.find("context", "chat").is_bound) == (handler, False)


def test_a_front_end_binds_what_is_declared_for_it_and_all_of_it():
    commands = CommandTable()
    commands.register(SlashCommand("new", BY_FRONT_END, where=frozenset({"terminal"})))
    with pytest.raises(LookupError, match="commands without a declaration for 'chat': new"):
        commands.bind("chat", {"new": handler})
    with pytest.raises(LookupError, match="commands without a handler for 'terminal': new"):
        commands.bind("terminal", {})


def test_an_alias_that_is_a_name_in_a_front_end_means_that_command_there():
    commands = CommandTable()
    commands.register(SlashCommand("new", handler, "Start", aliases=("reset", "clear")))
    commands.register(SlashCommand("clear", len, "Clear", where=frozenset({"terminal"})))

    assert commands.find("clear", "terminal").name == "clear"
    assert commands.find("clear", "chat").name == "new"
    assert commands.help_rows("terminal") == [("new", "", "Start (also /reset)"), ("clear", "", "Clear")]


def test_a_command_of_one_front_end_is_the_agents_everywhere():
    commands = CommandTable()
    commands.register(SlashCommand("ours", handler, where=frozenset({"terminal"})))

    assert not commands.register(SlashCommand("ours", len), owner="p")


def test_a_name_is_found_by_an_underscore_and_by_its_only_beginning():
    commands = CommandTable()
    commands.register(SlashCommand("scan-it", handler), owner="p")
    commands.register(SlashCommand("score", handler), owner="p")

    assert commands.find("Scan_It", "chat").name == "scan-it"
    assert commands.find_by_prefix("sca", "terminal") == "scan-it"
    assert commands.find_by_prefix("sc", "terminal") is None
    assert commands.find_by_prefix("te", "terminal", ["tea"]) == "tea"


def test_help_lists_what_a_user_may_run_the_front_end_s_own_first_and_plugins_last():
    commands = CommandTable()
    commands.register(SlashCommand("scan", handler, "Scan", "<x>"), owner="p")
    commands.register(SlashCommand("usage", handler, "Usage"))
    new = SlashCommand("new", BY_FRONT_END, "Start", aliases=("reset", "clear"), where=frozenset({"chat"}))
    commands.register(replace(new, confirm=Confirmation("Start?", "This ends the session.")))
    commands.register(SlashCommand("restart", BY_FRONT_END, "Restart", where=frozenset({"chat"}), right="known"))
    commands.bind("chat", {"new": handler, "restart": handler})

    rows = commands.help_rows("chat", sign="!", is_allowed=lambda command: command.right != "known")
    skips = "Start; `now` skips the question (also !reset, !clear)"
    assert rows == [("new", "[now]", skips), ("usage", "", "Usage"), ("scan", "<x>", "Scan")]
    assert help_text(rows).splitlines()[1] == "  /scan <x>   Scan"


def test_a_menu_has_the_commands_that_need_no_arguments():
    commands = CommandTable()
    commands.register(SlashCommand("scan-it", handler, "Scan", "[x]"), owner="p")
    commands.register(SlashCommand("needs", handler, "Needs", "<x>"), owner="p")
    commands.register(SlashCommand("x" * 33, handler), owner="p")

    assert commands.menu("chat") == [("scan_it", "Scan")]


def test_the_names_of_the_contract_are_reserved():
    assert {"start", "new", "reset", "bg", "memory-graph", "sethome", "set-home", "v", "exit", "quit"} <= RESERVED


async def run(function, arguments=""):
    bridge = Bridge()
    try:
        return (await asyncio.wait_for(run_command(SlashCommand("x", function), arguments, bridge), 30)).text
    finally:
        bridge.close()


async def test_a_command_answers_with_text_or_nothing():
    async def later(raw_args):
        return raw_args * 2

    assert await run(handler, "abc") == "ABC"
    assert await run(later, "ab") == "abab"
    assert await run(lambda raw_args: None) is None
    assert await run(lambda raw_args: 5) == "5"


async def test_a_command_that_fails_or_exits_is_a_text_for_the_person():
    def broken(raw_args):
        raise ValueError("no such city")

    assert await run(broken) == "Plugin command error: no such city"
    assert "SystemExit(3)" in await run(lambda raw_args: sys.exit(3))


async def test_a_timeout_of_the_handler_s_own_is_told_as_that():
    async def own(raw_args):
        raise TimeoutError("the kettle took too long")

    async def nameless(raw_args):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    assert await run(own) == "Plugin command error: the kettle took too long"
    assert await run(nameless) == "Plugin command error: TimeoutError"


async def test_an_async_handler_has_a_limit_and_a_sync_one_has_none():
    bridge, gone_on = Bridge(), threading.Event()

    async def endless(raw_args):
        await asyncio.Event().wait()

    def slow(raw_args):
        assert gone_on.wait(30)
        return "done"

    async def both():
        waits = asyncio.ensure_future(run_command(SlashCommand("slow", slow), "", bridge, limit_s=0.01))
        said = (await run_command(SlashCommand("endless", endless), "", bridge, limit_s=0.01)).text
        gone_on.set()
        return said, await waits

    try:
        said, answered = await asyncio.wait_for(both(), 30)
    finally:
        bridge.close()
    assert said == "Plugin command error: Plugin command async handler did not complete within 0.01s"
    assert answered.text == "done"
