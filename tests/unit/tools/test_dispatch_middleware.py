"""Middleware around a tool call: what of the pipeline sees which arguments, and that it runs once."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.hooks import HookBus, HookDeadlines
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import Dispatcher
from hermes_agent.tools.results import ResultStore
from people import House

IDS = {"task_id": "t", "session_id": "s", "tool_call_id": "c1", "turn_id": "u", "api_request_id": "r"}


NUMBER = {"n": {"type": "integer"}}


class AddingHouse(House):
    """The tool `add` is given an integer `n`."""

    def __init__(self, path: Path) -> None:
        bridge = Bridge()
        super().__init__(path, bridge=bridge, run_steps=bridge.run_steps_inline, off_loop=bridge.off_loop)
        self.runs: list[dict[str, Any]] = []
        self.add("add", lambda args, **kw: self.runs.append(dict(args)) or f"ran {args['n']!r}")

    def add(self, name: str, handler: Any, effect: Any = None, **more: Any) -> None:
        super().add(name, handler, effect, properties=NUMBER, **more)

    async def run(self, args: Any = None, name: str = "add", approver: Any = None, **more: Any) -> Any:
        return await super().run(args, name, approver, **more)


@pytest.fixture
def house(tmp_path):
    it = AddingHouse(tmp_path)
    yield it
    it.close()


async def test_guard_handler_and_observers_see_what_request_middleware_made_of_it(house):
    seen = []
    house.middleware.add("tool_request", lambda args, **kw: {"args": {"n": "7"}, "reason": "lucky"}, "p")
    house.hooks.add("pre_tool_call", lambda args, middleware_trace, **kw: seen.append((args, middleware_trace)), "g")
    house.hooks.add("post_tool_call", lambda args, middleware_trace, **kw: seen.append((args, middleware_trace)), "o")
    house.middleware.add("tool_execution", lambda next_call, **kw: seen.append(kw) or next_call(), "e")
    outcome = await house.run({"n": 1})

    trace = [{"reason": "lucky"}]
    assert (outcome.result, outcome.arguments, house.runs) == ("ran 7", {"n": 7}, [{"n": 7}])
    assert (seen[0], seen[2]) == (({"n": 7}, trace), ({"n": 7}, trace))
    assert seen[1] == {
        "tool_name": "add",
        "args": {"n": 7},
        "original_args": {"n": 1},
        **IDS,
        "middleware_schema_version": "hermes.middleware.v1",
    }


@pytest.mark.parametrize("way", ["model", "dispatch_tool", "many at once"])
async def test_both_kinds_run_exactly_once_a_call(house, way):
    calls = []
    house.middleware.add("tool_request", lambda **kw: calls.append("request"), "p")
    house.middleware.add("tool_execution", lambda next_call, **kw: calls.append("execution") or next_call(), "p")
    if way == "model":
        await house.run({"n": 1})
    elif way == "dispatch_tool":
        house.dispatcher.run_inline("c1", "add", {"n": 1}, house.scope())
    else:
        runs = (house.dispatcher.run(f"c{n}", "add", {"n": n}, house.scope()) for n in range(8))
        await asyncio.wait_for(asyncio.gather(*runs), 20)
    times = 8 if way == "many at once" else 1

    assert (calls.count("request"), calls.count("execution"), len(house.runs)) == (times, times, times)


async def test_a_blocked_call_reaches_no_execution_middleware(house):
    calls = []
    house.middleware.add("tool_execution", lambda next_call, **kw: calls.append(1) or next_call(), "p")
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "block", "message": "no"}, "g")

    assert json.loads((await house.run({"n": 1})).result) == {"error": "no"}
    assert calls == []


async def test_the_observers_and_the_size_limit_see_the_result_of_the_middleware(house):
    seen = []
    house.middleware.add("tool_execution", lambda next_call, **kw: next_call().upper(), "p")
    house.hooks.add("post_tool_call", lambda result, **kw: seen.append(result), "o")

    assert (await house.run({"n": 1})).result == "RAN 1"
    assert seen == ["RAN 1"]


@pytest.mark.parametrize(("answer", "kind"), [(None, "NoneType"), (3, "int"), ({"a": 1}, "dict")])
async def test_an_answer_of_another_type_is_the_contract_error(house, answer, kind):
    house.middleware.add("tool_execution", lambda **kw: answer, "p")

    assert json.loads((await house.run({"n": 1})).result) == {
        "error": f"Tool handler returned unsupported result type: {kind}",
        "error_type": "tool_result_contract",
        "tool": "add",
        "result_type": kind,
    }


async def test_arguments_that_execution_middleware_changes_are_asked_about_again(house):
    asked = []

    class Person:
        async def ask(self, request: ApprovalRequest) -> str:
            asked.append(request.detail)
            return "once"

    house.add(
        "danger", lambda args, **kw: f"did {args['n']}", approval=lambda a: ApprovalRequest("x", "y", str(a), "k")
    )
    house.middleware.add("tool_execution", lambda next_call, **kw: next_call({"n": 2}), "p")

    assert (await house.run({"n": 1}, "danger", Person())).result == "did 2"
    assert asked == ["{'n': 1}", "{'n': 2}"]


async def test_execution_middleware_has_no_deadline_of_its_own(tmp_path):
    house = AddingHouse(tmp_path)
    house.hooks = HookBus(house.bridge.wait_plugin, deadlines=HookDeadlines(0.05), off_loop=house.bridge.off_loop)
    dispatcher = Dispatcher(house.tools, house.hooks, house.bridge, ResultStore(tmp_path / "r"))
    overdue = threading.Event()

    async def slow(next_call, **kwargs):
        await asyncio.to_thread(overdue.wait, 20)
        return await next_call()

    house.hooks.middleware.add("tool_execution", slow, "p")

    async def main() -> str:
        call = asyncio.ensure_future(dispatcher.run("c1", "add", {"n": 1}, house.scope()))
        _, running = await asyncio.wait([call], timeout=0.2)  # four times the deadline of hooks
        assert running == {call}
        overdue.set()
        return (await call).result

    assert await asyncio.wait_for(main(), 20) == "ran 1"
    assert house.hooks.suspended() == {}
    house.bridge.close()


async def test_a_nested_call_of_the_handler_s_own_has_its_own_middleware(house):
    names = []
    house.middleware.add(
        "tool_execution", lambda tool_name, next_call, **kw: names.append(tool_name) or next_call(), "p"
    )
    house.add("outer", lambda args, **kw: house.dispatcher.run_inline("c2", "add", {"n": 2}, house.scope()).result)

    assert (await house.run({}, "outer")).result == "ran 2"
    assert names == ["outer", "add"]


# -- what an approval is for ---------------------------------------------------------------------------------


class Meanwhile:
    """Allows everything once, and does something meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        self.asked, self.meanwhile = [], meanwhile

    async def ask(self, request):
        self.asked.append(request.detail)
        self.meanwhile()
        return "once"


def shown(args):
    return ApprovalRequest("risky", "do it", str(args["n"]), "r")


async def test_arguments_that_change_while_the_user_is_asked_are_asked_about_again(house):
    kept = []
    house.add("risky", lambda args, **kw: house.runs.append(dict(args)) or "ran", approval=shown)
    house.hooks.add("pre_tool_call", lambda args, **kw: kept.append(args), "p")
    person = Meanwhile(lambda: kept[0].update(n=2))
    await house.run({"n": 1}, "risky", person)
    assert person.asked == ["1", "2"]
    assert house.runs == [{"n": 2}]
