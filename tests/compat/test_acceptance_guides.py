"""Where a guide and the published code disagree (plugin contract §13): what "Recommended" says, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.adapters.events import call_connect, call_send
from hermes_agent.app.main import main
from hermes_agent.media.service import generate_image
from hermes_agent.testing import ScriptedModel, call, plugin_host, served

EMPTY = "def register(ctx): pass\n"


def tool(ctx: Any, name: str = "mine", handler: Callable[..., Any] | None = None, **more: Any) -> None:
    schema = {"name": name, "description": "x", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool(name, schema=schema, handler=handler or (lambda args, **kw: json.dumps(args)), **more)


def test_13_row_01_a_plugin_is_opt_in_and_somebody_is_told(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "new", EMPTY), config={"plugins": {"enabled": []}}, strict=False) as host:
        assert host.record.status == "not enabled"
        assert any("hermes plugins enable new" in hint for hint in host.host.plugins.hints())
        assert "hermes plugins enable/disable" in str(host.run_command("/plugins"))


def test_13_row_02_a_missing_variable_gates_standalone_plugins_alone(tmp_path: Path) -> None:
    needs = "name: {0}\nkind: {0}\nrequires_env: [SOME_KEY]\n"
    for kind in ("standalone", "backend", "platform"):
        folder = plugin(tmp_path / kind, EMPTY, needs.format(kind))
        with plugin_host(folder, strict=False) as host:
            gated = kind == "standalone"
            assert host.record.enabled is not gated
            assert host.record.error == ("Plugin standalone disabled (missing: SOME_KEY)" if gated else None)
    relaxed = {"plugins": {"enabled": ["standalone"], "entries": {"standalone": {"ignore_missing_env": True}}}}
    with plugin_host(tmp_path / "standalone", config=relaxed) as host:
        assert host.record.enabled


EVERYTHING = """
def register(ctx):
    ctx.register_tool("mine", schema={"name": "mine"}, handler=lambda args, **kw: "{}")
    ctx.register_hook("post_tool_call", lambda **kw: None)
    ctx.register_command("mine", str)
    ctx.register_cli_command("mine", "x", lambda parser: None)
    raise RuntimeError("late")
