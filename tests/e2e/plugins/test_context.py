"""`ctx`: plugin contract §2, §4.2, §7; §13 rows 5 to 8, 10, 13; §14.1 rows 4, 5; §15 points 6, 7, 9, 12."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config.home import profile_name
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.text import SUBCOMMANDS
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext
from hermes_agent.policy import Approvals
from hermes_agent.tools import CallScope, current_scope

Write = Callable[..., Path]
Start = Callable[..., Host]

EMPTY = "KEPT = []\ndef register(ctx): KEPT.append(ctx)\n"


def context_of(host: Host, key: str = "p") -> PluginContext:
    ctx: PluginContext = host.plugins._plugins[key].module.KEPT[0]
    return ctx


def echo(args: dict[str, Any], **kwargs: Any) -> str:
    return json.dumps({"args": args, "kwargs": {k: str(v) for k, v in kwargs.items()}})


SCHEMA = {"name": "t", "description": "d", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def test_the_context_has_manifest_and_profile(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY, manifest="name: p\nversion: 2.0\n")

    ctx = context_of(start(enable=("p",)))

    assert (ctx.manifest.name, ctx.manifest.version, ctx.profile_name) == ("p", "2.0", "custom")


@pytest.mark.parametrize(
    ("home", "name"),
    [
        ("~/.hermes", "default"),
        ("~/.hermes/profiles/work", "work"),
        ("~/.hermes/profiles/a/b", "custom"),
        ("/else", "custom"),
    ],
)
def test_the_profile_is_told_by_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, name: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert profile_name(Path(home).expanduser()) == name


# -- tools -----------------------------------------------------------------------------------------------------


def test_a_tool_without_toolset_gets_the_plugin_s_name(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    host = start(enable=("p",))

    context_of(host).register_tool(name="t", schema=SCHEMA, handler=echo, check_fn=lambda: False)

    assert host.tools.get_toolset_for_tool("t") == "p"
    assert host.tools.owner("t") == "p"
    assert host.tools.get_definitions(["t"]) == []


def test_a_tool_without_schema_or_handler_is_refused_in_words(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    ctx = context_of(start(enable=("p",)))

    with pytest.raises(TypeError, match=r"register_tool\('t'\) needs a handler"):
        ctx.register_tool("t", schema=SCHEMA)


def test_of_two_plugins_with_one_tool_the_first_keeps_it_and_the_second_runs_without(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("a", "b"):
        write_plugin(
            key,
            f"""
            def register(ctx):
                ctx.register_tool("g", "same", {{"name": "g"}}, lambda args, **kw: '"{key}"')
                ctx.register_tool("{key}_own", "same", {{"name": "x"}}, lambda args, **kw: "1")
            """,
        )

    host = start(enable=("a", "b"))

    assert host.tools.dispatch("g", {}) == '"a"'
    second = host.plugins._plugins["b"]
    assert (second.enabled, second.tools_registered) == (True, ["b_own"])
    assert [p.text for p in second.problems] == ["tool `g` belongs to plugin `a`"]
    assert any(m.startswith("Tool registration REJECTED: 'g' (toolset 'same')") for m in caplog.messages)
    (line,) = [line for line in host.plugins.status_text().splitlines() if "without" in line]
    assert line.startswith(
        "      without tool `g` belongs to plugin `a` (let the plugin register it with override=True"
    )
    assert "plugins.entries.b.allow_tool_override: true" in line


def test_a_plugin_cannot_shadow_a_tool_of_the_agent_by_taking_its_toolset(write_plugin: Write, start: Start) -> None:
    write_plugin(
        "shadow",
        """
        def register(ctx):
            ctx.register_tool("terminal", "terminal", {"name": "terminal"}, lambda args, **kw: '"mine"')
        """,
    )

    host = start(enable=("shadow",))

    assert host.tools.owner("terminal") == "builtin"
    [problem] = host.plugins._plugins["shadow"].problems
    assert problem.text == "tool `terminal` belongs to the agent"
    assert "plugins.entries.shadow.allow_tool_override: true" in problem.remedy


@pytest.mark.parametrize("form", ["lambda args, **kw: '1'", "functools.partial(handler)", "Callable_()"])
def test_overriding_needs_the_operator_whatever_the_handler_is(write_plugin: Write, start: Start, form: str) -> None:
    write_plugin(
        "shadow",
        f"""
        import functools
        def handler(args, **kw): return "1"
        class Callable_:
            def __call__(self, args, **kw): return "1"
        def register(ctx):
            ctx.register_tool("terminal", "x", {{"name": "terminal"}}, {form}, override=True)
        """,
    )

    host = start(enable=("shadow",))

    assert host.plugins._plugins["shadow"].error == (
        "PluginToolOverrideError: Plugin 'shadow' cannot override built-in tool 'terminal'. Set plugins.entries.shadow."
        "allow_tool_override: true in config.yaml to allow this plugin to replace built-in tools."
    )
    assert host.tools.owner("terminal") == "builtin"


def test_with_the_operator_s_permission_a_tool_is_replaced(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write_plugin(
        "shadow",
        """
        from . import handlers
        def register(ctx):
            ctx.register_tool("terminal", "mine", {"name": "terminal"}, handlers.run, override=True)
        """,
    )
    (Path.cwd().parent / "home" / "plugins" / "shadow" / "handlers.py").write_text("def run(args, **kw): return '7'\n")

    host = start(
        """
        plugins:
          enabled: [shadow]
          entries: {shadow: {allow_tool_override: true}}
        """
    )

    assert host.tools.dispatch("terminal", {}) == "7"
    assert any("overriding existing toolset" in m for m in caplog.messages)


# -- hooks -----------------------------------------------------------------------------------------------------


def test_hooks_are_called_in_load_order_with_the_schema_version_and_one_that_raises_stops_nobody(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("c", "a", "b"):
        fail = "raise RuntimeError('mine')" if key == "b" else f"return {{'context': '{key}', 'kw': sorted(kw)}}"
        write_plugin(key, f"def cb(**kw):\n    {fail}\ndef register(ctx): ctx.register_hook('pre_llm_call', cb)\n")

    manager = start(enable=("c", "b", "a")).plugins

    assert manager.has_hook("pre_llm_call")
    assert manager.invoke_hook("pre_llm_call", session_id="s") == [
        {"context": "a", "kw": ["session_id", "telemetry_schema_version"]},
        {"context": "c", "kw": ["session_id", "telemetry_schema_version"]},
    ]
    assert "Hook 'pre_llm_call' callback cb raised: mine" in caplog.messages
    assert [cb.__name__ for cb in manager._hooks["pre_llm_call"]] == ["cb", "cb", "cb"]


def test_an_async_guard_blocks(write_plugin: Write, start: Start) -> None:
    write_plugin(
        "guard",
        """
        async def guard(tool_name, args, **kw):
            return {"action": "block", "message": f"no {tool_name}"}
        def register(ctx): ctx.register_hook("pre_tool_call", guard)
        """,
    )
    write_plugin("p", EMPTY)
    host = start(enable=("guard", "p"))

    assert json.loads(context_of(host).dispatch_tool("read_file", {"path": "x"})) == {"error": "no read_file"}


def test_an_unknown_hook_is_stored_with_a_warning_that_names_the_nearest(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin("p", "def register(ctx): ctx.register_hook('pre_tool_cal', lambda **kw: 1)\n")

    host = start(enable=("p",))

    [message] = [m for m in caplog.messages if "unknown hook" in m]
    assert message.startswith("Plugin 'p' registered unknown hook 'pre_tool_cal' (valid: pre_tool_call, post_tool_call")
    assert message.endswith("; did you mean 'pre_tool_call'?")
    assert host.plugins.invoke_hook("pre_tool_cal") == [1]


# -- commands --------------------------------------------------------------------------------------------------


def test_both_shapes_of_a_slash_command_work(write_plugin: Write, start: Start) -> None:
    write_plugin(
        "p",
        """
        def handle_scan(ctx, argstr):
            return f"{ctx.manifest.name}: {argstr}"
        class Box:
            def run(self, raw_args): return raw_args.upper()
        async def later(ctx, argstr):
            return argstr * 2
        def register(ctx):
            ctx.register_command("scan", handle_scan, help="Find files matching a glob")
            ctx.register_command("/My Status", handler=Box().run, description="Show status", args_hint="<x>")
            ctx.register_command("later", later)
            ctx.register_command("plain", lambda raw, extra=None: raw)
        """,
    )

    host = start(enable=("p",))

    commands = host.plugins._plugin_commands
    assert commands["scan"]["handler"]("*.py") == "p: *.py"
    assert commands["scan"]["description"] == "Find files matching a glob"
    assert commands["my-status"]["handler"]("x") == "X"
    assert (commands["my-status"]["args_hint"], commands["my-status"]["plugin"]) == ("<x>", "p")
    assert host.bridge.wait_plugin(commands["later"]["handler"]("ab")) == "abab"
    assert commands["plain"]["handler"]("x") == "x"
    assert host.plugins._plugins["p"].commands_registered == ["scan", "my-status", "later", "plain"]


def test_a_command_of_the_agent_or_of_an_earlier_plugin_is_not_taken(
    write_plugin: Write, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin("a", "def register(ctx): ctx.register_command('mine', lambda raw: 'a')\n")
    write_plugin(
        "b",
        """
        def register(ctx):
            for name in ("mine", "Help", "  "):
                ctx.register_command(name, lambda raw: "b")
        """,
    )

    host = start(enable=("a", "b"))

    assert host.plugins._plugin_commands["mine"]["handler"]("") == "a"
    assert [p.text for p in host.plugins._plugins["b"].problems] == [
        "slash command `/mine` belongs to plugin `a`",
        "slash command `/help` belongs to the agent",
    ]
    assert "Plugin 'b' tried to register a command with an empty name." in caplog.messages
    assert (
        "Plugin 'b' tried to register command '/help' which conflicts with a built-in command. Skipping."
        in caplog.messages
    )


def test_a_terminal_command_with_sub_commands_is_registered(write_plugin: Write, start: Start) -> None:
    write_plugin(
        "p",
        """
        def run(args): return args.my_command
        def setup(parser):
            parser.add_subparsers(dest="my_command").add_parser("status")
        def register(ctx):
            ctx.register_cli_command(name="my-plugin", help="Manage", setup_fn=setup, handler_fn=run)
            ctx.register_cli_command("plugins", "mine", setup)
        """,
    )

    host = start(enable=("p",))

    command = host.plugins._cli_commands["my-plugin"]
    parser = argparse.ArgumentParser()
    command["setup_fn"](parser)
    assert command["handler_fn"](parser.parse_args(["status"])) == "status"
    assert [p.text for p in host.plugins._plugins["p"].problems] == [
        "terminal command `hermes plugins` belongs to the agent"
    ]


def test_the_reserved_terminal_commands_are_those_of_the_agent() -> None:
    from hermes_agent.app.command_line import build_parser

    actions = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]

    assert {name for a in actions for name in a.choices} == set(SUBCOMMANDS)


# -- dispatch_tool ---------------------------------------------------------------------------------------------


class Says:
    """An approver that notes what it was asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return self.answer


