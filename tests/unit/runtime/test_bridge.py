from __future__ import annotations

import asyncio
import contextvars
import sys
import threading

import pytest

from hermes_agent.runtime.bridge import WORKERS, Bridge

LIMIT_S = 20.0


@pytest.fixture
def bridge():
    it = Bridge()
    yield it
    it.close()


async def _bounded(awaitable):
    return await asyncio.wait_for(awaitable, LIMIT_S)


async def test_a_sync_call_runs_in_another_thread_and_its_result_comes_back(bridge):
    async def main():
        return await bridge.run(lambda a, *, b: (a, b, threading.current_thread().name), 1, b=2)

    a, b, thread = await main()
    assert (a, b) == (1, 2)
    assert thread.startswith("hermes-worker")


async def test_an_error_comes_back_as_it_is(bridge):
    error = KeyError("x")

    def fail():
        raise error

    async def main():
        with pytest.raises(KeyError) as caught:
            await bridge.run(fail)
        return caught.value

    assert await main() is error


@pytest.mark.parametrize("exception", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
async def test_what_would_end_the_loop_becomes_an_error_that_names_it(bridge, exception):
    def fail():
        raise exception

    async def main():
        task = asyncio.ensure_future(bridge.run(fail))
        with pytest.raises(RuntimeError) as caught:
            await task
        return caught.value, await bridge.run(lambda: "goes on")

    error, after = await main()
    assert error.__cause__ is exception
    assert after == "goes on"


async def test_the_callers_context_variables_are_seen(bridge):
    variable = contextvars.ContextVar("variable", default="unset")

    async def read():
        return variable.get()

    async def main():
        variable.set("set")
        return await bridge.run(variable.get), await bridge.run(lambda: bridge.wait_plugin(read()))

    assert await main() == ("set", "set")


async def test_what_a_call_sets_does_not_leak_into_the_next_one(bridge):
    variable = contextvars.ContextVar("variable", default="unset")

    async def main():
        await bridge.run(variable.set, "set")
        return await bridge.run(variable.get)

    assert await main() == "unset"


async def test_as_many_calls_as_there_are_workers_run_at_once_and_one_more_waits():
    bridge = Bridge(workers=3)
    barrier = threading.Barrier(3)
    running, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(LIMIT_S)
        with lock:
            running -= 1

    async def main():
        await _bounded(asyncio.gather(*(bridge.run(work) for _ in range(6))))

    await main()
    bridge.close()
    assert most == 3


async def test_a_call_that_overruns_is_given_up_and_another_thread_takes_its_place():
    bridge = Bridge(workers=1)
    release = threading.Event()

    async def main():
        with pytest.raises(TimeoutError, match=r"no result within 0\.05 s"):
            await bridge.run(release.wait, LIMIT_S, deadline_s=0.05)
        return await _bounded(bridge.run(lambda: "done"))

    assert await main() == "done"
    release.set()
    bridge.close()


async def test_threads_that_ended_after_their_deadline_are_not_remembered():
    bridge = Bridge(workers=1)
    threads: list[threading.Thread] = []

    def overruns(release: threading.Event) -> None:
        threads.append(threading.current_thread())
        release.wait(LIMIT_S)

    async def main():
        for _ in range(3):
            release = threading.Event()
            with pytest.raises(TimeoutError):
                await bridge.run(overruns, release, deadline_s=0.05)
            release.set()
            threads[-1].join(LIMIT_S)

    await main()
    assert list(bridge._pool.left._since) == threads[-1:]
    assert bridge.stalled() == []
    bridge.close()


async def test_an_error_after_the_deadline_is_logged_once_and_harms_nobody(bridge, caplog):
    release, ended = threading.Event(), threading.Event()

    def fail():
        release.wait(LIMIT_S)
        ended.set()
        raise KeyError("late")

    async def main():
        with pytest.raises(TimeoutError):
            await bridge.run(fail, deadline_s=0.05)
        release.set()
        await bridge.run(ended.wait, LIMIT_S)
        for _ in range(500):
            if "late" in caplog.text:
                break
            await asyncio.sleep(0.01)

    await main()
    assert caplog.text.count("failed: KeyError('late')") == 1


async def test_cancelling_the_waiting_side_frees_its_slot():
    bridge = Bridge(workers=1)
    started, release = threading.Event(), threading.Event()

    def work():
        started.set()
        release.wait(LIMIT_S)

    async def main():
        task = asyncio.ensure_future(bridge.run(work))
        await asyncio.to_thread(started.wait, LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await _bounded(bridge.run(lambda: "free"))

    assert await main() == "free"
    release.set()
    bridge.close()


async def test_threads_are_used_again():
    bridge = Bridge()

    async def main():
        return {await bridge.run(threading.get_ident) for _ in range(20)}

    assert len(await main()) == 1
    bridge.close()


async def test_every_worker_may_call_back_into_the_core_at_once(bridge):
    """What the core then does needs workers, too: the pool must not wait for itself."""
    barrier = threading.Barrier(WORKERS)

    async def core():
        return await bridge.run(lambda: "inner")

    def work():
        barrier.wait(LIMIT_S)
        return bridge.wait_core(core())

    async def main():
        return await _bounded(asyncio.gather(*(bridge.run(work) for _ in range(WORKERS))))

    assert await main() == ["inner"] * WORKERS


async def test_calls_nest_as_deep_as_there_are_workers():
    bridge = Bridge(workers=4)

    def work(depth):
        return depth if depth == 0 else bridge.wait_core(bridge.run(work, depth - 1))

    async def main():
        result = await _bounded(bridge.run(work, 12))
        most = asyncio.Semaphore(0)
        return result, bridge._pool.slots._value if bridge._pool.slots else most

    result, slots = await main()
    bridge.close()
    assert result == 0
    assert slots == 4  # every slot that was lent came back


async def test_a_sync_call_from_inside_an_async_handler_may_await_another_one(bridge):
    async def inner():
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def outer():
        return threading.current_thread().name, bridge.wait_plugin(inner(), deadline_s=LIMIT_S)

    async def main():
        return await _bounded(bridge.run(lambda: bridge.wait_plugin(outer(), deadline_s=LIMIT_S)))

    first, second = await main()
    assert first == "hermes-plugins"
    assert second == "hermes-nested"


async def test_an_async_handler_may_ask_the_core_which_calls_an_async_hook(bridge):
    async def hook():
        return "hook"

    async def core():
        return await bridge.run(lambda: bridge.wait_plugin(hook(), deadline_s=LIMIT_S))

    async def handler():
        return bridge.wait_core(core())

    async def main():
        return await _bounded(bridge.run(lambda: bridge.wait_plugin(handler(), deadline_s=LIMIT_S)))

    assert await main() == "hook"


async def test_a_plugins_loop_that_blocks_blocks_no_core_work(bridge):
    release, entered = threading.Event(), threading.Event()

    async def blocking():
        entered.set()
        release.wait(LIMIT_S)

    async def main():
        task = asyncio.ensure_future(bridge.run(lambda: bridge.wait_plugin(blocking(), deadline_s=LIMIT_S)))
        await bridge.run(entered.wait, LIMIT_S)
        value = await _bounded(bridge.run(lambda: "core goes on"))
        release.set()
        await _bounded(task)
        return value

    assert await main() == "core goes on"


def test_a_coroutine_that_overruns_is_cancelled(bridge):
    cancelled = threading.Event()

    async def slow():
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError, match=r"no result within 0\.05 s"):
        bridge.wait_plugin(slow(), deadline_s=0.05)
    assert cancelled.wait(LIMIT_S)


def test_a_coroutines_own_timeout_is_told_from_the_deadline(bridge):
    async def fail():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        bridge.wait_plugin(fail(), deadline_s=LIMIT_S)


def test_a_coroutine_that_exits_does_not_end_the_plugin_loop(bridge):
    async def leave():
        sys.exit(3)

    async def leave_later():
        asyncio.get_running_loop().call_soon(sys.exit, 4)
        await asyncio.sleep(0)
        return "left"

    async def work():
        return "works"

    with pytest.raises(RuntimeError, match=r"SystemExit\(3\)"):
        bridge.wait_plugin(leave(), deadline_s=LIMIT_S)
    assert bridge.wait_plugin(leave_later(), deadline_s=LIMIT_S) == "left"
    assert bridge.wait_plugin(work(), deadline_s=LIMIT_S) == "works"


async def test_waiting_on_the_core_loop_itself_is_refused(bridge):
    async def nothing():
        return None

    await bridge.run(lambda: None)
    for wait in (bridge.wait_core, bridge.wait_plugin):
        with pytest.raises(RuntimeError, match="would block the core loop"):
            wait(nothing())


async def test_without_a_core_loop_a_coroutine_gets_one_of_its_own(bridge):
    async def value():
        return 7

    async def other_loop():
        return bridge.wait_core(value())

    assert bridge.wait_core(value()) == 7
    assert await other_loop() == 7


async def test_a_bridge_serves_one_loop_after_another(bridge):
    async def main(value):
        return await bridge.run(lambda: value)

    assert [await main(n) for n in range(3)] == [0, 1, 2]


async def test_a_lane_runs_its_calls_one_after_another_in_one_thread(bridge):
    lane = bridge.serial_executor("store")
    order = []

    def work(number):
        order.append((number, threading.get_ident()))

    async def main():
        await asyncio.gather(*(lane.run(work, n) for n in range(20)))

    await main()
    assert [number for number, _ in order] == list(range(20))
    assert len({ident for _, ident in order}) == 1


async def test_a_call_in_a_lane_is_finished_even_when_nobody_waits(bridge):
    lane, release, done = bridge.serial_executor("store"), threading.Event(), threading.Event()

    def work():
        release.wait(LIMIT_S)
        done.set()

    async def main():
        task = asyncio.ensure_future(lane.run(work))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        await lane.run(lambda: None)

    await main()
    assert done.is_set()


async def test_closing_ends_the_threads(bridge):
    async def nothing():
        return None

    async def main():
        await bridge.run(lambda: bridge.wait_plugin(nothing()))
        await bridge.serial_executor("store").run(lambda: None)

    before = set(threading.enumerate())
    await main()
    fresh = set(threading.enumerate()) - before
    bridge.close()
    for thread in fresh:
        thread.join(LIMIT_S)
    assert fresh
    assert not any(thread.is_alive() for thread in fresh)


def test_a_plugins_coroutine_awaits_work_of_the_core_loop(bridge):
    async def core():
        return asyncio.get_running_loop()

    async def plugin():
        assert not bridge.is_core_thread
        return await bridge.on_core(core())

    async def main():
        assert await bridge.run(lambda: bridge.has_core_loop)  # the first call makes this loop the core
        assert bridge.is_core_thread
        here = asyncio.get_running_loop()
        assert await bridge.on_core(core()) is here
        assert await _bounded(bridge.run(lambda: bridge.wait_plugin(plugin(), deadline_s=LIMIT_S))) is here

    asyncio.run(main())
    assert not bridge.has_core_loop


async def test_without_a_core_loop_its_work_is_awaited_where_it_is_called(bridge):
    async def work():
        return asyncio.get_running_loop()

    async def main():
        return await bridge.on_core(work()) is asyncio.get_running_loop()

    assert await main()


async def test_cancelling_the_waiting_side_cancels_the_core_s_work(bridge):
    ended = threading.Event()

    async def core(begun):
        try:
            begun()
            await asyncio.sleep(LIMIT_S)
        finally:
            ended.set()

    async def plugin():
        began, here = asyncio.Event(), asyncio.get_running_loop()
        task = asyncio.ensure_future(bridge.on_core(core(lambda: here.call_soon_threadsafe(began.set))))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await _bounded(bridge.run(lambda: bridge.wait_plugin(plugin(), deadline_s=LIMIT_S)))
    assert await bridge.run(ended.wait, LIMIT_S)


async def test_a_coroutine_that_blocks_the_plugin_loop_does_not_hold_up_another_plugin_s(caplog):
    bridge, blocked, release = Bridge(), threading.Event(), threading.Event()

    async def rude():
        blocked.set()
        assert release.wait(LIMIT_S)
        return "rude"

    async def polite():
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def main():
        first = asyncio.ensure_future(bridge.run(bridge.wait_plugin, rude()))
        assert await asyncio.to_thread(blocked.wait, LIMIT_S)
        other = await bridge.run(lambda: bridge.wait_plugin(polite(), deadline_s=1.0))
        assert not release.is_set()
        release.set()
        return other, await first

    assert await _bounded(main()) == ("hermes-nested", "rude")
    assert "a plugin blocks the plugin loop" in caplog.text
    bridge.close()
