"""What upstream gets wrong (plugin contract §14.1) is right here: the column "Better", row by row."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.app.main import main
from hermes_agent.testing import ScriptedModel, call, plugin_host

EMPTY = "def register(ctx): pass\n"


def tool(ctx: Any, name: str = "mine", handler: Callable[..., Any] | None = None, **more: Any) -> None:
    schema = {"name": name, "description": "x", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool(name, schema=schema, handler=handler or (lambda args, **kw: json.dumps(args)), **more)


HALF = """
from agent.tts_provider import TTSProvider
from tools.registry import registry

class Voice(TTSProvider):
    name = "half"
    def synthesize(self, text, output_path, **kwargs): return output_path

def register(ctx):
    ctx.register_tool("half", schema={"name": "half"}, handler=lambda args, **kw: "{}")
    registry.register("half_direct", "half", {"name": "half_direct"}, lambda args, **kw: "{}")
    ctx.register_hook("pre_tool_call", lambda **kw: {"action": "block", "message": "still there"})
    ctx.register_middleware("tool_request", lambda **kw: {"args": {"still": "there"}})
    ctx.register_tts_provider(Voice())
    raise RuntimeError("too late")
"""


def test_14_1_row_01_a_failed_register_leaves_nothing_in_any_store(tmp_path: Path) -> None:
    with plugin_host() as empty:
        before = [store.snapshot() for store in empty.host.stores]
    with plugin_host(plugin(tmp_path / "half", HALF), strict=False) as host:
        assert host.record.error == "RuntimeError: too late"
        after = [store.snapshot() for store in host.host.stores]
        assert [list(s) if isinstance(s, dict) else None for s in after] == [
            list(s) if isinstance(s, dict) else None for s in before
        ]
        assert host.providers == {}
        for name in ("half", "half_direct"):
            assert json.loads(host.dispatch_tool(name)) == {"error": f"Unknown tool: {name}"}


def test_14_1_row_02_a_name_that_is_a_number_harms_nobody(tmp_path: Path) -> None:
    number = plugin(tmp_path / "number", EMPTY, "name: 123\nversion: 1.5\n")
    good = plugin(tmp_path / "good", "def register(ctx): ctx.register_command('good', str)\n")

    with plugin_host(number, good) as host:
        assert sorted(host.keys) == ["123", "good"]
        assert all(record.enabled for record in host.records)
        assert [item["version"] for item in host.host.plugins.list_plugins() if item["name"] == "123"] == ["1.5"]
        assert "✓ 123 v1.5" in str(host.run_command("/plugins"))


def test_14_1_row_03_a_plugin_that_ends_the_process_does_not(tmp_path: Path) -> None:
    ends = "import sys\ndef register(ctx): sys.exit(3)\n"
    at_import = "raise SystemExit('at import')\n"
    good = plugin(tmp_path / "good", "def register(ctx): ctx.register_command('good', str)\n")

    with plugin_host(
        plugin(tmp_path / "ends", ends), plugin(tmp_path / "at-import", at_import), good, strict=False
    ) as host:
        errors = {record.manifest.key: record.error for record in host.records}
        assert errors == {
            "at-import": "SystemExit('at import') raised during import/register()",
            "ends": "SystemExit(3) raised during import/register()",
            "good": None,
        }
        assert host.run_command("/good x") == "x"


def test_14_1_row_04_async_hooks_are_awaited_and_an_async_guard_blocks() -> None:
    async def guard(tool_name: str, **kwargs: Any) -> Any:
        return {"action": "block", "message": "async no"} if tool_name == "mine" else None

    async def broken(tool_name: str, **kwargs: Any) -> Any:
        if tool_name == "other":
            raise RuntimeError("gone")

    async def context(**kwargs: Any) -> str:
        return "from a coroutine"

    def plugin_(ctx: Any) -> None:
        tool(ctx)
        tool(ctx, "other")
        ctx.register_hook("pre_tool_call", guard)
        ctx.register_hook("pre_tool_call", broken)
        ctx.register_hook("pre_llm_call", context)

    with plugin_host(plugin_, model=["ok"]) as host:
        assert json.loads(host.dispatch_tool("mine")) == {"error": "async no"}
        assert "BLOCKED: the guard of plugin `under-test` failed" in host.dispatch_tool("other")
        host.ask("q")
        assert host.model.messages[-1]["content"] == "q\n\nfrom a coroutine"


def test_14_1_row_05_the_gate_of_overrides_has_no_hole_and_no_false_refusal(tmp_path: Path) -> None:
    sub = {
        "handlers_py": "def replaced(args, **kwargs): return '\"replaced\"'\n",
    }
    init = (
        "from . import handlers\n"
        "def register(ctx):\n"
        "    ctx.register_tool('read_file', 'file', {'name': 'read_file'}, handlers.replaced, override=OVERRIDE)\n"
    )
    for override in ("True", "False"):
        folder = plugin(tmp_path / override / "greedy", init.replace("OVERRIDE", override), **sub)
        with plugin_host(folder, strict=False) as host:
            assert host.host.tools.owner("read_file") == "builtin", "the built-in's own toolset is no way around"
        allowed = {"plugins": {"enabled": ["greedy"], "entries": {"greedy": {"allow_tool_override": True}}}}
        with plugin_host(folder, config=allowed) as host:
            replaced = override == "True"
            assert (host.host.tools.owner("read_file") == "greedy") is replaced
            assert (host.dispatch_tool("read_file", {"path": "x"}) == '"replaced"') is replaced


def test_14_1_row_05_past_the_context_the_gate_is_the_same(tmp_path: Path) -> None:
    direct = (
        "from functools import partial\nfrom tools.registry import registry\n"
        "def register(ctx):\n"
        "    registry.register('read_file', 'other', {'name': 'read_file'}, partial(print), override=True)\n"
    )
    with plugin_host(plugin(tmp_path / "direct", direct), strict=False) as host:
        assert host.host.tools.owner("read_file") == "builtin"
        assert host.record.error == (
            "PermissionError: Plugin module 'direct' cannot override built-in tool 'read_file' without operator opt-in "
            "(allow_tool_override)."
        )


def test_14_1_row_06_a_forced_rediscovery_keeps_what_runs_and_doubles_nothing(tmp_path: Path) -> None:
    init = (
        "from agent.tts_provider import TTSProvider\n"
        "class Voice(TTSProvider):\n    name = 'voice'\n"
        "    def synthesize(self, text, output_path, **kwargs): return output_path\n"
        "def register(ctx):\n"
        "    ctx.register_hook('post_tool_call', lambda **kw: None)\n"
        "    ctx.register_tts_provider(Voice())\n"
    )
    with plugin_host(plugin(tmp_path / "one", init)) as host:
        host.host.hooks.add("post_tool_call", print, "shell")
        before = (host.host.hooks.listeners("post_tool_call"), host.providers["tts"]["voice"], host.module)
        plugin(host.home / "plugins" / "added-later", EMPTY)
        host.host.plugins.discover_and_load(force=True)
        after = (host.host.hooks.listeners("post_tool_call"), host.providers["tts"]["voice"], host.module)
        assert before == after
        assert "added-later" in [r.manifest.key for r in host.host.plugins.records]


def test_14_1_row_07_middleware_is_one_chain_and_runs_once() -> None:
    ran: list[str] = []

    def around(name: str) -> Callable[..., Any]:
        def run(args: dict[str, Any], next_call: Callable[..., Any], **kwargs: Any) -> Any:
            ran.append(name)
            return next_call(args)

        return run

    def adding(name: str) -> Callable[..., Any]:
        def change(args: dict[str, Any], original_args: dict[str, Any], **kwargs: Any) -> Any:
            assert original_args == {}
            return {"args": {**args, name: len(args)}}

        return change

    def plugin_(ctx: Any) -> None:
        tool(ctx)
        for name in ("a", "b"):
            ctx.register_middleware("tool_request", adding(name))
            ctx.register_middleware("tool_execution", around(name))

    with plugin_host(plugin_, model=[[call("mine"), call("mine")], "done"]) as host:
        results = [json.loads(c.result) for c in host.ask("go").tool_calls]
        assert results == [{"a": 0, "b": 1}] * 2, "the second sees what the first made"
        assert ran == ["a", "b", "a", "b"]


def test_14_1_row_09_there_is_one_truth_about_what_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = plugin(tmp_path / "bundled" / "engine", EMPTY, "name: engine\nkind: backend\n").parent
    project = tmp_path / "project"
    plugin(project / ".hermes" / "plugins" / "of-project", EMPTY, "name: of-project\nversion: 2.0\n")
    monkeypatch.chdir(project)
    env = {"HERMES_BUNDLED_PLUGINS": str(backend), "HERMES_ENABLE_PROJECT_PLUGINS": "1"}

    def listed() -> dict[str, tuple[str, str]]:
        assert main(["plugins", "list", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        return {row["name"]: (row["status"], row["source"]) for row in rows}

    with plugin_host(env=env, config={"plugins": {"enabled": []}}) as host:
        running = {r.manifest.key: r.status for r in host.host.plugins.records}
        assert listed() == {"engine": ("enabled", "bundled"), "of-project": ("not enabled", "project")}
        assert running == {"engine": "enabled", "of-project": "not enabled"}
        assert main(["plugins", "disable", "engine"]) == 0
        capsys.readouterr()
        assert listed()["engine"] == ("disabled", "bundled")
        written = (host.home / "config.yaml").read_text()
    disabled = {"plugins": {"enabled": [], "disabled": ["engine"]}}
    with plugin_host(env=env, config=disabled) as host:
        assert {r.manifest.key: r.status for r in host.host.plugins.records}["engine"] == "disabled"
    assert "engine" in written


def test_14_1_row_10_of_two_folders_with_one_name_both_are_named(tmp_path: Path) -> None:
    first = plugin(tmp_path / "folder-a", EMPTY, "name: same\n")
    second = plugin(tmp_path / "folder-b", EMPTY, "name: same\n")

    with plugin_host(first, second) as host:
        (rejected,) = host.host.plugins.rejected
        assert rejected.path.endswith("folder-b")
        assert rejected.rival.endswith("folder-a")
        assert "WARNING" in next(str(line) for line in host.log if "folder-b is not used" in line.text)
        assert "✗ same [refused]" in str(host.run_command("/plugins"))


PROFILE = """
from providers import register_provider
from providers.base import ProviderProfile
register_provider(ProviderProfile(name="mine", env_vars=("MINE_KEY",), base_url="http://127.0.0.1:9/v1"))
"""


def test_14_1_row_11_one_loader_and_one_gate_for_model_providers(tmp_path: Path) -> None:
    flat = plugin(tmp_path / "flat", PROFILE, "name: flat\nkind: model-provider\n")
    category = plugin(tmp_path / "model-providers" / "mine", PROFILE, "name: mine-provider\n").parent

    for folder in (flat, category):
        with plugin_host(folder) as host:
            import providers  # type: ignore[import-not-found]

            assert providers.get_provider_profile("mine").env_vars == ("MINE_KEY",)
            assert host.record.enabled
        with plugin_host(folder, config={"plugins": {"enabled": []}}, strict=False) as host:
            import providers

            assert providers.get_provider_profile("mine") is None, "without being enabled nothing of it runs"
            assert host.record.status == "not enabled"


def test_14_1_row_13_files_beside_a_skill_are_readable(tmp_path: Path) -> None:
    folder = plugin(
        tmp_path / "book",
        "from pathlib import Path\n"
        "def register(ctx): ctx.register_skill('read', Path(__file__).parent / 'skills' / 'read' / 'SKILL.md')\n",
        skills__read__SKILL_md="---\nname: read\n---\nSee references/table.md\n",
        skills__read__references__table_md="| the table |\n",
    )
    with plugin_host(folder) as host:
        shown = json.loads(host.dispatch_tool("skill_view", {"name": "book:read"}))
        table = json.loads(host.dispatch_tool("skill_view", {"name": "book:read", "file_path": "references/table.md"}))
        outside = json.loads(host.dispatch_tool("skill_view", {"name": "book:read", "file_path": "../../plugin.yaml"}))

    assert "references/table.md" in json.dumps(shown["linked_files"])
    assert "| the table |" in table["content"]
    assert "error" in outside


def test_14_1_row_14_a_slash_command_runs_beside_a_turn_and_its_error_is_reported() -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(args: dict[str, Any], **kwargs: Any) -> str:
        inside.set()
        assert leave.wait(30)
        return "{}"

    def plugin_(ctx: Any) -> None:
        tool(ctx, "slow", slow)
        ctx.register_command("quick", lambda raw: "at once")
        ctx.register_command("broken", lambda raw: 1 / 0)

    answers: list[str] = []
    with plugin_host(plugin_, model=[call("slow"), "done"]) as host:
        turn = threading.Thread(target=lambda: answers.append(host.ask("go").text))
        turn.start()
        assert inside.wait(30)
        assert host.run_command("/quick") == "at once"
        assert host.run_command("/broken") == "Plugin command error: division by zero"
        assert answers == []
        leave.set()
        turn.join(30)
    assert answers == ["done"]


def test_14_1_row_16_hooks_of_a_call_get_the_ids_of_its_turn() -> None:
    seen: dict[str, dict[str, Any]] = {}

    def plugin_(ctx: Any) -> None:
        tool(ctx)
        for hook in ("pre_llm_call", "pre_tool_call", "post_tool_call"):
            ctx.register_hook(hook, lambda hook=hook, **kw: seen.__setitem__(hook, kw))

    with plugin_host(plugin_, model=[call("mine"), "done"]) as host:
        host.ask("go")
        assert seen["pre_tool_call"]["turn_id"] == seen["post_tool_call"]["turn_id"] == seen["pre_llm_call"]["turn_id"]
        assert seen["pre_tool_call"]["turn_id"]
        assert {k["session_id"] for k in seen.values()} == {host.conversation.session_id}
        assert seen["pre_tool_call"]["tool_call_id"] == seen["post_tool_call"]["tool_call_id"] != ""


def test_14_1_row_17_async_calls_are_logged_and_overrides_do_something(tmp_path: Path) -> None:
    init = (
        "async def ask(ctx, raw):\n"
        "    kind, _, value = raw.partition('=')\n"
        "    try:\n"
        "        messages = [{'role': 'user', 'content': 'x'}]\n"
        "        result = await ctx.llm.acomplete(messages, purpose='row-17', **{kind: value})\n"
        "        return f\"{result.agent_id} {result.audit['profile']}\"\n"
        "    except ValueError as error:\n"
        "        return f'ValueError: {error}'\n"
        "def register(ctx): ctx.register_command('ask', ask)\n"
    )
    llm = {"allow_profile_override": True, "allow_agent_id_override": True}
    config = {"plugins": {"enabled": ["asks"], "entries": {"asks": {"llm": llm}}}}

    with plugin_host(plugin(tmp_path / "asks", init), config=config, model=["ok", "ok"]) as host:
        assert str(host.run_command("/ask agent_id=helper")).startswith("helper ")
        assert str(host.run_command("/ask profile=default")).endswith(" default")
        assert "ValueError: " in str(host.run_command("/ask profile=nobody"))
        assert len([line for line in host.log if "purpose=row-17" in line.text and line.level == "INFO"]) == 2


def test_14_1_row_18_a_platform_whose_check_raises_is_unavailable_and_nothing_is_installed(tmp_path: Path) -> None:
    init = (
        "asked = []\n"
        "def check():\n    asked.append(1)\n    raise ImportError('no such SDK')\n"
        "def register(ctx):\n"
        "    ctx.register_platform('mine', 'Mine', adapter_factory=lambda cfg: object(), check_fn=check)\n"
    )
    folder = plugin(tmp_path / "mine", init, "name: mine\nkind: platform\n")
    with plugin_host(folder) as host:
        from gateway.config import PlatformConfig  # type: ignore[import-not-found]
        from gateway.platform_registry import platform_registry  # type: ignore[import-not-found]

        assert platform_registry.is_registered("mine")
        assert host.module.asked == [], "registering asks nothing"
        assert platform_registry.create_adapter("mine", PlatformConfig(enabled=True)) is None
        assert "mine" in host.log_text
        assert host.module.asked


def test_14_1_row_20_variables_are_read_when_they_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plugin(tmp_path / "one", EMPTY)
    homes = []
    for number in range(2):
        with plugin_host(folder, model=ScriptedModel("ok")) as host:
            from hermes_constants import get_hermes_home  # type: ignore[import-not-found]

            assert get_hermes_home() == host.home
            host.ask("hello")
            assert (host.home / "state.db").exists()
            homes.append(host.home)
            monkeypatch.setenv("HERMES_PLUGINS_DEBUG", "1" if number else "0")
            assert main(["plugins", "list"]) == 0
            shown = capsys.readouterr()
            assert ("[plugins] DEBUG" in shown.err) is bool(number)
    assert homes[0] != homes[1]