def scope(approver: Says, cwd: Path) -> CallScope:
    return CallScope("sess", "task", "turn", cwd, Approvals(approver, timeout_s=5), user_task="do it")  # type: ignore[arg-type]


def test_a_dispatched_tool_goes_through_the_whole_pipeline_in_the_conversation_s_name(
    home: Path, write_plugin: Write, start: Start
) -> None:
    write_plugin("p", EMPTY)
    write_plugin(
        "watch",
        """
        SEEN = []
        def register(ctx):
            ctx.register_hook("pre_tool_call", lambda **kw: SEEN.append(("pre", kw["tool_name"], dict(kw["args"]))))
            ctx.register_hook("post_tool_call", lambda **kw: SEEN.append(("post", kw["status"], kw["task_id"])))
        """,
    )
    host = start(enable=("p", "watch"))
    ctx = context_of(host)
    ctx.register_tool("t", schema=SCHEMA, handler=echo)

    token = current_scope.set(scope(Says("once"), home))
    try:
        result = json.loads(ctx.dispatch_tool("t", {"n": "5"}, parent_agent="me"))
    finally:
        current_scope.reset(token)

    assert result["args"] == {"n": 5}
    assert result["kwargs"] == {"task_id": "task", "session_id": "sess", "user_task": "do it", "parent_agent": "me"}
    assert host.plugins._plugins["watch"].module.SEEN == [("pre", "t", {"n": 5}), ("post", "ok", "task")]


