"""Upstream's lists and tables: what a plugin changes there counts, or it is told that it does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from compat.guides import plugin
from hermes_agent.testing import PluginHost, plugin_host

WAYS = {
    "append": "DANGEROUS_PATTERNS.append(NEW)",
    "insert": "DANGEROUS_PATTERNS.insert(0, NEW); assert DANGEROUS_PATTERNS[0] == NEW",
    "extend": "DANGEROUS_PATTERNS.extend([NEW])",
    "add in place": "approval.DANGEROUS_PATTERNS += [NEW]",
    "item": "DANGEROUS_PATTERNS[3] = NEW; assert DANGEROUS_PATTERNS[3] == NEW",
    "slice": "DANGEROUS_PATTERNS[2:4] = [NEW]; assert NEW in DANGEROUS_PATTERNS",
    "another list": "approval.DANGEROUS_PATTERNS = [*DANGEROUS_PATTERNS, NEW]",
    "compiled": "approval.DANGEROUS_PATTERNS_COMPILED.append((re.compile(NEW[0]), NEW[1]))",
}
HEAD = """
import re
from tools import approval
from tools.approval import DANGEROUS_PATTERNS, HARDLINE_PATTERNS

NEW = (r"brewctl\\s+drain", "brewctl drain")

def register(ctx):
"""
PLAIN = ["brewctl drain", "brew''ctl  drain", "sh -c 'brewctl drain -y'", "a=drain; brewctl $a"]


def with_register(folder: Path, body: str) -> Path:
    return plugin(folder, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))


def keys_of(host: PluginHost, command: str) -> str:
    """Return what a person is told who is asked about a command; the answer is no."""
    asked = len(host.approval_requests)
    host.dispatch_tool("terminal", {"command": command})
    return "".join(request.summary for request in host.approval_requests[asked:])


def test_a_pattern_that_a_plugin_puts_into_the_list_is_asked_about_however_it_came_there(tmp_path: Path) -> None:
    names = {way.replace(" ", "-"): body for way, body in WAYS.items()}
    bodies = {name: body.replace("NEW", f'(r"{name}\\s+now", "{name}")') for name, body in names.items()}
    plugins = [with_register(tmp_path / name, body) for name, body in bodies.items()]

    with plugin_host(*plugins, approvals=lambda request: "deny") as host:
        for name in names:
            assert name in keys_of(host, f"{name} now") and name not in keys_of(host, f"echo {name}; echo now")


def test_a_pattern_of_a_plugin_finds_a_command_as_the_shell_sees_it(tmp_path: Path) -> None:
    guard = with_register(tmp_path / "guard", "DANGEROUS_PATTERNS.append(NEW)")

    with plugin_host(guard, approvals=lambda request: "deny") as host:
        for command in PLAIN:
            assert "brewctl drain" in keys_of(host, command), command
        from tools.approval import check_dangerous_command, detect_dangerous_command

        assert detect_dangerous_command("brewctl drain") == (True, "brewctl drain", "brewctl drain")
        assert check_dangerous_command("brewctl drain")["approved"] is False


def test_a_pattern_of_a_plugin_is_allowed_by_its_description_and_else_asked_about(tmp_path: Path) -> None:
    guard = with_register(tmp_path / "guard", "DANGEROUS_PATTERNS.append((r'\\btrue\\b', 'truth'))")

    with plugin_host(guard, config={"command_allowlist": ["truth"]}) as host:
        assert json.loads(host.dispatch_tool("terminal", {"command": "true"}))["exit_code"] == 0
        assert host.approval_requests == []


def test_a_hard_line_pattern_of_a_plugin_lets_nothing_pass(tmp_path: Path) -> None:
    guard = with_register(tmp_path / "guard", "HARDLINE_PATTERNS.append(NEW)")
    everything = {"command_allowlist": ["*", "brewctl drain"], "approvals": {"mode": "off"}}

    with plugin_host(guard, config=everything, approvals=lambda request: "session") as host:
        refused = json.loads(host.dispatch_tool("terminal", {"command": "brewctl drain"}))
        assert refused["error"].startswith("BLOCKED (hardline): brewctl drain")
        from tools.approval import detect_hardline_command

        assert detect_hardline_command("brewctl drain") == (True, "brewctl drain")


REMOVALS = {
    "clear": "DANGEROUS_PATTERNS.clear(); HARDLINE_PATTERNS.clear()",
    "pop": "while DANGEROUS_PATTERNS: DANGEROUS_PATTERNS.pop()",
    "another list": "approval.DANGEROUS_PATTERNS = DANGEROUS_PATTERNS[:1]; del DANGEROUS_PATTERNS[0]",
}


@pytest.mark.parametrize("way", REMOVALS)
def test_a_pattern_that_a_plugin_takes_out_stays_in_force_and_the_log_says_so(tmp_path: Path, way: str) -> None:
    body = f"{REMOVALS[way]}\nassert list(DANGEROUS_PATTERNS) == []"

    with plugin_host(with_register(tmp_path / "careless", body), approvals=lambda request: "deny") as host:
        assert "recursive delete" in keys_of(host, "rm -r old")
        assert "hardline" in host.dispatch_tool("terminal", {"command": "reboot"})
        assert "plugin `careless` took the dangerous pattern 'recursive delete' out of the list" in host.log_text


def test_a_plugin_takes_its_own_pattern_back_and_not_that_of_another(tmp_path: Path) -> None:
    first = with_register(tmp_path / "a", "DANGEROUS_PATTERNS.append(NEW)")
    second = with_register(
        tmp_path / "b",
        "DANGEROUS_PATTERNS.append(('zzz', 'z'))\nfor each in (('zzz', 'z'), NEW): DANGEROUS_PATTERNS.remove(each)",
    )

    with plugin_host(first, second, approvals=lambda request: "deny") as host:
        assert "brewctl drain" in keys_of(host, "brewctl drain")
        assert "(z)" not in keys_of(host, "echo zzz")


def test_what_a_plugin_that_failed_or_left_had_added_is_judged_by_no_longer(tmp_path: Path) -> None:
    good = with_register(tmp_path / "good", "DANGEROUS_PATTERNS.append(('one', 'first'))\nDANGEROUS_PATTERNS.pop(0)")
    bad = with_register(tmp_path / "bad", "DANGEROUS_PATTERNS.append(('two', 'second'))\nraise ValueError('no')")

    with plugin_host(good, bad, approvals=lambda request: "deny", strict=False) as host:
        from tools.approval import DANGEROUS_PATTERNS

        assert "first" in keys_of(host, "echo one two") and "second" not in keys_of(host, "echo one two")
        assert len(DANGEROUS_PATTERNS) == 70
        for store in host.host.stores:
            store.remove_owner("good")
        assert "first" not in keys_of(host, "echo one two")
        assert len(DANGEROUS_PATTERNS) == 70 and "first" not in dict(map(reversed, DANGEROUS_PATTERNS))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("DANGEROUS_PATTERNS.append('rm')", "expected (regex, description)"),
        ("DANGEROUS_PATTERNS.append(('(', 'open'))", "'(' of 'open' is not a regex"),
        ("DANGEROUS_PATTERNS.append((3, 'three'))", "3 is not a regular expression"),
        ("DANGEROUS_PATTERNS[:] = [('a', 'b'), 'c']", "expected (regex, description)"),
        ("DANGEROUS_PATTERNS.sort()", "the order of these patterns means nothing"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_value(tmp_path: Path, body: str, said: str) -> None:
    with plugin_host(with_register(tmp_path / "odd", body), strict=False) as host:
        assert said in host.record.failure
        from tools.approval import DANGEROUS_PATTERNS

        assert len(DANGEROUS_PATTERNS) == 70


TOOL = """
from toolsets import TOOLSETS
import toolsets

