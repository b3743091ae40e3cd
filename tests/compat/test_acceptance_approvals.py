"""Approvals and results, plugin contract §14.1 and §15: the rows about who is asked, and what is kept."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_agent.core.messages import ToolFinished
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.testing import PluginHost, call, plugin_host


def tool(name: str, handler: Callable[..., Any], **more: Any) -> Callable[[Any], None]:
    schema = {"name": name, "description": "x", "parameters": {"type": "object", "properties": {}}}

    def register(ctx: Any) -> None:
        ctx.register_tool(name, schema=schema, handler=handler, **more)

    register.__name__ = name
    return register


MINE = tool("mine", lambda args, **kw: json.dumps(args))


def asks(message: str | Callable[[dict[str, Any]], str], **more: str) -> Callable[[Any], None]:
    def guarded(ctx: Any) -> None:
        def guard(tool_name: str, args: dict[str, Any], **kw: Any) -> Any:
            text = message if isinstance(message, str) else message(args)
            return {"action": "approve", "message": text, **more} if tool_name == "mine" else None

        ctx.register_hook("pre_tool_call", guard)

    return guarded


def test_14_1_row_08_an_answer_for_one_rule_of_a_plugin_covers_no_other_rule_on_that_tool() -> None:
    rules = asks(lambda args: f"rule {args['rule']}")
    with plugin_host(MINE, rules, approvals=["session", "deny"]) as host:
        results = [json.loads(host.dispatch_tool("mine", {"rule": n})) for n in (1, 1, 2)]
        assert [request.summary for request in host.approval_requests] == ["rule 1", "rule 2"]
        assert len({request.rule_key for request in host.approval_requests}) == 2
    assert [("error" in result) for result in results] == [False, False, True]


def test_14_1_row_12_a_large_result_is_kept_whole_on_the_host_where_no_command_can_run() -> None:
    text = "".join(f"line {n}\n" for n in range(30_000))
    config = {"terminal": {"backend": "no-such-place"}}
    with plugin_host(tool("large", lambda args, **kw: text), config=config) as host:
        shown = host.dispatch_tool("large")
        place = re.search(r"^Full output saved to: (.+)$", shown, re.MULTILINE)
        assert place is not None and len(shown) < 2_500
        assert Path(place[1]).read_text() == text
        assert "line 29" in host.dispatch_tool("read_file", {"path": place[1], "offset": 29_990, "limit": 5})


@pytest.mark.parametrize("mode", ["manual", "smart", "off"])
def test_14_1_row_15_a_plugins_question_is_told_to_observers_and_follows_the_mode_like_any_other(mode: str) -> None:
    told: list[tuple[str, str]] = []

    def watch(ctx: Any) -> None:
        ctx.register_hook(
            "pre_approval_request", lambda surface, pattern_key, **kw: told.append((surface, pattern_key))
        )
        ctx.register_hook("post_approval_response", lambda surface, choice, **kw: told.append((surface, choice)))

    with plugin_host(
        MINE, asks("sure?", rule_key="r"), watch, config={"approvals": {"mode": mode}}, approvals=["once"]
    ) as host:
        assert json.loads(host.dispatch_tool("mine", {"n": 1})) == {"n": 1}
        assert host.model.requests == []  # no model answers a plugin's question
    assert told == ([] if mode == "off" else [("cli", "plugin_rule:r"), ("cli", "once")])


def without_anybody(host: PluginHost, command: str) -> dict[str, Any]:
    """Let the model run a command in a conversation where no user can be asked."""
    host.model.say(call("terminal", {"command": command}), "done")

    async def work() -> str:
        talk = await host.host.agent.open(None, platform="api_server", approver=NoApprover("here"))
        (result,) = [event.result async for event in talk.turn("go") if isinstance(event, ToolFinished)]
        return result

    found: dict[str, Any] = json.loads(host._run(work()))
    return found


def test_14_1_row_19_where_nobody_can_be_asked_a_dangerous_command_does_not_run_unless_the_operator_says_so() -> None:
    for mode in ("manual", "smart"):
        with plugin_host(config={"approvals": {"mode": mode}}) as host:
            (host.workspace / "kept").mkdir()
            assert "no user can be asked" in without_anybody(host, "rm -rf kept")["error"]
            assert (host.workspace / "kept").is_dir()
    with plugin_host(config={"approvals": {"mode": "off"}}) as host:
        (host.workspace / "gone").mkdir()
        assert without_anybody(host, "rm -rf gone")["exit_code"] == 0
        assert not (host.workspace / "gone").exists()


HARDLINE = "rm -rf ~"


@pytest.mark.parametrize(
    "config",
    [
        {"approvals": {"mode": "off"}},
        {"command_allowlist": ["recursive delete", "recursive delete of home directory", "*"]},
        {"approvals": {"mode": "smart"}},
        {"terminal": {"sandbox": "off"}, "approvals": {"mode": "off"}},
    ],
)
def test_15_19_nothing_lets_a_hard_line_command_run(config: dict[str, Any]) -> None:
    with plugin_host(config=config, approvals=lambda request: "always") as host:
        (Path.home() / "precious").write_text("x")
        result = json.loads(host.dispatch_tool("terminal", {"command": HARDLINE, "unconfined": True}))
        assert result["error"].startswith("BLOCKED (hardline): recursive delete of home directory")
        assert (Path.home() / "precious").exists()
        assert host.approval_requests == []


def test_15_19_approvals_for_the_session_and_for_good_are_by_the_description() -> None:
    with plugin_host(approvals=["session", "always"]) as host:
        for name in ("a", "b", "c", "d"):
            (host.workspace / name).mkdir()

        def run(command: str) -> int:
            return int(json.loads(host.dispatch_tool("terminal", {"command": command})).get("exit_code", -1))

        assert [run("rm -rf a"), run("rm -r b")] == [0, 0]
        assert run("chmod 666 c") == 0
        assert [request.rule_key for request in host.approval_requests] == [
            "terminal:recursive delete",
            "terminal:world/other-writable permissions",
        ]
        kept = yaml.safe_load((host.home / "config.yaml").read_text())["command_allowlist"]
        assert kept == ["world/other-writable permissions"]
    with plugin_host(config={"command_allowlist": kept}) as host:
        (host.workspace / "x").touch()
        assert json.loads(host.dispatch_tool("terminal", {"command": "chmod 666 x"}))["exit_code"] == 0
        assert host.approval_requests == []


def test_4_4_an_async_handler_that_overruns_its_limit_is_cancelled_and_leaves_no_thread() -> None:
    bridge, ended = Bridge(), threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def quick() -> str:
        return "done"

    try:
        assert bridge.wait_plugin(quick()) == "done"
        before = threading.active_count()
        for _ in range(2):
            ended.clear()
            with pytest.raises(TimeoutError):
                bridge.wait_plugin(endless(), deadline_s=1.0)
            assert ended.wait(30)
        for _ in range(600):  # where the machine is busy, a loop of its own that it got is just ending
            if threading.active_count() <= before:
                break
            threading.Event().wait(0.05)
        assert threading.active_count() <= before
        assert bridge.wait_plugin(quick()) == "done"
    finally:
        bridge.close()


def test_4_4_the_limit_of_an_async_handler_is_300_seconds() -> None:
    from hermes_agent.runtime.bridge import ASYNC_HANDLER_LIMIT_S

    assert ASYNC_HANDLER_LIMIT_S == 300
