"""A loop in a thread, for who has none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hermes_agent.runtime.loops import LoopThread


async def test_it_runs_coroutines_for_a_thread_that_has_a_loop_of_its_own() -> None:
    loop = LoopThread("a-loop")

    async def where() -> str:
        return threading.current_thread().name

    async def caller() -> str:
        return loop.run(where())

    assert await caller() == loop.run(where()) == "a-loop"
    loop.close()


def test_a_coroutine_that_overruns_is_cancelled_and_one_that_runs_at_the_end_as_well() -> None:
    loop, cancelled, left = LoopThread("a-loop"), threading.Event(), threading.Event()

    async def hang(gone: threading.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async def leave_behind() -> asyncio.Task[None]:
        task = asyncio.create_task(hang(left))
        await asyncio.sleep(0)
        return task

    with pytest.raises(TimeoutError):
        loop.run(hang(cancelled), timeout_s=0.01)
    assert cancelled.wait(10)
    task = loop.run(leave_behind())
    loop.close()
    loop.close()
    assert left.is_set()
    assert task.cancelled()


def test_who_would_wait_for_himself_is_told() -> None:
    loop = LoopThread("a-loop")

    async def inside() -> None:
        loop.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="wait for itself"):
        loop.run(inside())
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(asyncio.sleep(0))