def register(ctx):
    schema = {"name": "roll", "description": "Roll", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("roll", "dice", schema, lambda args, **kw: "4")
    TOOLSETS["games"] = {"description": "Games", "tools": ["roll"], "includes": []}
    TOOLSETS["games"]["tools"].append("read_file")
    TOOLSETS["games"]["includes"] += ["todo"]
    TOOLSETS["file"]["tools"].append("roll")
    toolsets.TOOLSETS = {"more": {"tools": ["roll"]}}
    TOOLSETS["gone"] = {"tools": ["roll"]}
    del TOOLSETS["gone"]
"""


def test_a_toolset_that_a_plugin_puts_into_the_table_is_one_that_the_operator_can_choose(tmp_path: Path) -> None:
    config = {"platform_toolsets": {"cli": ["games"]}, "toolsets": ["games"]}

    with plugin_host(plugin(tmp_path / "dice", TOOL), config=config) as host:
        from toolsets import TOOLSETS, get_toolset, resolve_toolset

        assert resolve_toolset("games") == ["read_file", "roll", "todo"]
        assert "roll" in resolve_toolset("file") and "write_file" in resolve_toolset("file")
        assert (resolve_toolset("more"), get_toolset("gone"), "gone" in TOOLSETS) == (["roll"], None, False)
        assert {"read_file", "roll", "todo"} <= set(host.visible_tools) and "write_file" not in host.visible_tools
        for change in (
            lambda: TOOLSETS["file"]["tools"].remove("write_file"),
            lambda: TOOLSETS["file"].update(tools=[]),
            lambda: TOOLSETS.__delitem__("file"),
        ):
            with pytest.raises(TypeError, match=r"toolset 'file' cannot be without .*agent\.disabled_toolsets"):
                change()
        with pytest.raises(TypeError, match="expected a list of names"):
            TOOLSETS["x"] = {"tools": "roll"}
        host.host.toolsets.custom.remove_owner("dice")
        assert "games" not in TOOLSETS and "roll" not in resolve_toolset("file")


def test_a_copy_of_a_live_table_is_its_own_and_changes_nothing(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "dice", TOOL)):
        from tools.approval import DANGEROUS_PATTERNS
        from toolsets import TOOLSETS

        games = {"description": "Games", "tools": ["roll", "read_file"], "includes": ["todo"]}
        patterns = len(DANGEROUS_PATTERNS)
        for mine in (copy.deepcopy(TOOLSETS["games"]), copy.deepcopy(TOOLSETS)["games"], TOOLSETS.copy()["games"]):
            mine["tools"].append("write_file")
            mine["tools"].sort()
            mine.clear()
            assert TOOLSETS["games"] == games
        for theirs in (copy.copy(DANGEROUS_PATTERNS), copy.deepcopy(DANGEROUS_PATTERNS)):
            theirs.clear()
        assert len(DANGEROUS_PATTERNS) == patterns
        assert json.loads(json.dumps(TOOLSETS["games"])) == games


def test_a_change_of_a_toolset_counts_or_is_refused(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "dice", TOOL)):
        from toolsets import TOOLSETS

        TOOLSETS["games"]["tools"].sort()
        TOOLSETS["games"].setdefault("tools", []).append("patch")
        assert TOOLSETS["games"]["tools"] == ["read_file", "roll", "patch"]
        for change in ("pop", "__delitem__"):
            with pytest.raises(TypeError, match="toolset 'games' keeps its description, tools and includes: assign"):
                getattr(TOOLSETS["games"], change)("tools")


REGISTRY = """
import dataclasses
from tools.registry import ToolEntry, registry

def register(ctx):
    schema = {"name": "roll", "description": "Roll", "parameters": {"type": "object", "properties": {}}}
    registry._tools["roll"] = ToolEntry("roll", "dice", schema, lambda args, **kw: "4")
    registry._tools["roll"].emoji = "🎲"
    registry._tools["passing"] = dataclasses.replace(registry._tools["roll"], name="passing")
    del registry._tools["passing"]
    try:
        registry._tools["read_file"] = dataclasses.replace(registry._tools["read_file"], handler=print)
    except PermissionError as exc:
        ctx.refused = str(exc)
"""


def test_the_registry_s_table_registers_and_forgets_tools_by_its_rules(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "dice", REGISTRY)) as host:
        from tools.registry import registry

        assert sorted(host.tools) == ["roll"] and host.dispatch_tool("roll") == "4"
        assert registry.get_emoji("roll") == "🎲" and "roll" in registry._tools and "passing" not in registry._tools
        assert registry._tools.get("absent") is None and len(registry._tools) == len(registry.get_all_tool_names())
        assert "cannot override built-in tool 'read_file'" in host.ctx.refused
        with pytest.raises(PermissionError, match="cannot deregister tool 'read_file'"):
            registry._tools.pop("read_file")
        with pytest.raises(TypeError, match=r"expected a tools\.registry\.ToolEntry"):
            registry._tools["x"] = {}  # type: ignore[assignment]


CALLER = """
from hermes_cli.plugins import VALID_HOOKS, VALID_MIDDLEWARE, invoke_hook

VALID_HOOKS.add("kettle_boils")
VALID_MIDDLEWARE.add("tea")

def register(ctx):
    ctx.register_hook("kettle_boils", lambda **kw: kw["cups"])
    ctx.register_middleware("tea", lambda **kw: None)
    ctx.register_hook("kettle_boil", lambda **kw: None)
"""


def test_a_hook_that_a_plugin_made_known_is_registered_without_a_word(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "kettle", CALLER), strict=False) as host:
        from hermes_cli.plugins import VALID_HOOKS, VALID_MIDDLEWARE, invoke_hook

        try:
            assert invoke_hook("kettle_boils", cups=3) == [3]
            assert [note for note in host.notes if "unknown" in note] == ["unknown hook `kettle_boil`"]
        finally:
            VALID_HOOKS.discard("kettle_boils")
            VALID_MIDDLEWARE.discard("tea")


def test_a_kind_of_file_that_a_plugin_adds_is_kept_under_its_name(served: None, home: Path) -> None:
    from gateway.platforms.base import SUPPORTED_DOCUMENT_TYPES, cache_media_bytes

    SUPPORTED_DOCUMENT_TYPES[".gcode"] = "text/x-gcode"
    try:
        kept = cache_media_bytes(b"G1 X1", filename="part.gcode", mime_type="text/x-gcode")
        assert kept is not None and (kept.kind, Path(kept.path).suffix) == ("document", ".gcode")
    finally:
        del SUPPORTED_DOCUMENT_TYPES[".gcode"]


def test_a_table_that_only_shows_says_how_to_change_what_it_shows(tmp_path: Path) -> None:
    body = "def register(ctx):\n    ctx.register_hook('pre_llm_call', lambda **kw: None)\n"
    body += "    ctx.register_command('scan', lambda raw: raw)\n"
    with plugin_host(plugin(tmp_path / "scan", body)):
        from agent.skill_commands import get_skill_commands
        from hermes_cli.commands import COMMAND_REGISTRY, CommandDef
        from hermes_cli.plugins import get_plugin_commands, get_plugin_manager
        from tools.clarify_gateway import _entries

        manager = get_plugin_manager()
        for change, remedy in (
            (lambda: COMMAND_REGISTRY.append(CommandDef("x", "y")), "ctx.register_command"),
            (lambda: get_skill_commands().update(x={}), "a skill is a folder"),
            (lambda: _entries.__setitem__("x", {}), "the tool `clarify` asks one"),
            (lambda: _entries.__delitem__("x"), "the tool `clarify` asks one"),
            (lambda: manager._plugin_tool_names.add("x"), "ctx.register_tool"),
            (lambda: manager._cli_commands.pop("x", None), "ctx.register_cli_command"),
            (lambda: manager._aux_tasks.clear(), "ctx.register_auxiliary_task"),
            (lambda: manager._plugin_skills.__setitem__("a:b", {}), "ctx.register_skill"),
            (lambda: manager._slack_action_handlers.append(("a", print, "b")), "ctx.register_slack_action_handler"),
        ):
            with pytest.raises(TypeError, match=rf"takes? no change: {remedy}"):
                change()
        assert len(manager._hooks.setdefault("pre_llm_call", [])) == 1
        mine = copy.deepcopy(get_plugin_commands())
        mine["own"] = {}
        mine["scan"]["description"] = "mine"
        copy.deepcopy(manager._hooks)["pre_llm_call"].append(print)
        assert get_plugin_commands()["scan"]["description"] != "mine" and len(manager._hooks["pre_llm_call"]) == 1
        assert json.dumps(manager._plugin_skills) == "{}" and set(mine) == {"scan", "own"}


def test_a_name_that_is_replaced_in_a_served_module_is_told_of(served: None, caplog: pytest.LogCaptureFixture) -> None:
    import model_tools

    model_tools.handle_function_call = lambda *args: "mine"  # type: ignore[assignment]
    model_tools.own = 3  # type: ignore[attr-defined]

    assert model_tools.handle_function_call() == "mine"  # type: ignore[call-arg]
    assert [m for m in caplog.messages if "was replaced" in m] == [caplog.messages[-1]]
    assert "`model_tools.handle_function_call` was replaced" in caplog.messages[-1]


MEMORY_WITH_MODEL = """
from agent.memory_provider import MemoryProvider
from hermes_cli.plugins import VALID_HOOKS, PluginContext, PluginManifest, get_plugin_manager

class Shelf(MemoryProvider):
    name = "shelf"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): ...
    def get_tool_schemas(self): return []

