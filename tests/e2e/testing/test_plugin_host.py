"""`plugin_host`: a real host around the plugin under test, and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.core.errors import ConfigError, ModelError, PluginError, UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.host import current
from hermes_agent.testing import ModelFailure, ScriptedModel, call, plugin_host

ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "times": {"type": "integer"}}},
}


def echo(args: dict[str, Any], **kwargs: Any) -> str:
    return json.dumps({"said": [args["text"]] * args.get("times", 1), "task": kwargs["task_id"]})


def register(ctx: Any) -> None:
    ctx.register_tool("echo", schema=ECHO, handler=echo)
    ctx.register_hook("pre_tool_call", lambda tool_name, **kw: None)
    ctx.register_command("shout", lambda raw: raw.upper())
    ctx.register_cli_command(
        "shout",
        "Shout",
        lambda parser: parser.add_argument("word"),
        lambda args: print(args.word.upper()) or 3,
    )


def write(folder: Path, init: str, manifest: str | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(manifest or f"name: {folder.name}\n")
    (folder / "__init__.py").write_text(init)
    return folder


# -- what it loads -------------------------------------------------------------------------------------------


def test_a_function_a_module_an_entry_point_and_a_folder_are_all_plugins(tmp_path: Path) -> None:
    folder = write(tmp_path / "in-a-folder", "def register(ctx): ctx.register_command('one', str)\n")
    (tmp_path / "fresh_package.py").write_text(
        "class Thing:\n    def register(self, ctx): ctx.register_command('two', str)\nthing = Thing()\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with plugin_host(folder, "fresh_package:thing", sys.modules[__name__], register) as host:
            assert {r.manifest.key: r.status for r in host.records} == {
                "in-a-folder": "enabled",
                "thing": "enabled",
                "test-plugin-host": "enabled",
                "under-test": "enabled",
            }
            assert list(host.commands) == ["one", "two", "shout"]
            assert any("under-test" in text or "test-plugin-host" in text for text in host.problems)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("fresh_package", None)


def test_a_folder_of_plugins_is_a_category(tmp_path: Path) -> None:
    write(tmp_path / "image_gen" / "foo", "def register(ctx): pass\n")

    with plugin_host(tmp_path / "image_gen") as host:
        assert host.keys == ("image_gen/foo",)
        assert host.module.__name__ == "hermes_plugins.image_gen__foo"


def test_the_plugin_of_an_installed_package_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed_one.py").write_text("def register(ctx): ctx.register_command('x', str)\n")
    metadata = tmp_path / "hermes_plugin_one-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[hermes_agent.plugins]\nthe-one = installed_one\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with plugin_host("installed_one") as host:
        assert host.keys == ("the-one",)
        assert list(host.commands) == ["x"]
    sys.modules.pop("installed_one")


def test_a_plugin_that_does_not_run_is_named_with_the_reason_and_the_place(tmp_path: Path) -> None:
    folder = write(tmp_path / "broken", "def register(ctx):\n    raise KeyError('x')\n")

    with pytest.raises(PluginError, match=r"broken does not run: KeyError: 'x' \(.*__init__.py:2\)"):
        plugin_host(folder).__enter__()
    with plugin_host(folder, strict=False) as host:
        assert host.record.status == "failed"
        assert host.problems == ["KeyError: 'x'"]


def test_a_folder_without_a_plugin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no plugin\.yaml"), plugin_host(tmp_path):
        pass
    with pytest.raises(UserError, match=r"has no plugin\.yaml"), plugin_host(tmp_path / "nowhere"):
        pass


def test_a_wrong_config_is_refused_as_the_agent_does() -> None:
    with (
        pytest.raises(ConfigError, match=r"agent\.max_turns"),
        plugin_host(register, config={"agent": {"max_turns": "x"}}),
    ):
        pass


# -- what it does --------------------------------------------------------------------------------------------


def test_a_tool_goes_through_the_whole_pipeline() -> None:
    def guarded(ctx: Any) -> None:
        register(ctx)
        ctx.register_hook("pre_tool_call", lambda args, **kw: block if args.get("text") == "no" else None)
        ctx.register_hook("transform_tool_result", lambda result, **kw: result.replace("yes", "YES"))

    block = {"action": "block", "message": "not that"}
    with plugin_host(guarded) as host:
        said = json.loads(host.dispatch_tool("echo", {"text": "yes", "times": "2"}))
        refused = host.dispatch_tool("echo", {"text": "no"})
        unread = host.dispatch_tool("echo", "{not json")

    assert said["said"] == ["YES", "YES"]
    assert json.loads(refused) == {"error": "not that"}
    assert json.loads(unread)["error"] == "Invalid tool arguments"


def test_a_turn_is_run_with_the_scripted_model() -> None:
    model = ScriptedModel(call("echo", text="hello"), lambda request: "It said " + request["messages"][-1]["content"])
    with plugin_host(register, model=model) as host:
        answer = host.ask("Say hello")

    assert answer.text.startswith('It said {"said": ["hello"]')
    assert [(c.name, c.status) for c in answer.tool_calls] == [("echo", "ok")]
    assert "echo" in model.tools
    assert model.messages[1]["content"] == "Say hello"
    assert model.unused == 0


def test_a_failing_model_and_a_used_up_script_fail_the_turn() -> None:
    with plugin_host(model=[ModelFailure("who are you?", 401)]) as host:
        with pytest.raises(ModelError, match="key"):
            host.ask("hello")
        with pytest.raises(ModelError, match="no answer for request 2, with the last message: hello"):
            host.ask("hello")


def test_the_model_answers_ctx_llm_as_well() -> None:
    def plugin(ctx: Any) -> None:
        ctx.register_command("sum", lambda raw: ctx.llm.complete([{"role": "user", "content": raw}]).text)
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        ask = ctx.llm.complete_structured
        ctx.register_command(
            "count",
            lambda raw: ask(instructions="Count", input=[{"type": "text", "text": raw}], json_schema=schema).parsed[
                "n"
            ],
        )

    with plugin_host(plugin, model=["short", {"n": 3}]) as host:
        assert host.run_command("/sum a long text") == "short"
        assert host.run_command("/count a b c") == "3"
        assert host.model.requests[0]["messages"][-1]["content"] == "a long text"
        assert "response_format" in host.model.requests[1]


def test_commands_run_as_if_they_were_typed() -> None:
    with plugin_host(register) as host:
        assert host.run_command("/Shout hello there ") == "HELLO THERE"
        assert host.run_cli(["shout", "hey"]) == (3, "HEY\n", "")
        usage = host.run_cli(["shout"])
        assert usage.status == 2
        assert "word" in usage.err
        with pytest.raises(UserError, match=r"no command '/whisper'.*shout"):
            host.run_command("/whisper")
        with pytest.raises(UserError, match=r"no plugin registers `hermes whisper`"):
            host.run_cli(["whisper"])


def test_a_hook_is_fired_with_everything_and_what_it_raises_is_seen() -> None:
    seen: list[dict[str, Any]] = []

    def plugin(ctx: Any) -> None:
        ctx.register_hook("post_tool_call", lambda **kw: seen.append(kw))
        ctx.register_hook("pre_llm_call", lambda user_message, **kw: {"context": user_message[::-1]})
        ctx.register_hook("on_session_start", lambda session_id: 1 / 0)

    with plugin_host(plugin) as host:
        assert host.fire("pre_llm_call", user_message="abc") == [{"context": "cba"}]
        assert host.fire("post_tool_call", tool_name="mine", more=1) == []
        with pytest.raises(ZeroDivisionError):
            host.fire("on_session_start")
        with pytest.raises(ValueError, match="did you mean 'pre_llm_call'"):
            host.fire("pre_lm_call")

    (given,) = seen
    assert given["tool_name"] == "mine"
    assert given["more"] == 1
    assert given["session_id"] == given["task_id"]
    assert {"args", "result", "duration_ms", "status", "turn_id", "telemetry_schema_version"} <= set(given)


def test_what_a_slow_observer_raises_is_seen_too() -> None:
    def fails_late(session_id: str) -> None:
        time.sleep(0.2)
        raise ZeroDivisionError(session_id)

    with (
        plugin_host(lambda ctx: ctx.register_hook("on_session_start", fails_late)) as host,
        pytest.raises(ZeroDivisionError),
    ):
        host.fire("on_session_start")


def test_approvals_are_answered_by_the_script(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    with plugin_host(approvals=["deny", "once"]) as host:
        first, second, third = [
            host.dispatch_tool("write_file", {"path": str(outside), "content": "x"}) for _ in range(3)
        ]
        asked = host.approval_requests

    assert "denied" in first
    assert "error" not in json.loads(second)
    assert "`approvals` of this test has no answer" in third
    assert [request.tool for request in asked] == ["write_file"] * 3
    assert outside.read_text() == "x"


def test_it_says_what_is_registered_and_what_was_noted() -> None:
    def clash(ctx: Any) -> None:
        register(ctx)
        ctx.register_tool("read_file", schema=ECHO, handler=echo)
        ctx.register_hook("pre_tol_call", print)

    with plugin_host(clash) as host:
        assert list(host.tools) == ["echo"]
        assert "read_file" in host.visible_tools
        assert sorted(host.hooks) == ["pre_tol_call", "pre_tool_call"]
        assert list(host.commands) == list(host.cli_commands) == ["shout"]
        assert host.problems == ["tool `read_file` belongs to the agent"]
        assert host.notes == ["unknown hook `pre_tol_call`; did you mean 'pre_tool_call'?"]
        assert "ERROR hermes_agent.tools.registry: Tool registration REJECTED: 'read_file'" in host.log_text


# -- what it leaves ------------------------------------------------------------------------------------------


def _current_host() -> object:
    """Return the process's host, which another test may have made."""
    try:
        return current()
    except RuntimeError:
        return None