def test_a_dispatched_command_asks_the_person_of_the_conversation(
    home: Path, write_plugin: Write, start: Start
) -> None:
    write_plugin("p", EMPTY)
    ctx = context_of(start(enable=("p",)))
    yes, no = Says("once"), Says("deny")

    for approver in (yes, no):
        token = current_scope.set(scope(approver, home))
        try:
            approver.result = ctx.dispatch_tool("terminal", {"command": "echo from-the-shell", "unconfined": True})  # type: ignore[attr-defined]
        finally:
            current_scope.reset(token)

    assert [r.detail.splitlines()[0] for r in yes.asked + no.asked] == ["echo from-the-shell"] * 2
    assert "from-the-shell" in yes.result  # type: ignore[attr-defined]
    assert "denied" in json.loads(no.result)["error"]  # type: ignore[attr-defined]


def test_outside_a_conversation_what_needs_a_person_is_refused(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    ctx = context_of(start(enable=("p",)))

    error = json.loads(ctx.dispatch_tool("terminal", {"command": "echo x", "unconfined": True}))["error"]

    assert "no user can be asked when plugin `p` calls it outside a conversation" in error


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("absent", {}, "Unknown tool: absent"),
        ("t", [1], "Invalid tool arguments"),
        ("raises", None, "[TOOL_ERROR] Tool execution failed: ValueError: no"),
    ],
)
def test_a_tool_s_error_is_a_result(write_plugin: Write, start: Start, name: str, args: Any, error: str) -> None:
    write_plugin("p", EMPTY)
    ctx = context_of(start(enable=("p",)))

    def raises(args: dict[str, Any], **kwargs: Any) -> str:
        raise ValueError("no")

    ctx.register_tool("t", schema=SCHEMA, handler=echo)
    ctx.register_tool("raises", schema={"name": "raises"}, handler=raises)

    assert json.loads(ctx.dispatch_tool(name, args))["error"] == error