def register(ctx):
    assert not hasattr(ctx, "llm")
    own = PluginContext(PluginManifest(name="shelf", key="shelf"), get_plugin_manager())
    own.register_auxiliary_task("shelf_extraction", display_name="Extraction", description="Extracts facts.")
    if {"pre_auxiliary_call", "post_auxiliary_call"} <= VALID_HOOKS:
        own.register_hook("pre_auxiliary_call", lambda **kw: None)
    Shelf.own = own
    ctx.register_memory_provider(Shelf())
"""


def test_a_memory_plugin_finds_its_full_context_and_the_later_hooks_by_upstream_s_names(tmp_path: Path) -> None:
    folder = plugin(tmp_path / "shelf", MEMORY_WITH_MODEL, "name: shelf\nkind: exclusive\n")
    with plugin_host(folder, config={"memory": {"provider": "shelf"}}, model=["a fact"]) as host:
        from hermes_cli.plugins import PluginContext, PluginManifest

        own = host.record.module.Shelf.own
        manager = host.host.plugins
        assert isinstance(own, PluginContext)
        assert own is manager.contexts["shelf"] is PluginContext(PluginManifest(name="shelf"), manager)
        assert own.llm.complete([{"role": "user", "content": "extract"}]).text == "a fact"
        assert [owner for owner, _ in host.host.hooks.listeners("pre_auxiliary_call")] == ["shelf"]
        with pytest.raises(LookupError, match="no plugin `another` runs, so it has no context"):
            PluginContext(PluginManifest(name="another"), manager)