"""


def test_13_row_03_a_crash_in_register_takes_everything_back(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "late", EVERYTHING), strict=False) as host:
        assert host.record.status == "failed"
        assert (host.tools, host.hooks, host.commands, host.cli_commands) == ({}, {}, {}, {})
        assert json.loads(host.dispatch_tool("mine")) == {"error": "Unknown tool: mine"}


def test_13_row_04_register_is_called_once(tmp_path: Path) -> None:
    init = "times = []\ndef register(ctx):\n    times.append(ctx)\n    ctx.register_hook('post_tool_call', print)\n"
    with plugin_host(plugin(tmp_path / "one", init)) as host:
        from hermes_cli.plugins import discover_plugins  # type: ignore[import-not-found]

        for force in (False, True, True):
            discover_plugins(force=force)
        assert len(host.module.times) == 1
        assert len(host.hooks["post_tool_call"]) == 1


def test_13_rows_05_and_06_both_shapes_of_register_command() -> None:
    def commands(ctx: Any) -> None:
        ctx.register_command("one", lambda raw: f"one {raw}", description="Says one", args_hint="<n>")
        ctx.register_command("two", lambda ctx, argstr: f"two {ctx.manifest.name} {argstr}", help="Says two")
        ctx.register_command("three", lambda raw, more=1: f"three {raw} {more}", "Says three")

    with plugin_host(commands) as host:
        assert host.run_command("/one x") == "one x"
        assert host.run_command("/two x") == "two under-test x"
        assert host.run_command("/three x") == "three x 1"
        assert {n: c.description for n, c in host.commands.items()} == {
            "one": "Says one",
            "two": "Says two",
            "three": "Says three",
        }
        assert host.commands["one"].args_hint == "<n>"


def test_13_row_07_without_a_toolset_a_tool_gets_the_plugin_s_name() -> None:
    with plugin_host(tool) as host:
        assert host.tools["mine"].toolset == "under-test"


def test_13_row_08_dispatch_tool_goes_through_the_whole_pipeline(tmp_path: Path) -> None:
    seen: list[str] = []
    block = {"action": "block", "message": "blocked"}

    def calling(ctx: Any) -> None:
        tool(ctx, "secretive", lambda args, **kw: json.dumps({"key": "the-secret-value", "n": args["n"]}))
        ctx.register_hook("pre_tool_call", lambda tool_name, args, **kw: block if args.get("n") == 0 else None)
        ctx.register_hook("post_tool_call", lambda tool_name, **kw: seen.append(tool_name))
        ctx.register_hook("transform_tool_result", lambda result, **kw: result.replace("1", "one"))
        ctx.register_command("go", lambda raw: ctx.dispatch_tool("secretive", {"n": int(raw)}))
        ctx.register_command("shell", lambda raw: ctx.dispatch_tool("terminal", {"command": raw}))

    with plugin_host(calling, env={"MY_API_KEY": "the-secret-value"}, approvals=["deny"]) as host:
        assert json.loads(str(host.run_command("/go 0"))) == {"error": "blocked"}
        answer = str(host.run_command("/go 1"))
        assert "the-secret-value" not in answer
        assert '"n": one' in answer
        assert seen == ["secretive", "secretive"]
        assert "denied" in str(host.run_command("/shell rm -rf x"))
        assert [r.tool for r in host.approval_requests] == ["terminal"]


def test_13_row_09_the_answer_of_pre_tool_call_matters() -> None:
    def guarded(ctx: Any) -> None:
        tool(ctx)
        ctx.register_hook("pre_tool_call", lambda **kw: {"action": "block", "message": "no"})

    with plugin_host(guarded, model=[call("mine"), "so be it"]) as host:
        (done,) = host.ask("go").tool_calls
        assert (done.status, json.loads(done.result)) == ("blocked", {"error": "no"})


def test_13_row_10_other_answers_matter_too() -> None:
    def changing(ctx: Any) -> None:
        tool(ctx)
        ctx.register_hook("transform_tool_result", lambda **kw: "another result")
        ctx.register_hook("transform_llm_output", lambda response_text, **kw: response_text.upper())
        ctx.register_middleware("tool_request", lambda args, **kw: {"args": {**args, "more": 1}})

    with plugin_host(changing, model=[call("mine"), "done"]) as host:
        seen: list[dict[str, Any]] = []
        host.host.hooks.add("post_tool_call", lambda args, **kw: seen.append(args), "witness")
        answer = host.ask("go")
        assert (answer.text, answer.tool_calls[0].result, seen) == ("DONE", "another result", [{"more": 1}])


def test_13_row_11_injected_context_is_never_stored_and_the_sent_text_is_kept_while_the_session_lives() -> None:
    number = iter(range(10))

    def injecting(ctx: Any) -> None:
        ctx.register_hook("pre_llm_call", lambda **kw: f"secret context {next(number)}")

    with plugin_host(injecting, model=["a", "b"]) as host:
        host.ask("one")
        host.ask("two")
        first, second = host.model.requests
        assert first["messages"] == second["messages"][: len(first["messages"])]
        assert second["messages"][-1]["content"] == "two\n\nsecret context 1"
        assert [m.text for m in host.conversation.history] == ["one", "a", "two", "b"]
        for file in host.home.glob("state.db*"):
            assert b"secret context" not in file.read_bytes()


def test_13_row_12_context_comes_in_load_order_bundled_first(tmp_path: Path) -> None:
    init = "def register(ctx): ctx.register_hook('pre_llm_call', lambda **kw: {!r})\n"
    bundled = plugin(tmp_path / "bundled" / "zz", init.format("bundled"), "name: zz\nkind: backend\n").parent
    users = [plugin(tmp_path / name, init.format(name)) for name in ("b", "a")]

    with plugin_host(*users, env={"HERMES_BUNDLED_PLUGINS": str(bundled)}, model=["ok"]) as host:
        host.ask("q")
        assert host.model.messages[-1]["content"] == "q\n\nbundled\n\na\n\nb"


def test_13_row_13_pre_tool_call_gets_the_guide_s_keywords_and_more() -> None:
    seen: list[dict[str, Any]] = []

    def watching(ctx: Any) -> None:
        tool(ctx)
        ctx.register_hook("pre_tool_call", lambda **kw: seen.append(dict(kw)))
        ctx.register_hook("pre_tool_call", lambda tool_name, args, task_id: None)

    with plugin_host(watching) as host:
        assert json.loads(host.dispatch_tool("mine", {"a": 1})) == {"a": 1}, (
            "a callback without **kwargs blocks nothing"
        )
    more = {"session_id", "tool_call_id", "turn_id", "api_request_id", "middleware_trace", "telemetry_schema_version"}
    assert set(seen[0]) == {"tool_name", "args", "task_id"} | more


def test_13_row_14_session_hooks_get_their_whole_set() -> None:
    seen: dict[str, dict[str, Any]] = {}

    def watching(ctx: Any) -> None:
        for hook in ("on_session_finalize", "on_session_reset"):
            ctx.register_hook(hook, lambda hook=hook, **kw: seen.__setitem__(hook, kw))

    with plugin_host(watching) as host:
        for hook in ("on_session_finalize", "on_session_reset"):
            host.fire(hook, reason="new_session")
    for given in seen.values():
        assert {"session_id", "platform", "reason", "old_session_id", "new_session_id"} <= set(given)
    assert len(seen) == 2


def test_13_row_15_the_status_has_the_guide_s_first_line(tmp_path: Path) -> None:
    calculator = Path(__file__).parents[2] / "examples" / "plugins" / "calculator"

    with plugin_host(calculator) as host:
        lines = str(host.run_command("/plugins")).splitlines()
        assert lines[0] == "Plugins (1):"
        assert lines[1].startswith("  ✓ calculator v")
        assert "(2 tools, 1 hooks)" in lines[1]
        bundled = sum(r.manifest.source == "bundled" for r in host.host.plugins.records)
        assert (f"  (+{bundled} bundled — see: hermes plugins list)" in lines) == bool(bundled)


MEMORY = """
from agent.memory_provider import MemoryProvider

