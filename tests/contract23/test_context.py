"""Acceptance list of the plugin contract of 0.23, part B: the context. One test a sentence, with its number."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from e2e.agent.test_compaction import LONG, hosted
from e2e.agent.test_compaction import Model as SummarisingModel
from hermes_agent.core.messages import fold
from hermes_agent.core.redaction import redactor
from hermes_agent.mcp.servers import McpServers
from hermes_agent.plugins.plugin_data import PluginState, plugin_data_dir, plugin_db, state_namespace
from hermes_agent.policy import NoApprover
from hermes_agent.testing import call, plugin_host

SCHEMA = {"name": "read_file", "description": "x", "parameters": {"type": "object", "properties": {}}}
START, END = "<!-- hermes-plugin-sections:start -->", "<!-- hermes-plugin-sections:end -->"


@pytest.fixture(autouse=True)
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "hermes_agent")
    yield


def warnings(host: Any, part: str) -> list[str]:
    return [line.text for line in host.log if line.level == "WARNING" and part in line.text]


class Contexts(list[Any]):
    """Plugins that do nothing but keep their context."""

    def plugin(self, folder: Path, manifest: str | None = None) -> Path:
        return plugin(folder, "def register(ctx):\n    global context\n    context = ctx\n", manifest)


def context(host: Any, key: str) -> Any:
    return host.host.plugins.find(key).module.context


def keeping(tmp_path: Path, *names: str) -> list[Path]:
    return [Contexts().plugin(tmp_path / name) for name in names]


def test_b1_get_config_reads_settings_then_config_then_the_default(tmp_path: Path) -> None:
    entry = {"settings": {"a": {"b": 1}}, "config": {"a": {"b": 2, "c": 3}}}
    config = {"plugins": {"enabled": ["p"], "entries": {"p": entry}}}
    with plugin_host(*keeping(tmp_path, "p"), config=config) as host:
        ctx = context(host, "p")
        assert (ctx.get_config("a.b"), ctx.get_config("a.c"), ctx.get_config("a.d", 4)) == (1, 3, 4)
        assert ctx.get_config("a") == {"b": 1}
        assert ctx.get_config("z") is None
        assert ctx.get_config() == {"a": {"b": 1}}


def test_get_config_without_a_key_is_the_default_where_nothing_is_set(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ctx = context(host, "p")
        assert (ctx.get_config(), ctx.get_config(default={})) == (None, {})


def test_a_plugin_may_describe_itself_and_not_rename_itself(tmp_path: Path) -> None:
    code = "def register(ctx):\n    ctx.manifest.version = '1.2.3'\n    ctx.manifest.key = 'other'\n"
    with plugin_host(plugin(tmp_path / "p", code), strict=False) as host:
        manifest = host.host.plugins.find("p").manifest
        assert (manifest.version, manifest.key) == ("1.2.3", "p")
        assert warnings(host, "manifest.key stays 'p'")


@pytest.mark.parametrize("key", ["../x", "model.x", "", "a..b", "a/b", "plugins", "security.x", "settings.x", 3])
def test_b2_keys_that_lead_out_of_the_settings_raise(tmp_path: Path, key: Any) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        with pytest.raises(ValueError, match="is not usable"):
            context(host, "p").get_config(key)
        assert warnings(host, "Rejected config path")
        with pytest.raises(ValueError, match="is not usable"):
            context(host, "p").set_config(key, 1)


def _write_many(home: str, first: int) -> None:
    from hermes_agent.plugins.manifest import PluginManifest
    from hermes_agent.plugins.plugin_config import set_config

    for number in range(first, first + 4):
        set_config(Path(home), PluginManifest("other", key="other"), f"n{number}", number)


def test_b3_set_config_keeps_comments_and_other_keys_and_two_writers_lose_nothing(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        file = host.home / "config.yaml"
        file.write_text("# mine\nplugins:\n  enabled: [p]  # this one\nmodel:\n  default: x\n", encoding="utf-8")
        other = multiprocessing.get_context("spawn").Process(target=_write_many, args=(str(host.home), 0))
        other.start()
        ctx = context(host, "p")
        ctx.set_config("a.b", 1)
        for number in range(3):
            ctx.set_config(f"k{number}", [number])
        other.join(120)
        text = file.read_text(encoding="utf-8")
        assert other.exitcode == 0
        assert "# mine" in text
        assert "# this one" in text
        assert "default: x" in text
        assert ctx.get_config("a.b") == 1
        assert ctx.get_config("k2") == [2]
        host.host.reread_config()
        settings = host.host.config.values["plugins"]["entries"]["other"]["settings"]
        assert settings == {f"n{number}": number for number in range(4)}


def test_b3_a_declared_key_raises_a_permission_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = tmp_path / "declared.yaml"
    declared.write_text("plugins:\n  enabled: [p]\n  entries:\n    p:\n      settings: {a: 1}\n", encoding="utf-8")
    with plugin_host(*keeping(tmp_path, "p"), env={"HERMES_DECLARED_CONFIG": str(declared)}) as host:
        ctx = context(host, "p")
        with pytest.raises(PermissionError, match="set_config"):
            ctx.set_config("a", 2)


def test_b4_the_state_is_durable_private_and_refuses_what_it_cannot_keep(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        state = context(host, "p").state
        assert state is context(host, "p").state
        state.set("cursor", {"at": 1})
        assert PluginState("p", lambda: host.home).get("cursor") == {"at": 1}
        assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
        with pytest.raises(ValueError, match=r"Plugin state value for 'f' is not JSON-serializable"):
            state.set("f", lambda: None)
        with pytest.raises(ValueError, match="Plugin state quota exceeded: "):
            state.set("big", "x" * (11 * 2**20))
        for key in ("..", "a/b", "", ".x"):
            with pytest.raises(ValueError, match="not usable"):
                state.set(key, 1)
        state.path.write_text("{broken", encoding="utf-8")
        with pytest.raises(RuntimeError, match="Cannot parse plugin state"):
            state.get("cursor")
        with pytest.raises(RuntimeError, match="Cannot parse plugin state"):
            state.set("cursor", 2)
        assert state.path.read_text(encoding="utf-8") == "{broken"


def test_b5_the_folder_of_a_state_has_the_hash_of_the_plugins_id(tmp_path: Path) -> None:
    state = PluginState("image_gen/fal", lambda: tmp_path)
    assert state.data_dir == tmp_path / "plugin-data" / "agent-plugin-image_gen-fal-803f1db8"
    assert state_namespace("///").startswith("agent-plugin-plugin-")


def system_prompt(host: Any) -> str:
    return str(host.conversation.system_prompt)


def test_b6_a_prompt_section_is_rendered_once_for_a_session(tmp_path: Path) -> None:
    texts = iter(("first text", "second text"))
    seen: list[dict[str, Any]] = []

    def content(info: Any) -> str:
        seen.append(dict(info))
        return next(texts)

    def register(ctx: Any) -> None:
        handle = ctx.register_system_prompt_section("my.section", content, max_chars=100)
        assert handle.kind == "system_prompt_section"
        with pytest.raises(ValueError, match=r"system prompt section 'my\.section' is already registered by plugin "):
            ctx.register_system_prompt_section("my.section", "x")
        for wrong in ({"position": "first"}, {"max_chars": 4001}, {"max_chars": True}, {"max_chars": 0}):
            with pytest.raises(ValueError):
                ctx.register_system_prompt_section("other", "x", **wrong)
        with pytest.raises(ValueError):
            ctx.register_system_prompt_section("Upper", "x")
        with pytest.raises(TypeError):
            ctx.register_system_prompt_section("other", 3)

    with plugin_host(register, model=["one", "two"]) as host:
        host.ask("hello")
        before = system_prompt(host)
        block = f"{START}\n## Plugin Context: my.section\n<!-- hermes-plugin-section-chars:10 -->\n\nfirst text\n{END}"
        assert block in before
        assert set(seen[0]) == {"session_id", "model", "provider", "platform", "profile_name", "cwd"}
        host.ask("again")
        assert system_prompt(host) == before
        stored = host._run(host.host.agent.call_transcript("load", host.conversation.session_id))
        assert stored.system_prompt == before
        assert len(seen) == 1


def test_b6_the_section_stays_the_same_after_a_compression_and_a_resumed_session() -> None:
    rendered: list[str] = []

    def content(info: Any) -> str:
        rendered.append(f"text {len(rendered) + 1}")
        return rendered[-1]

    model = SummarisingModel(*[f"answer {n}" for n in range(12)])
    with hosted(model, lambda ctx: ctx.register_system_prompt_section("mine", content), length=100_000) as host:
        for number in range(5):
            host.ask(f"question {number} {LONG}")
        before = str(model.messages[0]["content"])
        assert "\ntext 1\n" in before
        assert "became" in (host.run_command("/compress") or "") and model.summaries
        host.ask("after the compression")
        assert str(model.messages[0]["content"]) == before

        first = host.conversation.session_id
        host.new_session()
        host.ask("in another session")
        assert "\ntext 2\n" in str(model.messages[0]["content"])
        resumed = host._run(host.host.agent.open(first, platform="cli", approver=NoApprover("a test")))
        host._run(fold(resumed.turn("and again")))
        assert str(model.messages[0]["content"]) == before


def test_b7_sections_that_cannot_be_used_are_left_out_with_a_warning_each(tmp_path: Path) -> None:
    def fail(info: Any) -> str:
        raise RuntimeError("no luck")

    def register(ctx: Any) -> None:
        for number in range(33):
            ctx.register_system_prompt_section(f"n{number:02}", f"text {number}")
        ctx.register_system_prompt_section("a-long", lambda info: "x" * 11, max_chars=10)
        ctx.register_system_prompt_section("a-fails", fail)
        ctx.register_system_prompt_section("a-marker", START)
        ctx.register_system_prompt_section("a-empty", "")

    with plugin_host(register) as host:
        prompt = system_prompt(host)
        assert prompt.count("## Plugin Context: ") == 32
        assert "n32" not in prompt
        left_out = [line.split("'")[1] for line in warnings(host, "is left out: ")]
        assert sorted(left_out) == ["a-fails", "a-long", "a-marker", "n32"]


def test_b8_has_plugin_knows_keys_and_names_of_running_plugins(tmp_path: Path) -> None:
    folders = [*keeping(tmp_path, "p", "off"), Contexts().plugin(tmp_path / "cat" / "one", "name: the-name\n").parent]
    config = {"plugins": {"enabled": ["p", "off", "cat/one"], "disabled": ["off"]}}
    with plugin_host(*folders, config=config, strict=False) as host:
        ctx = context(host, "p")
        assert ctx.plugin_id == "p"
        assert context(host, "cat/one").plugin_id == "cat/one"
        assert [ctx.has_plugin(n) for n in ("p", "cat/one", "the-name", "off", "x")] == [True, True, True, False, False]


def test_b9_unload_callbacks_run_once_in_reverse_order_and_one_that_raises_stops_none(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ran: list[str] = []
        ctx = context(host, "p")

        def fail() -> None:
            ran.append("fails")
            raise RuntimeError("no luck")

        ctx.on_unload(lambda: ran.append("first"))
        ctx.on_unload(fail)
        ctx.on_unload(lambda: ran.append("last"))
        ctx.on_unload(lambda: ran.append("never")).retire()
        with pytest.raises(TypeError):
            ctx.on_unload(3)
        host.host.plugins.unload("p")
        host.host.plugins.unload("p")
        assert ran == ["last", "fails", "first"]


def test_b10_redaction_patterns_are_accepted_when_they_are_safe(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ctx = context(host, "p")
        assert ctx.register_redaction_patterns(["ab[0-9]+", "(a+)+", "x|y"]) == 1
        assert redactor("see ab123 there") == "see *** there" or "ab123" not in redactor("see ab123 there")
        assert ctx.register_redaction_patterns(["zz(a+)+", 3, "zz[", "zz(?:a*b)*", "ab|cd"]) == 0
        host.host.plugins.unload("p")
        assert redactor("see ab123 there") == "see ab123 there"


def test_b11_events_reach_other_plugins_as_copies(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "a", "b")) as host:
        got: list[dict[str, Any]] = []
        came = threading.Event()

        async def later(**payload: Any) -> None:
            got.append(payload)
            came.set()

        a, b = context(host, "a"), context(host, "b")
        a.subscribe("b:x", lambda **payload: got.append(payload))
        a.subscribe("b:x", later)
        sent = {"list": [1, 2], "text": "hello"}
        assert b.emit("x", sent) == 2
        assert came.wait(30)
        assert got == [sent, sent]
        assert got[0]["list"] is not sent["list"]
        assert got[0]["list"] is not got[1]["list"]
        assert b.emit("unheard") == 0
        with pytest.raises(ValueError):
            b.emit("a:b")
        with pytest.raises(TypeError):
            b.emit("x", [1])
        for wrong in ("x", ":x", "b:", "a:b:c"):
            with pytest.raises(ValueError):
                a.subscribe(wrong, print)
        with pytest.raises(TypeError):
            a.subscribe("b:x", 3)
        host.host.plugins.unload("a")
        assert b.emit("x", sent) == 0


def test_b12_an_event_from_a_subscriber_nine_levels_deep_is_dropped_without_a_deadlock(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "a")) as host:
        ctx, depths, done = context(host, "a"), [], threading.Event()

        def again(depth: int) -> None:
            depths.append(depth)
            if ctx.emit("x", {"depth": depth + 1}) == 0:
                done.set()

        ctx.subscribe("a:x", again)
        assert ctx.emit("x", {"depth": 1}) == 1
        assert done.wait(30)
        assert depths == list(range(1, 9))
        assert warnings(host, "plugin event a:x: dropped: ")


def test_b13_call_mcp_needs_the_operators_list(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ctx = context(host, "p")
        with pytest.raises(PermissionError, match=r"plugins\.entries\.p\.mcp_allowlist"):
            ctx.call_mcp("server", "tool")
    config = {"plugins": {"enabled": ["p"], "entries": {"p": {"mcp_allowlist": ["server"]}}}}
    with plugin_host(*keeping(tmp_path / "again", "p"), config=config) as host:
        assert context(host, "p").call_mcp("server", "tool") == {
            "ok": False,
            "error": "MCP server 'server' has no tool 'tool', or is not connected",
        }


KETTLE = {"command": sys.executable, "args": ["-S", str(Path(__file__).parents[1] / "peers" / "mcp_lines.py")]}
MCP_CONFIG = {
    "mcp_servers": {"kettle": KETTLE},
    "mcp_discovery_timeout": 60,
    "plugins": {"enabled": ["under-test"], "entries": {"under-test": {"mcp_allowlist": ["kettle"]}}},
}
SAID = '<foreign-text from="MCP server kettle">\ntest: hot\n</foreign-text>'


@pytest.mark.parametrize("answer", ["once", "deny"])
def test_b13_an_allowed_server_is_called_with_hooks_and_approval(answer: Any) -> None:
    seen: list[Any] = []

    def register(ctx: Any) -> None:
        def boil(args: dict[str, Any]) -> str:
            seen.append(ctx.call_mcp("kettle", "say", {"text": "hot"}))
            return "boiled"

        def guard(tool_name: str, args: dict[str, Any]) -> Any:
            seen.append((tool_name, args))
            return {"action": "approve", "message": "boil it?"} if tool_name == "mcp__kettle__say" else None

        ctx.register_tool("boil", None, {**SCHEMA, "name": "boil"}, boil)
        ctx.register_hook("pre_tool_call", guard)
        ctx.register_hook("post_tool_call", lambda tool_name, status: seen.append((tool_name, status)))

    with plugin_host(register, config=MCP_CONFIG, model=[call("boil"), "done"], approvals=[answer]) as host:
        host.host.service(McpServers).wait_connected(60)
        assert host.ask("tea, please").text == "done"
        assert [request.summary for request in host.approval_requests] == ["boil it?"]
        host.host.hooks.wait_idle(30)
    (result,) = [one for one in seen if isinstance(one, dict)]
    assert ("mcp__kettle__say", {"text": "hot"}) in seen
    if answer == "once":
        assert result == {"ok": True, "result": SAID}
        assert ("mcp__kettle__say", "ok") in seen
    else:
        assert (result["ok"], "approv" in result["error"] or "denied" in result["error"]) == (False, True)
        assert ("mcp__kettle__say", "blocked") in seen


def test_b13_the_marks_follow_the_text_into_another_conversation() -> None:
    def register(ctx: Any) -> None:
        ctx.register_tool("boil", None, {**SCHEMA, "name": "boil"}, lambda args: kept["text"])
        contexts.append(ctx)

    contexts: list[Any] = []
    kept: dict[str, str] = {}
    with plugin_host(register, config=MCP_CONFIG, model=[call("boil"), "done"] * 2) as host:
        host.host.service(McpServers).wait_connected(60)
        kept["text"] = contexts[0].call_mcp("kettle", "say", {"text": "hot"})["result"]  # outside of conversations
        host.ask("what did it say?")
        assert SAID in [message["content"] for message in host.model.messages]
        tracker = host.conversation.services.provenance
        assert tracker.count_untrusted(host.conversation.session_id) == 1
        kept["text"] = "test: hot"  # without its marks
        host.new_session()
        host.ask("and now?")
        assert tracker.count_untrusted(host.conversation.session_id) == 0


def test_b14_a_task_needs_a_loop_and_is_cancelled_at_unload(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ctx = context(host, "p")

        async def wait() -> None:
            await asyncio.sleep(3600)

        with pytest.raises(RuntimeError):
            ctx.spawn_task(wait())
        with pytest.raises(TypeError):
            ctx.spawn_task(3)

        async def start() -> bool:
            task = ctx.spawn_task(wait())
            assert task.get_name() == "plugin:p:task"
            await asyncio.to_thread(host.host.plugins.unload, "p")
            await asyncio.wait([task], timeout=30)
            return task.cancelled()

        assert asyncio.run(start())


def test_b17_a_built_in_tool_is_replaced_only_with_override_and_the_grant(tmp_path: Path) -> None:
    config = {"plugins": {"enabled": ["p"], "entries": {"p": {"granted_capabilities": ["tools.override"]}}}}
    with plugin_host(*keeping(tmp_path, "p"), config=config) as host:
        ctx = context(host, "p")
        (host.workspace / "f.txt").write_text("content", encoding="utf-8")
        mine = {"handler": lambda args, **kw: json.dumps({"from": "plugin"}), "schema": SCHEMA}
        assert ctx.register_tool("read_file", "p", **mine) is None
        assert warnings(host, "tool `read_file` belongs to the agent")
        assert "content" in host.dispatch_tool("read_file", {"path": "f.txt"})
        assert ctx.register_tool("read_file", "p", override=True, **mine).active
        assert host.dispatch_tool("read_file", {"path": "f.txt"}) == '{"from": "plugin"}'
        host.host.plugins.unload("p")
        assert "content" in host.dispatch_tool("read_file", {"path": "f.txt"})


@pytest.mark.parametrize("schema", [[], {"name": "t", "parameters": []}])
def test_a_bad_schema_raises_a_value_error(tmp_path: Path, schema: Any) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host, pytest.raises(ValueError, match="Tool 't': schema"):
        context(host, "p").register_tool("t", "p", schema, lambda args: "")


def test_b18_a_capability_counts_once_it_is_granted_without_a_restart(tmp_path: Path) -> None:
    folder = Contexts().plugin(tmp_path / "p", "name: p\ncapabilities: [tools.override]\n")
    with plugin_host(folder) as host:
        ctx = context(host, "p")
        assert list(ctx.manifest.capabilities) == ["tools.override"]
        assert not ctx.has_capability("tools.override")
        (host.home / "config.yaml").write_text(
            "plugins:\n  enabled: [p]\n  entries:\n    p:\n      granted_capabilities: [tools.override]\n",
            encoding="utf-8",
        )
        host.host.reread_config()
        assert ctx.has_capability("tools.override")
        assert not ctx.has_capability("nonsense")
        handler = {"handler": lambda args, **kw: "mine", "schema": SCHEMA}
        assert ctx.register_tool("read_file", "p", override=True, **handler).active


def test_b20_an_unknown_argument_mode_means_text_when_there_is_a_hint(tmp_path: Path) -> None:
    with plugin_host(*keeping(tmp_path, "p")) as host:
        ctx = context(host, "p")
        ctx.register_command("one", str, args_hint="<x>", argument_mode="nonsense")
        ctx.register_command("two", str, argument_mode="nonsense")
        ctx.register_command("three", str, argument_mode="options")
        commands = host.host.plugins._plugin_commands
        assert [commands[n]["argument_mode"] for n in ("one", "two", "three")] == ["text", None, "options"]


def test_the_data_folder_and_database_of_a_plugin_are_made_on_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert plugin_data_dir("my-plugin") == tmp_path / "plugin-data" / "my-plugin"
    connection = plugin_db("my-plugin")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    for name in ("..", "a/b", "", "-x"):
        with pytest.raises(ValueError):
            plugin_data_dir(name)
