"""Toolsets: what a name stands for, and what a platform is offered."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.app.main import main as hermes
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.testing import plugin_host
from hermes_agent.tools import ToolRegistry
from hermes_agent.tools.toolsets import ToolsetChoice, Toolsets

BUILTINS = {
    "read_file": "file",
    "write_file": "file",
    "terminal": "terminal",
    "web_search": "web",
    "web_extract": "web",
    "clarify": "clarify",
}
PLUGINS = {"roll": "dice", "lights": "homeassistant", "scrape": "web", "mcp_time": "mcp-time", "mcp_git": "mcp-git"}
PLUGINS |= {"room_topic": "irc"}


def toolsets(**choice: Any) -> Toolsets:
    registry = ToolRegistry()
    for owner, tools in ((BUILTIN, BUILTINS), ("p", PLUGINS)):
        for name, toolset in tools.items():
            registry.register(name, toolset, {"name": name}, lambda args: "", owner=Owner(owner))
    return Toolsets(registry, lambda: ToolsetChoice(**choice))


def test_a_name_stands_for_its_tools_and_those_of_its_parts() -> None:
    sets = toolsets()
    assert sets.resolve("file") == ["read_file", "write_file"]
    assert sets.resolve("file_tools") == ["read_file", "write_file"]
    assert sets.resolve("web") == ["scrape", "web_extract", "web_search"]
    assert sets.resolve("search") == ["web_search"]
    assert sets.resolve("debugging") == ["read_file", "scrape", "terminal", "web_extract", "web_search", "write_file"]
    assert sets.resolve("all") == sorted({*BUILTINS, *PLUGINS})
    assert sets.resolve("hermes-irc") == sorted({*BUILTINS, "room_topic", "scrape"})
    assert sets.resolve("hermes-webhook") == ["clarify", "web_extract", "web_search"]
    assert sets.resolve("nothing") == []


def test_toolsets_that_contain_each_other_end() -> None:
    sets = toolsets()
    sets.create("a", "", ["terminal"], ["b"])
    sets.create("b", "", ["clarify"], ["a", "file"])
    assert sets.resolve("a") == sets.resolve("b") == ["clarify", "read_file", "terminal", "write_file"]


def test_a_platform_is_offered_its_bundle_and_what_plugins_bring() -> None:
    everything = {*BUILTINS, *PLUGINS} - {"lights", "room_topic"}
    assert set(toolsets().offered_tools("cli")) == everything | {"room_topic"}
    assert "lights" in toolsets(platforms={"cli": ["hermes-cli", "homeassistant"]}).offered_tools("cli")
    assert toolsets().why_hidden("lights", "cli") == (
        "its toolset `homeassistant` is not among those of cli (platform_toolsets)"
    )


def test_a_selection_leaves_out_what_it_does_not_name() -> None:
    sets = toolsets(platforms={"telegram": ["file", "no_mcp"]}, known={"telegram": ["dice", "irc"]})
    assert sets.offered_tools("telegram") == ["read_file", "write_file"]
    assert "MCP" in sets.why_hidden("mcp_time", "telegram")
    assert "roll" in sets.offered_tools("cli")
    assert toolsets(platforms={"cli": []}).offered_tools("cli") == ["mcp_git", "mcp_time", "roll", "room_topic"]


def test_a_toolset_of_a_plugin_that_came_after_the_selection_is_offered() -> None:
    sets = toolsets(platforms={"cli": ["file"]}, known={"cli": ["irc"]})
    assert "roll" in sets.offered_tools("cli")
    assert "room_topic" not in sets.offered_tools("cli")


def test_naming_an_mcp_server_leaves_the_others_out() -> None:
    for name in ("time", "mcp-time"):
        offered = toolsets(platforms={"cli": ["file", name]}).offered_tools("cli")
        assert "mcp_time" in offered
        assert "mcp_git" not in offered


def test_the_default_holds_where_a_platform_names_none() -> None:
    sets = toolsets(default=("file",), platforms={"cli": ["terminal"]})
    assert "terminal" not in sets.offered_tools("telegram")
    assert "terminal" in sets.offered_tools("cli")


def test_what_is_disabled_stays_away_also_from_a_task() -> None:
    sets = toolsets(disabled=["terminal", "hermes-irc"])
    assert "terminal" not in sets.offered_tools("cli", ["all"])
    assert "room_topic" not in sets.offered_tools("irc")
    assert "read_file" in sets.offered_tools("irc")
    assert sets.why_hidden("terminal", "cli") == "its toolset `terminal` is in agent.disabled_toolsets"


def test_a_task_is_limited_to_what_it_names() -> None:
    assert toolsets().offered_tools("cli", ["file", "dice"]) == ["read_file", "roll", "write_file"]
    assert toolsets().offered_tools("cli", []) == []


def test_a_tool_that_comes_later_is_judged_anew_and_a_wrong_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    sets = toolsets(platforms={"cli": ["fil"]})
    assert "later" not in sets.offered_tools("cli")
    assert "there is no toolset `fil`, which is named for cli" in caplog.text
    sets._registry.register("later", "later", {}, lambda args: "", owner=Owner("p"))
    assert "later" in sets.offered_tools("cli")


NAMES = st.sampled_from(
    [*sorted({*BUILTINS.values(), *PLUGINS.values()}), "debugging", "safe", "all", "hermes-cli", "x"]
)


@given(st.lists(NAMES), st.lists(NAMES), st.one_of(st.none(), st.lists(NAMES)))
def test_what_is_offered_is_registered_not_disabled_and_within_the_task(
    named: list[str], disabled: list[str], wanted: list[str] | None
) -> None:
    sets = toolsets(platforms={"cli": named}, disabled=disabled)
    offered = set(sets.offered_tools("cli", wanted))
    assert offered <= {*BUILTINS, *PLUGINS}
    assert not offered & sets.resolve_all(name for name in disabled if not name.startswith("hermes-"))
    if wanted is not None:
        assert offered <= sets.resolve_all(wanted)


@given(st.dictionaries(st.sampled_from("pqrs"), st.tuples(st.lists(NAMES), st.lists(st.sampled_from("pqrs")))), NAMES)
def test_a_toolset_resolves_to_what_is_registered_whoever_includes_whom(
    made: dict[str, tuple[list[str], list[str]]], other: str
) -> None:
    sets = toolsets()
    for name, (tools, includes) in made.items():
        sets.create(name, "d", tools, [*includes, other])
    for name, (_, includes) in made.items():
        found = sets.resolve(name)
        assert found == sorted(set(found))
        assert set(sets.resolve(other)) <= set(found)
        assert all(set(sets.resolve(part)) <= set(found) for part in includes)
        assert sets.exists(name)
    assert sets.resolve_all(made) <= {*BUILTINS, *PLUGINS, *(tool for tools, _ in made.values() for tool in tools)}


PLUGIN = """
SIDES = {"type": "integer", "description": "How many"}
SCHEMA = {"parameters": {"type": "object", "properties": {"sides": SIDES}, "required": ["sides"]}}