def test_nothing_of_it_is_left_and_nothing_of_the_developer_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-developer-s-own")
    monkeypatch.setenv("HERMES_SAFE_MODE", "1")
    folder = write(
        tmp_path / "curious",
        "import os\nfrom pathlib import Path\nfrom hermes_constants import get_hermes_home\n"
        "from tools.registry import registry\n"
        "home, key, own = get_hermes_home(), os.environ.get('OPENAI_API_KEY'), os.environ.get('MINE')\n"
        "user = Path.home()\n"
        "def register(ctx): os.environ['LEFT'] = '1'\n",
    )
    before = _current_host()
    environ, path, modules, finders = dict(os.environ), list(sys.path), set(sys.modules), list(sys.meta_path)

    with plugin_host(folder, env={"MINE": "a-secret-of-mine"}) as host:
        module = host.module
        assert (module.home, module.key, module.own) == (host.home, None, "a-secret-of-mine")
        assert module.registry is host.host.tools
        assert module.user == host.home.parent
        assert host.ctx.profile_name == "default"
        assert current() is host.host

    assert not module.home.exists()
    assert dict(os.environ) == environ
    assert sys.path == path
    assert sys.meta_path == finders
    left = {n for n in set(sys.modules) - modules if n.partition(".")[0] in import_hook.RESERVED | {"hermes_plugins"}}
    assert left == set()
    assert _current_host() is before
    assert redactor("a-secret-of-mine") == "a-secret-of-mine"


