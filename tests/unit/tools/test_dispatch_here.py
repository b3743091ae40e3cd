"""A call from a thread that waits itself (`dispatch_tool`, `handle_function_call`): what its hooks may do to it."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookDeadlines
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope
from people import House

LIMIT_S = 30.0


class InlineHouse(House):
    """The tool `calc` says in which thread it ran; hooks of `slow` have a deadline of 0.2 s."""

    def __init__(self, path: Path) -> None:
        bridge = Bridge(workers=2)
        super().__init__(
            path,
            bridge=bridge,
            run_steps=bridge.run_steps_inline,
            deadlines=HookDeadlines(LIMIT_S, {"slow": 0.2}),
            later=bridge.call_later,
            spawn=bridge.spawn,
        )
        self.add("calc", lambda args, **kw: str(threading.get_ident()))

    def call(self) -> str:
        return self.dispatcher.run_inline("c1", "calc", {}, self.scope()).result


@pytest.fixture
def house(tmp_path):
    it = InlineHouse(tmp_path)
    yield it
    it.release.set()
    it.hooks.wait_idle(LIMIT_S)
    it.close()


def here() -> str:
    return str(threading.get_ident())


def test_the_handler_runs_in_the_calling_thread_and_the_hooks_beside_it(house):
    threads = []
    for hook in ("pre_tool_call", "post_tool_call"):
        house.hooks.add(hook, lambda **kw: threads.append(here()), "p")

    assert house.call() == here()
    assert len(threads) == 2
    assert here() not in threads


@pytest.mark.parametrize("hooks", [("pre_tool_call",), ("post_tool_call",), ("pre_tool_call", "post_tool_call")])
def test_hooks_that_hang_are_left_behind_wherever_they_are(house, hooks):
    house.relaxed.add("slow")
    for hook in hooks:
        house.hooks.add(hook, house.hang, "slow")

    assert house.call() == here()
    assert not house.release.is_set()


def test_three_guards_that_hang_suspend_the_plugin_and_the_calls_after_them_wait_for_nothing(house):
    entered = []
    house.hooks.add("pre_tool_call", lambda **kw: entered.append(1) or house.hang(), "slow")
    answers = [json.loads(house.call())["error"] for _ in range(5)]

    assert all(answer.startswith("BLOCKED: the guard of plugin `slow` failed") for answer in answers)
    assert len(entered) == 3
    assert list(house.hooks.suspended()) == ["slow"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), StopIteration(1), GeneratorExit()])
def test_whatever_a_hook_raises_ends_no_thread_and_is_an_answer(house, error):
    def broken(**kwargs):
        raise error

    house.relaxed.add("p")
    for hook in ("pre_tool_call", "post_tool_call", "transform_tool_result"):
        house.hooks.add(hook, broken, "p")

    assert [house.call() for _ in range(3)] == [here()] * 3


async def test_tools_and_hooks_that_call_tools_themselves_wait_for_no_worker_of_the_pool(house):
    seen: list[bool] = []

    def guard(**kwargs):
        if not seen:
            seen.append(True)
            seen.append(house.call() == here())

    def handler(args, **kwargs):
        return house.call()

    schema = {"name": "outer", "description": "d", "parameters": {"type": "object", "properties": {}}}
    house.tools.register("outer", "t", schema, handler, owner=Owner(BUILTIN))
    house.hooks.add("post_tool_call", lambda **kw: None, "p")
    scope = CallScope("s", "t", "u", house.path, Approvals(NoApprover("here"), timeout_s=5))

    async def main():
        return await asyncio.gather(*(house.dispatcher.run(f"c{n}", "outer", {}, scope) for n in range(8)))

    outcomes = await asyncio.wait_for(main(), LIMIT_S)
    assert [outcome.status for outcome in outcomes] == ["ok"] * 8
    house.hooks.add("transform_tool_result", guard, "p")
    assert house.call() == here()
    assert seen == [True, True]


def test_many_threads_call_at_once_and_each_gets_its_own_answer(house):
    barrier = threading.Barrier(12)
    answers: dict[str, list[str]] = {}
    house.hooks.add("pre_tool_call", lambda **kw: None, "p")
    house.hooks.add("post_tool_call", lambda **kw: None, "q")

    def work() -> None:
        barrier.wait(LIMIT_S)
        answers[here()] = [house.call() for _ in range(20)]

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)

    assert len(answers) == 12
    assert all(found == [ident] * 20 for ident, found in answers.items())


async def test_a_call_on_the_plugin_loop_with_an_async_guard_does_not_wait_for_itself(house):
    async def guard(**kwargs):
        await asyncio.sleep(0)

    async def handler():
        return house.call() == here()

    house.hooks.add("pre_tool_call", guard, "p")
    house.hooks.add("post_tool_call", guard, "p")

    async def main():
        return await house.bridge.run(lambda: house.bridge.wait_plugin(handler(), deadline_s=LIMIT_S))

    assert await asyncio.wait_for(main(), LIMIT_S)


def test_a_worker_that_is_retired_ends_after_its_jobs_and_takes_none_any_more():
    from hermes_agent.runtime.workers import Worker

    worker, order, hold = Worker("w"), [], threading.Event()
    worker.do(lambda: order.append(hold.wait(LIMIT_S)))
    worker.do(lambda: order.append("second"))
    worker.retire()
    hold.set()
    worker.thread.join(LIMIT_S)

    assert order == [True, "second"]
    with pytest.raises(ValueError, match="closed file"):
        worker.do(lambda: None)
