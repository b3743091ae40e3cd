"""Work in steps: what happens to it when a step does not return."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep

LIMIT_S = 20.0
SHORT_S = 0.2


@pytest.fixture
def bridge():
    it = Bridge(workers=2)
    yield it
    it.close()


@pytest.fixture
def release():
    """Ends what hangs."""
    it = threading.Event()
    yield it
    it.set()


def step(call, deadline_s=LIMIT_S):
    return DeadlineStep(call, deadline_s, "a step")


def run(bridge, steps, shortest_s=SHORT_S):
    return asyncio.run(asyncio.wait_for(bridge.run_steps(steps, shortest_s=shortest_s), LIMIT_S))


def both_ways(bridge):
    return [lambda steps: run(bridge, steps), bridge.run_steps_inline]


def test_the_generator_and_its_steps_run_in_one_worker_with_one_context(bridge):
    variable = contextvars.ContextVar("variable", default="unset")

    def steps():
        seen = [threading.current_thread().name, (yield step(lambda: threading.current_thread().name))]
        yield step(lambda: variable.set("set"))
        return seen, variable.get(), (yield step(variable.get))

    (here, there), mine, theirs = run(bridge, steps())
    assert here == there == "hermes-worker-1"
    assert (mine, theirs) == ("set", "set")


def test_in_a_thread_that_waits_the_steps_alone_run_elsewhere_and_all_share_a_context_of_their_own(bridge):
    variable = contextvars.ContextVar("variable", default="unset")

    def steps():
        first = yield step(lambda: (threading.get_ident(), variable.set("set"))[0])
        second = yield step(lambda: (threading.get_ident(), variable.get()))
        return first, second, threading.get_ident(), variable.get()

    first, second, mine, value = bridge.run_steps_inline(steps())
    assert second == (first, "set")
    assert mine == threading.get_ident() != first
    assert (value, variable.get()) == ("set", "unset")


@pytest.mark.parametrize("way", [0, 1])
def test_a_step_that_overruns_is_left_behind_and_the_rest_goes_on(bridge, release, caplog, way):
    caplog.set_level("INFO")
    late = threading.Event()
    variable = contextvars.ContextVar("variable", default="unset")

    def hang():
        release.wait(LIMIT_S)
        late.set()
        return "late"

    def steps():
        yield step(lambda: variable.set("kept"))
        return (yield step(hang, SHORT_S)), (yield step(lambda: "next")), (yield step(variable.get))

    assert both_ways(bridge)[way](steps()) == (OVERRUN, "next", "kept")
    release.set()
    assert late.wait(LIMIT_S)


@pytest.mark.parametrize("way", [0, 1])
def test_a_step_that_ends_late_does_not_end_what_goes_on_without_it(bridge, release, way):
    late = threading.Event()

    def hang():
        release.wait(LIMIT_S)
        late.set()

    def following():
        release.set()
        assert late.wait(LIMIT_S)
        time.sleep(SHORT_S)  # for the end of the thread that was left behind to be told
        return "end"

    def steps():
        assert (yield step(hang, 0.05)) is OVERRUN
        return (yield step(following))

    assert both_ways(bridge)[way](steps()) == "end"


@pytest.mark.parametrize("way", [0, 1])
def test_work_between_the_steps_is_never_cut_off(bridge, way):
    started, ended = threading.Event(), threading.Event()

    def steps():
        yield step(lambda: None, 0.01)
        started.set()
        ended.wait(SHORT_S)  # nobody sets it: longer than any deadline here
        return (yield step(lambda: "end", LIMIT_S))

    assert both_ways(bridge)[way](steps()) == "end"


@pytest.mark.parametrize("way", [0, 1])
def test_an_error_of_the_work_comes_back_as_it_is(bridge, way):
    def steps():
        yield step(lambda: None)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        both_ways(bridge)[way](steps())


def test_a_step_longer_than_the_shortest_deadline_keeps_its_own(bridge):
    entered = threading.Event()

    def steps():
        return (yield step(lambda: entered.wait(SHORT_S) or "done", LIMIT_S))

    assert run(bridge, steps(), shortest_s=0.01) == "done"


async def test_steps_that_hang_take_no_slot_from_others(release):
    bridge = Bridge(workers=1)

    def steps():
        for _ in range(3):
            assert (yield step(lambda: release.wait(LIMIT_S), 0.05)) is OVERRUN
        return "end"

    async def main():
        ends = await asyncio.gather(*(bridge.run_steps(steps(), shortest_s=0.05) for _ in range(2)))
        return ends, await bridge.run(lambda: "free")

    assert await asyncio.wait_for(main(), LIMIT_S) == (["end", "end"], "free")
    bridge.close()


async def test_when_nobody_waits_any_more_the_rest_is_walked_all_the_same(release):
    bridge = Bridge(workers=1)
    entered = threading.Event()
    answers = []

    def hang():
        entered.set()
        release.wait(LIMIT_S)

    async def main():
        end = asyncio.Event()
        loop = asyncio.get_running_loop()

        def steps():
            answers.append((yield step(hang, SHORT_S)))
            answers.append((yield step(lambda: "after")))
            loop.call_soon_threadsafe(end.set)

        task = asyncio.ensure_future(bridge.run_steps(steps(), shortest_s=SHORT_S))
        await asyncio.to_thread(entered.wait, LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answers == []
        assert await bridge.run(lambda: "the slot is free") == "the slot is free"
        await end.wait()
        return [await bridge.run(threading.get_ident) for _ in range(3)]

    idents = await asyncio.wait_for(main(), LIMIT_S)
    assert answers == [OVERRUN, "after"]
    assert len(set(idents)) == 1
    bridge.close()


async def test_a_cancel_that_meets_the_end_gives_the_thread_back_once():
    bridge = Bridge(workers=2)

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(50):
            ended = threading.Event()

            def steps(ended=ended):
                yield step(lambda: None)
                loop.call_soon_threadsafe(ended.wait, LIMIT_S)  # holds the loop until the end is known there

            task = asyncio.ensure_future(bridge.run_steps(steps(), shortest_s=LIMIT_S))
            await asyncio.sleep(0)
            loop.call_soon(loop.call_soon, task.cancel)
            threading.Timer(0.002, ended.set).start()
            await asyncio.wait((task,))
            barrier = threading.Barrier(2)
            await asyncio.gather(*(bridge.run(barrier.wait, LIMIT_S) for _ in range(2)))

    await asyncio.wait_for(main(), LIMIT_S)
    bridge.close()


async def test_a_step_on_the_blocked_plugin_loop_may_await_a_coroutine(bridge):
    async def inner():
        return "inner"

    def steps():
        return (yield step(lambda: bridge.wait_plugin(inner(), deadline_s=LIMIT_S)))

    async def handler():
        return bridge.run_steps_inline(steps())

    async def main():
        return await bridge.run(lambda: bridge.wait_plugin(handler(), deadline_s=LIMIT_S))

    assert await asyncio.wait_for(main(), LIMIT_S) == "inner"


async def test_every_worker_may_wait_for_a_step_that_asks_the_core_which_needs_a_worker():
    bridge = Bridge(workers=3)
    barrier = threading.Barrier(3)

    async def core():
        return await bridge.run(lambda: "core")

    def steps():
        return (yield step(lambda: bridge.wait_core(core())))

    def work():
        barrier.wait(LIMIT_S)
        return bridge.run_steps_inline(steps())

    async def main():
        return await asyncio.gather(*(bridge.run(work) for _ in range(3)))

    assert await asyncio.wait_for(main(), LIMIT_S) == ["core"] * 3
    bridge.close()


def test_closing_ends_the_threads_beside_too(bridge):
    def steps():
        return (yield step(threading.current_thread))

    thread = bridge.run_steps_inline(steps())
    bridge.close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