def test_hosts_one_after_another_share_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "counting", "calls = []\ndef register(ctx): calls.append(ctx)\n")
    modules = []
    for _ in range(2):
        with plugin_host(folder) as host:
            modules.append(host.module)
            assert len(host.module.calls) == 1
            assert host.module.__name__ == "hermes_plugins.counting"

    assert modules[0] is not modules[1]


def test_a_host_inside_another_one_gives_the_place_back() -> None:
    import_hook.install()
    try:
        with plugin_host(register) as outer:
            import hermes_constants as of_outer

            with plugin_host(register) as inner:
                assert current() is inner.host
            assert current() is outer.host
            import hermes_constants as again

            assert again is of_outer
            assert of_outer.get_hermes_home() == outer.home
        assert import_hook.installed()
    finally:
        import_hook.uninstall()


async def test_it_is_used_from_a_test_that_runs_on_a_loop() -> None:
    async def late(args: dict[str, Any], **kwargs: Any) -> str:
        await asyncio.sleep(0)
        return "{}"

    async def heard(**kwargs: Any) -> str:
        await asyncio.sleep(0)
        return "heard"

    def plugin(ctx: Any) -> None:
        ctx.register_tool("late", schema={"name": "late"}, handler=late, is_async=True)
        ctx.register_hook("pre_llm_call", heard)

    with plugin_host(plugin, model=[call("late"), "done"]) as host:
        assert host.dispatch_tool("late") == "{}"
        assert host.fire("pre_llm_call") == ["heard"]
        assert host.ask("go").text == "done"