class Notes(MemoryProvider):
    name = "notes"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    {schemas}

def register(ctx):
    ctx.register_memory_provider(Notes())
"""


def test_13_rows_16_to_18_memory_in_both_places_on_ctx_and_without_tools(tmp_path: Path) -> None:
    flat = plugin(tmp_path / "notes", MEMORY.format(schemas=""))
    category = plugin(tmp_path / "memory" / "notes", MEMORY.format(schemas="")).parent
    standalone = plugin(tmp_path / "plain", MEMORY.format(schemas=""), "name: plain\nkind: standalone\n")

    for folder in (flat, category):
        with plugin_host(folder, config={"memory": {"provider": "notes"}}) as host:
            provider = host.providers["memory"]["notes"]
            assert provider.get_tool_schemas() == []
    with plugin_host(standalone) as host:
        assert list(host.providers["memory"]) == ["notes"]


def test_13_row_21_an_image_may_be_a_path(tmp_path: Path) -> None:
    init = (
        "from agent.image_gen_provider import ImageGenProvider\n"
        "class Draws(ImageGenProvider):\n    name = 'draws'\n"
        "    def generate(self, prompt, **kwargs): return '/tmp/' + kwargs['aspect_ratio'] + '.png'\n"
        "def register(ctx): ctx.register_image_gen_provider(Draws())\n"
    )
    with plugin_host(plugin(tmp_path / "draws", init)) as host:
        answer = generate_image(host.providers["image_gen"]["draws"], "cat", "Square")
        assert (answer["success"], answer["image"], answer["aspect_ratio"]) == (True, "/tmp/square.png", "square")


SHORT = """
from gateway.platforms.base import BasePlatformAdapter

class Adapter(BasePlatformAdapter):
    async def connect(self): self.said = []
    async def send(self, chat_id, text): self.said.append((chat_id, text))
    async def disconnect(self): pass

def register(ctx):
    ctx.register_platform("short", "Short", adapter_factory=lambda cfg: Adapter(cfg), check_fn=lambda: True)
"""


def test_13_row_22_an_adapter_with_the_guide_s_short_signatures_works(tmp_path: Path) -> None:
    with plugin_host(plugin(tmp_path / "short", SHORT, "name: short\nkind: platform\n")) as host:
        from gateway.config import PlatformConfig  # type: ignore[import-not-found]

        adapter = host.host.platforms.create_adapter("short", PlatformConfig(enabled=True))
        wait = host.host.bridge.wait_plugin
        assert wait(call_connect(adapter, is_reconnect=True)) is True
        assert wait(call_send(adapter, "room", "hello", reply_to="x")).success
        assert adapter.said == [("room", "hello")]
        assert wait(adapter.get_chat_info("room")) == {"name": "room", "type": "dm"}


LOOK = """
def look(ctx, raw):
    picture = {"type": "image", "data": b"png", "mime_type": "image/png"}
    result = ctx.llm.complete_structured(instructions="Look", input=[picture])
    return f"{type(result).__mro__[1].__name__} {result.model} {result.text}"

def spend(ctx, raw):
    usage = ctx.llm.complete([{"role": "user", "content": "x"}], purpose="spending").usage
    return f"{usage.input_tokens} {usage.cost_usd}"

async def later(ctx, raw):
    result = await ctx.llm.acomplete([{"role": "user", "content": "x"}], purpose="later", profile=raw or None)
    return f"{result.audit['profile']}"