def test_tools_that_call_tools_end(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    ctx = context_of(start(enable=("p",)))
    depths: list[int] = []

    def again(args: dict[str, Any], **kwargs: Any) -> str:
        depths.append(len(depths))
        return ctx.dispatch_tool("again", {})

    ctx.register_tool("again", schema={"name": "again"}, handler=again)

    assert json.loads(ctx.dispatch_tool("again", {})) == {
        "error": "again was not run: tools call tools more than 8 deep"
    }
    assert len(depths) == 8


def test_a_hook_that_dispatches_a_tool_does_not_run_for_ever(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    host = start(enable=("p",))
    ctx = context_of(host)
    calls: list[str] = []

    def after(**kwargs: Any) -> None:
        calls.append(kwargs["tool_name"])
        ctx.dispatch_tool("t", {})

    ctx.register_tool("t", schema=SCHEMA, handler=echo)
    ctx.register_hook("post_tool_call", after)

    ctx.dispatch_tool("t", {})

    assert host.hooks.wait_idle(20)
    assert calls == ["t"] * 8


def test_a_kept_context_registers_from_any_thread_in_the_plugin_s_name(write_plugin: Write, start: Start) -> None:
    write_plugin("p", EMPTY)
    host = start(enable=("p",))
    ctx = context_of(host)

    thread = threading.Thread(target=lambda: ctx.register_tool("late", schema={"name": "late"}, handler=echo))
    thread.start()
    thread.join(5)

    assert host.tools.owner("late") == "p"
    assert host.plugins._plugins["p"].tools_registered == ["late"]
