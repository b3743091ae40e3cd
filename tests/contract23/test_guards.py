"""Acceptance list of the plugin contract of 0.23, part H: guards and time limits. One test a sentence."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.guides import plugin
from hermes_agent.hooks import REST_S, HookBus, HookDeadlines
from hermes_agent.testing import plugin_host
from waiting import until

SCHEMA = "{'name': 'mine', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"
TOOL = f"    ctx.register_tool('mine', None, {SCHEMA}, lambda args: __import__('json').dumps(args))\n"


@pytest.fixture(autouse=True)
def debug_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "hermes_agent")
    yield


def guarded(tmp_path: Path, *answers: str) -> list[Path]:
    """A plugin with the tool `mine`, and one plugin for each answer of `pre_tool_call`."""
    folders = [plugin(tmp_path / "a-tool", "def register(ctx):\n" + TOOL)]
    for number, answer in enumerate(answers):
        init = f"def guard(tool_name, args, **kw):\n    {answer}\n"
        init += "def register(ctx): ctx.register_hook('pre_tool_call', guard)\n"
        folders.append(plugin(tmp_path / f"g{number}", init))
    return folders


BLOCK, APPROVE = "return {'action': 'block', 'message': 'not that'}", "return {'action': 'approve', 'message': 'sure?'}"


def modify(**changes: Any) -> str:
    return f"return {{'action': 'modify', 'args': {changes!r}}}"


def test_h1_a_callback_is_called_with_the_keywords_that_it_names() -> None:
    seen: list[dict[str, Any]] = []

    def register(ctx: Any) -> None:
        def cb(tool_name: str) -> None:
            seen.append({"tool_name": tool_name})

        ctx.register_hook("post_tool_call", cb)

    with plugin_host(register) as host:
        host.dispatch_tool("todo", {"todos": []})
        host.host.hooks.wait_idle(30)
        assert seen == [{"tool_name": "todo"}]


def test_h2_the_context_of_an_async_callback_is_injected() -> None:
    async def cb(**kw: Any) -> dict[str, str]:
        return {"context": "INJECTED"}

    with plugin_host(lambda ctx: ctx.register_hook("pre_llm_call", cb), model=["hello"]) as host:
        host.ask("hi")
        assert "INJECTED" in str(host.model.requests[0]["messages"])


def test_h3_a_raising_guard_blocks_and_is_named_unless_the_operator_relaxes_it(tmp_path: Path) -> None:
    folders = guarded(tmp_path, "raise RuntimeError('no luck')")
    with plugin_host(*folders) as host:
        result = host.dispatch_tool("mine", {})
        assert "pre_tool_call plugin callback guard raised RuntimeError: no luck" in result
    enabled = [folder.name for folder in folders]
    config = {"plugins": {"enabled": enabled, "entries": {"g0": {"on_guard_error": "allow"}}}}
    with plugin_host(*folders, config=config) as host:
        assert json.loads(host.dispatch_tool("mine", {})) == {}


@pytest.mark.parametrize("order", [(APPROVE, BLOCK), (BLOCK, APPROVE)])
def test_h4_a_block_goes_before_an_approve_in_any_order(tmp_path: Path, order: tuple[str, str]) -> None:
    with plugin_host(*guarded(tmp_path, *order), approvals=["once"]) as host:
        assert "not that" in host.dispatch_tool("mine", {})
        assert host.approval_requests == []


@pytest.mark.parametrize(
    "order",
    [
        (modify(a=1, b=1), modify(b=2), APPROVE),
        (modify(a=1, b=1), APPROVE, modify(b=2)),
        (APPROVE, modify(a=1, b=1), modify(b=2)),
    ],
)
def test_h5_changes_of_several_guards_reach_the_handler_the_later_one_wins(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    folders = guarded(tmp_path, *order)
    with plugin_host(*folders, approvals=["once"]) as host:
        assert json.loads(host.dispatch_tool("mine", {"c": 3})) == {"a": 1, "b": 2, "c": 3}
        assert len(host.approval_requests) == 1


def test_h6_a_slow_observer_delays_a_call_by_its_limit_at_most_and_then_rests() -> None:
    released, began = threading.Event(), []

    def slow(**kw: Any) -> None:
        began.append(1)
        released.wait(60)

    config = {"plugins": {"hook_callback_timeout": 1, "enabled": ["under-test"]}}
    with plugin_host(lambda ctx: ctx.register_hook("post_tool_call", slow), config=config) as host:
        started = time.monotonic()
        host.dispatch_tool("todo", {"todos": []})
        host.dispatch_tool("todo", {"todos": []})  # its call is queued behind the one that hangs
        assert time.monotonic() - started < 5
        until(lambda: any("gave no answer within 1 s" in line.text for line in host.log))
        host.dispatch_tool("todo", {"todos": []})
        released.set()
        assert host.host.hooks.wait_idle(30)
        assert began == [1]


def test_h6_a_callback_that_missed_its_deadline_rests_for_60_s() -> None:
    released, clock, later, began = threading.Event(), [0.0], [], []

    def slow(number: int, **kw: Any) -> None:
        began.append(number)
        released.wait(60)

    bus = HookBus(
        lambda work, **kw: None,
        deadlines=HookDeadlines(1.0, {}, REST_S),
        later=lambda delay_s, check: later.append(check),
        spawn=lambda work: threading.Thread(target=work, daemon=True).start(),
        clock=lambda: clock[0],
    )
    bus.add("post_tool_call", slow, "p")
    for number in (1, 2, 3):
        bus.post("post_tool_call", number=number)
    until(lambda: began == [1])
    later.pop()()  # the deadline of the first call: the queued ones are dropped
    clock[0] = 59.0
    bus.post("post_tool_call", number=4)
    released.set()
    assert bus.wait_idle(30)
    assert began == [1]
    clock[0] = 61.0
    bus.post("post_tool_call", number=5)
    assert bus.wait_idle(30)
    assert began == [1, 5]


def test_h6_a_slow_guard_blocks(tmp_path: Path) -> None:
    released = threading.Event()

    def slow(**kw: Any) -> None:
        released.wait(60)

    def register(ctx: Any) -> None:
        ctx.register_hook("pre_tool_call", slow)

    config = {"plugins": {"hook_callback_timeout": 1, "enabled": ["under-test"]}}
    with plugin_host(register, config=config) as host:
        result = host.dispatch_tool("todo", {"todos": []})
        assert "pre_tool_call plugin callback timed out or is still running" in result
        assert "timed out or is still running" in host.dispatch_tool("todo", {"todos": []})
        released.set()


def test_h24_a_request_middleware_sees_the_payload_of_the_earlier_one() -> None:
    seen: list[dict[str, Any]] = []

    def first(args: dict[str, Any], **kw: Any) -> dict[str, Any]:
        return {"args": {**args, "first": 1}}

    def second(args: dict[str, Any], original_args: dict[str, Any], **kw: Any) -> None:
        seen.append({"args": args, "original": original_args})

    def register(ctx: Any) -> None:
        ctx.register_middleware("tool_request", first)
        ctx.register_middleware("tool_request", second)

    with plugin_host(register) as host:
        host.dispatch_tool("todo", {"todos": []})
        assert seen[0]["args"].items() >= {"first": 1}.items()
        assert "first" not in seen[0]["original"]


def test_h24_a_request_middleware_of_the_model_sees_the_request_of_the_earlier_one() -> None:
    seen: list[dict[str, Any]] = []

    def first(request: dict[str, Any], **kw: Any) -> dict[str, Any]:
        return {"request": {**request, "temperature": 0.25}}

    def second(request: dict[str, Any], original_request: dict[str, Any], **kw: Any) -> None:
        seen.append({"request": request, "original": original_request})

    def register(ctx: Any) -> None:
        ctx.register_middleware("llm_request", first)
        ctx.register_middleware("llm_request", second)

    with plugin_host(register, model=["hello"]) as host:
        host.ask("hi")
        assert host.model.requests[0]["temperature"] == 0.25
    assert seen[0]["request"]["temperature"] == 0.25
    assert "temperature" not in seen[0]["original"]
    assert seen[0]["original"]["messages"] == seen[0]["request"]["messages"]


def test_h25_an_unknown_hook_is_stored_with_one_warning() -> None:
    with plugin_host(lambda ctx: ctx.register_hook("on_nonsense", print)) as host:
        assert host.host.hooks.has("on_nonsense")
        assert len([line for line in host.log if "unknown hook 'on_nonsense'" in line.text]) == 1
