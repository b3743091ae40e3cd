"""`tools.registry`, `hermes_cli`, `hermes_cli.plugins`: plugin contract §1.11, §4.1, §11.2."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.messages import ToolCall
from hermes_agent.hooks import VALID_HOOKS
from hermes_agent.host import Host
from hermes_agent.plugins import PluginManager
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope

REGISTER = [
    "name", "toolset", "schema", "handler", "check_fn", "requires_env", "is_async", "description", "emoji",
    "max_result_size_chars", "dynamic_schema_overrides", "override",
]  # fmt: skip


def test_the_registry_is_the_host_s_own_object(served: None, host: Host) -> None:
    from tools.registry import ToolEntry, registry, tool_error, tool_result

    assert registry is host.tools
    assert isinstance(registry.get_entry("read_file"), ToolEntry)
    assert list(inspect.signature(registry.register).parameters)[:12] == REGISTER
    assert json.loads(tool_error("no", code=5, success=False)) == {"error": "no", "code": 5, "success": False}
    assert (tool_result({"a": "ä"}), tool_result(a=1)) == ('{"a": "ä"}', '{"a": 1}')


def test_a_patched_dispatch_is_honoured_by_the_agent(served: None, host: Host, tmp_path: Path) -> None:
    from tools.registry import registry

    registry.register("t", "x", {"name": "t"}, lambda args, **kw: '"real"')
    real = registry.dispatch
    registry.dispatch = lambda name, args, **kw: real(name, args, **kw).replace("real", "patched")
    scope = CallScope("s", "t", "u", tmp_path, Approvals(NoApprover("in a test"), timeout_s=1))

    name, arguments = host.dispatcher.resolve(ToolCall("1", "t", "{}"), ["t"])

    assert host.dispatcher.run_inline("1", name, arguments, scope).result == '"patched"'


def test_check_answers_are_asked_again_on_demand(served: None, host: Host) -> None:
    from tools.registry import invalidate_check_fn_cache, registry

    answers = [False, True]
    registry.register("t", "x", {"name": "t"}, lambda args, **kw: "1", check_fn=lambda: answers.pop(0))

    assert registry.get_definitions(["t"]) == registry.get_definitions(["t"]) == []
    invalidate_check_fn_cache()
    assert len(registry.get_definitions(["t"])) == 1


def test_without_a_host_the_registry_says_so(home: Path) -> None:
    code = (
        "from hermes_agent.compat import import_hook; import_hook.install()\n"
        "from tools.registry import tool_error\n"  # needs none
        "try:\n    from tools.registry import registry\nexcept RuntimeError as e:\n    print(e)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.startswith("no host in this process")


def test_a_registry_of_its_own_dispatches_without_a_host(home: Path) -> None:
    code = (
        "from hermes_agent.compat import import_hook; import_hook.install()\n"
        "from tools.registry import ToolRegistry\n"
        "own = ToolRegistry()\n"
        "own.register(name='roll', toolset='dice', schema={'name': 'roll'}, handler=lambda args, **kw: str(args))\n"
        "print(own.dispatch('roll', {'sides': 6}), own.dispatch('absent', {}))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == '{\'sides\': 6} {"error": "Unknown tool: absent"}\n'


def test_the_version_is_the_level_of_the_contract(served: None) -> None:
    import hermes_cli

    assert hermes_cli.__version__ == "0.19.0"


def test_the_plugin_names_are_those_of_the_host(served: None, host: Host) -> None:
    import hermes_cli.plugins as names

    host.hooks.add("pre_llm_call", lambda **kw: "context", "p")
    host.commands.register(SlashCommand("scan", lambda raw: raw), owner="p")

    assert names.get_plugin_manager() is host.plugins
    assert names.PluginManager is PluginManager
    assert names.ENTRY_POINTS_GROUP == "hermes_agent.plugins"
    assert set(VALID_HOOKS) | {"pre_auxiliary_call", "post_auxiliary_call", "on_stream_end"} <= names.VALID_HOOKS
    assert issubclass(names.PluginToolOverrideError, PermissionError)
    assert names.has_hook("pre_llm_call")
    assert names.invoke_hook("pre_llm_call", session_id="s") == ["context"]
    assert list(inspect.signature(names.discover_plugins).parameters) == ["force"]
    manifest = names.PluginManifest(name="x", source="user", key="x")
    assert (manifest.kind, list(manifest.requires_env), manifest.path) == ("standalone", [], "")


def test_plugin_commands_and_toolsets_are_found_through_the_names(
    served: None, host: Host, home: Path, without_host: None
) -> None:
    import hermes_cli.plugins as names

    place = home / "plugins" / "my-tools"
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text("name: my-tools\ndescription: Tools of mine\n")
    (place / "__init__.py").write_text(
        "async def later(raw): return raw * 2\n"
        "def register(ctx):\n"
        "    ctx.register_command('scan', later, description='Scan')\n"
        "    ctx.register_tool('t', schema={'name': 't'}, handler=lambda args, **kw: '1')\n"
    )
    (home / "config.yaml").write_text("plugins: {enabled: [my-tools]}\n")
    fresh = Host.build(home)

    handler = names.get_plugin_command_handler("/Scan")

    assert handler is not None
    assert names.resolve_plugin_command_result(handler("ab")) == "abab"
    assert names.resolve_plugin_command_result("plain") == "plain"
    assert names.get_plugin_command_handler("absent") is None
    assert names.get_plugin_commands()["scan"] | {"handler": None} == {
        "handler": None,
        "description": "Scan",
        "plugin": "my-tools",
        "args_hint": "",
        "argument_mode": None,
    }
    assert names.get_plugin_toolsets() == [("my-tools", "🔌 My Tools", "Tools of mine")]
    fresh.bridge.close()