def register(ctx):
    ctx.register_tool("roll", "dice", {"name": "roll", "description": "Roll.", **SCHEMA}, lambda args, **k: "six")
"""


def test_the_commands_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    folder = tmp_path / "plugins" / "dice"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: dice\n")
    (folder / "__init__.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text("plugins: {enabled: [dice]}\n")

    def tools(*args: str) -> str:
        with contextlib.suppress(SystemExit):
            hermes(["tools", *args])
        said = capsys.readouterr()
        return said.out + said.err

    def state(name: str, *args: str) -> str:
        return next(str(row["state"]) for row in json.loads(tools("list", "--json", *args)) if row["name"] == name)

    assert state("roll") == state("terminal") == "shown"
    assert "dice is no longer offered on cli." in tools("disable", "dice")
    assert "platform_toolsets" in state("roll")
    assert state("roll", "--platform", "telegram") == state("terminal") == "shown"
    assert "not among those of cli" in tools("explain", "roll")
    assert "dice is offered on cli." in tools("enable", "dice")
    assert state("roll") == "shown"
    assert "disabled on every platform" in tools("disable", "terminal", "--everywhere")
    assert "agent.disabled_toolsets" in state("terminal", "--platform", "telegram")
    assert "--everywhere" in tools("enable", "terminal")
    assert "no longer disabled" in tools("enable", "terminal", "--everywhere")
    assert state("terminal") == "shown"
    assert "sides: integer  How many" in tools("info", "roll")
    assert json.loads(tools("info", "roll", "--json"))["name"] == "roll"
    assert tools("info", "dice") == "toolset dice: roll\n"
    assert "there is no tool or toolset 'rol'" in tools("info", "rol")
    assert "there is no toolset 'terminl'" in tools("disable", "terminl")


def test_in_a_conversation_tools_lists_what_is_offered_there() -> None:
    def register(ctx: Any) -> None:
        ctx.register_tool("roll", "dice", {"name": "roll", "description": "Roll dice."}, lambda args, **k: "six")

    with plugin_host(register, config={"platform_toolsets": {"telegram": ["file"]}}, platform="telegram") as host:
        said = host.run_command("/tools")
        assert "dice: roll" in said
        assert "terminal" not in said
        assert host.run_command("/tools roll") == "roll (dice): Roll dice."
        assert "Not offered here: its toolset `terminal`" in host.run_command("/tools terminal")
        assert "There is no tool `rol`" in host.run_command("/tools rol")