def register(ctx):
    ctx.register_command("look", look)
    ctx.register_command("spend", spend)
    ctx.register_command("later", later)
"""


def test_13_row_26_pictures_go_to_the_model_for_them(tmp_path: Path) -> None:
    eyes = ScriptedModel("a cat")
    with served(eyes) as base_url:
        config = {"auxiliary": {"vision": {"provider": "custom", "base_url": base_url, "model": "eyes"}}}
        with plugin_host(plugin(tmp_path / "look", LOOK), config=config) as host:
            assert host.run_command("/look") == "PluginLlmCompleteResult eyes a cat"
            assert host.model.requests == []


def test_13_row_27_cost_log_and_profile(tmp_path: Path) -> None:
    model = ScriptedModel("ok", "ok", "ok", usage={"cost": 0.25})
    with served(model) as base_url:
        config = {
            "model": {"provider": "openrouter", "base_url": base_url, "default": "some/model"},
            "plugins": {"enabled": ["look"], "entries": {"look": {"llm": {"allow_profile_override": True}}}},
        }
        with plugin_host(plugin(tmp_path / "look", LOOK), config=config, env={"OPENROUTER_API_KEY": "a-key"}) as host:
            assert str(host.run_command("/spend")).endswith(" 0.25")
            assert host.run_command("/later default") == "default"
            unknown = host.run_command("/later other")
            assert unknown is not None
            assert "other" in unknown
            assert "default" in unknown, "the known ones are named"
            lines = [line.text for line in host.log if line.text.startswith("plugin_llm.")]
            assert len(lines) == 2
            assert all("plugin=look" in line and "model=some/model" in line for line in lines)
            assert ["purpose=spending" in lines[0], "purpose=later" in lines[1]] == [True, True]


def test_13_row_28_a_structured_result_is_a_result_and_a_mismatch_is_a_value_error(tmp_path: Path) -> None:
    init = (
        "def strict(ctx, raw):\n"
        "    try:\n"
        "        return str(ctx.llm.complete_structured(instructions='x', input=[{'type': 'text', 'text': 'x'}],\n"
        "                                               json_schema={'type': 'array'}))\n"
        "    except Exception as error:\n"
        "        return f'{type(error).__name__}: {error}'\n"
        "def register(ctx): ctx.register_command('strict', strict)\n"
    )
    with plugin_host(plugin(tmp_path / "strict", init), model=[{"not": "a list"}]) as host:
        from agent.plugin_llm import (  # type: ignore[import-not-found]
            PluginLlmCompleteResult,
            PluginLlmStructuredResult,
        )

        assert issubclass(PluginLlmStructuredResult, PluginLlmCompleteResult)
        text = str(host.run_command("/strict"))
        assert text.startswith("ValueError: Plugin LLM structured output did not match schema: ")


def test_13_row_29_of_two_plugins_with_one_tool_the_first_keeps_it() -> None:
    first = partial(tool, handler=lambda args, **kw: '"first"')
    second = partial(tool, handler=lambda args, **kw: '"second"')

    with plugin_host(first, second) as host:
        assert host.dispatch_tool("mine") == '"first"'
        assert "Tool registration REJECTED: 'mine'" in host.log_text
        assert all(record.enabled for record in host.records)


def test_13_row_30_errors_of_handlers_are_marked() -> None:
    def broken(args: dict[str, Any], **kwargs: Any) -> str:
        raise ValueError("no")

    with plugin_host(partial(tool, handler=broken)) as host:
        assert json.loads(host.dispatch_tool("mine")) == {"error": "[TOOL_ERROR] Tool execution failed: ValueError: no"}


def test_13_row_31_the_answer_of_a_check_is_kept_across_requests() -> None:
    asked: list[int] = []

    def check() -> bool:
        asked.append(1)
        return True

    with plugin_host(partial(tool, check_fn=check), model=["one", "two"]) as host:
        host.ask("one")
        host.ask("two")
        assert "mine" in host.model.tools
        assert asked == [1]


def test_13_row_35_an_entry_point_may_be_a_package_or_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("whole_package", "one_function"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"def register(ctx): ctx.register_command('{name}', str)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with plugin_host("whole_package", "one_function:register") as host:
        assert sorted(host.commands) == ["one-function", "whole-package"] or sorted(host.commands) == [
            "one_function",
            "whole_package",
        ]
        assert main(["plugins", "list", "--plain"]) == 0
        shown = capsys.readouterr().out
        assert [line.split()[:2] for line in shown.splitlines() if "entrypoint" in line] == [
            ["enabled", "entrypoint"],
            ["enabled", "entrypoint"],
        ]
