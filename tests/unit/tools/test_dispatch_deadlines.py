"""Hooks that take too long: what the call, the other plugins and the other conversations notice of it."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.hooks import HookDeadlines
from hermes_agent.runtime.bridge import Bridge
from people import House

LIMIT_S = 20.0
SHORT_S = 0.2


class SlowHouse(House):
    """Hooks of the plugins `slow…` have a short deadline; the tool `calc` counts its runs."""

    def __init__(self, path: Path) -> None:
        bridge, short = Bridge(), {"slow": SHORT_S, "slow-too": SHORT_S}
        super().__init__(
            path, bridge=bridge, run_steps=bridge.run_steps_inline, deadlines=HookDeadlines(LIMIT_S, short)
        )
        self.calls: list[dict[str, Any]] = []
        self.add("calc", lambda args, **kw: self.calls.append(dict(args)) or "ran")


@pytest.fixture
def house(tmp_path):
    it = SlowHouse(tmp_path)
    yield it
    it.close()


BLOCKED = (
    "BLOCKED: the guard of plugin `slow` failed for calc: pre_tool_call plugin callback timed out or is still running"
)


async def test_a_guard_that_hangs_blocks_and_is_named_and_the_others_are_asked(house, caplog):
    asked, observed = [], []
    house.hooks.add("pre_tool_call", house.hang, "slow")
    house.hooks.add("pre_tool_call", lambda **kw: asked.append(kw["tool_name"]), "other")
    house.hooks.add("post_tool_call", lambda **kw: observed.append((kw["status"], kw["error_message"])), "watcher")
    outcome = await house.run()

    assert json.loads(outcome.result) == {"error": BLOCKED}
    assert (outcome.status, house.calls, asked) == ("blocked", [], ["calc"])
    assert observed == [("blocked", BLOCKED)]
    (line,) = [r for r in caplog.records if r.name.startswith("hermes_agent.hooks")]
    assert line.levelname == "WARNING"
    assert line.getMessage() == (
        "Hook 'pre_tool_call' callback hang of plugin slow gave no answer within 0.2 s; it is abandoned"
    )
    assert line.plugin == "slow"


async def test_a_guard_that_hangs_and_was_relaxed_lets_the_tool_run_once(house):
    house.relaxed.add("slow")
    house.hooks.add("pre_tool_call", house.hang, "slow")

    assert (await house.run({"a": 1})).result == "ran"
    house.release.set()
    assert house.calls == [{"a": 1}]


async def test_what_a_guard_that_overran_does_to_the_arguments_later_is_seen_by_nobody(house):
    changed, seen = threading.Event(), []

    def guard(args, **kwargs):
        args["early"] = [1]
        house.release.wait(LIMIT_S)
        args["late"] = True
        args["early"].append(2)
        changed.set()

    def handler(args, **kwargs):
        house.release.set()
        assert changed.wait(LIMIT_S)
        return json.dumps(args)

    house.relaxed.add("slow")
    house.add("late", handler)
    house.hooks.add("pre_tool_call", guard, "slow")
    house.hooks.add("post_tool_call", lambda args, **kw: seen.append(args), "watcher")
    outcome = await house.run({"a": 1}, name="late")

    assert json.loads(outcome.result) == outcome.arguments == seen[0] == {"a": 1, "early": [1]}


async def test_a_late_block_is_no_block_and_a_late_change_no_change(house):
    ended = threading.Event()

    def guard(**kwargs):
        house.release.wait(LIMIT_S)
        ended.set()
        return {"action": "block", "message": "late"}

    house.relaxed.add("slow")
    house.hooks.add("pre_tool_call", guard, "slow")
    first = await house.run()
    house.release.set()

    assert ended.wait(LIMIT_S)
    assert (first.result, len(house.calls)) == ("ran", 1)


@pytest.mark.parametrize("hook", ["post_tool_call", "transform_tool_result"])
async def test_an_observer_that_hangs_leaves_the_result_and_the_other_observers(house, hook):
    seen = []
    house.hooks.add(hook, house.hang, "slow")
    house.hooks.add(hook, lambda **kw: seen.append(kw["result"]), "other")
    outcome = await house.run()
    house.release.set()

    assert (outcome.result, outcome.status) == ("ran", "ok")
    assert (seen, house.calls) == (["ran"], [{}])


async def test_a_transform_after_one_that_hangs_still_counts(house):
    house.hooks.add("transform_tool_result", house.hang, "slow")
    house.hooks.add("transform_tool_result", lambda result, **kw: result.upper(), "other")

    assert (await house.run()).result == "RAN"


async def test_hooks_before_and_after_the_handler_may_hang_in_one_call(house):
    house.relaxed.update(("slow", "slow-too"))
    for hook in ("pre_tool_call", "post_tool_call", "transform_tool_result"):
        house.hooks.add(hook, house.hang, "slow" if hook == "pre_tool_call" else "slow-too")

    assert (await house.run({"a": 1})).result == "ran"
    assert house.calls == [{"a": 1}]


async def test_an_async_guard_that_hangs_is_cancelled_and_blocks(house):
    cancelled = threading.Event()

    async def guard(**kwargs):
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    house.hooks.add("pre_tool_call", guard, "slow")

    assert json.loads((await house.run()).result) == {"error": BLOCKED}
    assert cancelled.wait(LIMIT_S)
    assert house.calls == []


async def test_a_handler_that_takes_longer_than_the_deadline_of_hooks_is_not_cut_off(house):
    seen = []
    house.add("long", lambda args, **kw: str(house.release.wait(3 * SHORT_S)))
    house.hooks.add("pre_tool_call", lambda **kw: None, "slow")
    house.hooks.add("post_tool_call", lambda **kw: seen.append(kw["result"]), "slow")

    assert (await house.run(name="long")).result == "False"
    assert seen == ["False"]
    assert house.hooks.suspended() == {}


async def test_other_calls_go_on_while_a_guard_hangs(house):
    house.hooks.add("pre_tool_call", lambda tool_name, **kw: house.hang() if tool_name == "stuck" else None, "p")
    house.add("stuck", lambda args, **kw: "stuck ran")

    async def main():
        stuck = asyncio.ensure_future(house.dispatcher.run("c1", "stuck", {}, house.scope()))
        await asyncio.to_thread(house.hanging.wait, LIMIT_S)
        others = await asyncio.gather(*(house.dispatcher.run(f"c{n}", "calc", {}, house.scope()) for n in range(40)))
        assert not stuck.done()
        house.release.set()
        return [o.result for o in others], (await stuck).result

    others, stuck = await asyncio.wait_for(main(), LIMIT_S)
    assert (others, stuck) == (["ran"] * 40, "stuck ran")


async def test_two_calls_that_hang_at_once_are_both_answered(house):
    house.hooks.add("pre_tool_call", house.hang, "slow")

    async def main():
        return await asyncio.gather(*(house.dispatcher.run("c", "calc", {}, house.scope()) for _ in range(2)))

    outcomes = await asyncio.wait_for(main(), LIMIT_S)
    assert [json.loads(o.result)["error"] for o in outcomes] == [BLOCKED] * 2


async def test_after_three_overruns_a_plugin_is_suspended_and_its_guard_keeps_blocking(house, caplog):
    entered, observed = [], []

    def guard(**kwargs):
        entered.append(1)
        house.release.wait(LIMIT_S)

    house.hooks.add("pre_tool_call", guard, "slow")
    house.hooks.add("post_tool_call", lambda **kw: observed.append(1), "slow")
    errors = [json.loads((await house.run()).result)["error"] for _ in range(5)]

    reason = "3 calls of its hooks ran over their deadline, the last one was pre_tool_call (0.2 s)"
    assert errors[:3] == [BLOCKED] * 3
    assert (
        errors[3]
        == errors[4]
        == (
            f"BLOCKED: the guard of plugin `slow` failed for calc: "
            f"pre_tool_call plugin callback guard raised PluginError: suspended: {reason}"
        )
    )
    assert (len(entered), len(observed), house.calls) == (3, 2, [])
    assert house.hooks.suspended() == {"slow": reason}
    assert caplog.text.count("Plugin slow is suspended until the next start") == 1


async def test_the_guard_of_a_suspended_plugin_that_was_relaxed_lets_pass(house):
    house.relaxed.add("slow")
    house.hooks.add("transform_tool_result", house.hang, "slow")
    house.hooks.add("pre_tool_call", lambda **kw: {"action": "block", "message": "never asked"}, "slow")
    for _ in range(3):
        await house.run()
    house.calls.clear()

    assert "slow" in house.hooks.suspended()
    assert (await house.run()).result == "ran"


async def test_a_nested_call_whose_guard_hangs_is_blocked_and_the_outer_one_goes_on(house):
    threads = []

    def outer(args, **kwargs):
        threads.append(threading.get_ident())
        inner = house.dispatcher.run_inline("c2", "calc", {}, house.scope())
        threads.append(threading.get_ident())
        return f"outer saw: {json.loads(inner.result)['error']}"

    house.add("outer", outer)
    house.hooks.add("pre_tool_call", lambda tool_name, **kw: house.hang() if tool_name == "calc" else None, "slow")

    assert (await house.run(name="outer")).result == f"outer saw: {BLOCKED}"
    assert len(threads) == 2
    assert threads[0] == threads[1]
    assert house.calls == []


async def test_a_hook_whose_own_nested_call_hangs_overruns_itself(house):
    observed = []

    def guard(tool_name, **kwargs):
        if tool_name == "calc":
            house.dispatcher.run_inline("c2", "stuck", {}, house.scope())

    house.add("stuck", lambda args, **kw: house.hang() or "never in time")
    house.hooks.add("pre_tool_call", guard, "slow")
    house.hooks.add("post_tool_call", lambda tool_name, **kw: observed.append(tool_name), "watcher")

    assert json.loads((await house.run()).result) == {"error": BLOCKED}
    assert (observed, house.calls) == (["calc"], [])


async def test_a_call_that_was_cancelled_while_a_guard_hung_runs_no_tool(house):
    told = threading.Event()
    observed = []

    def watcher(**kwargs):
        observed.append((kwargs["status"], kwargs["error_message"]))
        told.set()

    house.hooks.add("pre_tool_call", house.hang, "unhurried")
    house.hooks.add("post_tool_call", watcher, "watcher")

    async def main():
        task = asyncio.ensure_future(house.dispatcher.run("c1", "calc", {}, house.scope()))
        await asyncio.to_thread(house.hanging.wait, LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        house.release.set()
        assert await asyncio.to_thread(told.wait, LIMIT_S)

    await asyncio.wait_for(main(), LIMIT_S)
    assert observed == [("blocked", "calc was not run: the call was given up.")]
    assert house.calls == []


async def test_what_cannot_be_copied_stays_what_it_is_and_is_said(house, caplog):
    house.relaxed.add("slow")
    lock = threading.Lock()
    house.add("odd", lambda args, **kw: str(args["lock"] is lock))
    house.hooks.add("pre_tool_call", house.hang, "slow")

    assert (await house.run({"lock": lock}, name="odd")).result == "True"
    assert "cannot be copied and may still change" in caplog.text
