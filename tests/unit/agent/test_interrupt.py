"""The flag that stops a turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable

import pytest

from hermes_agent.agent.turn_context import Interrupt, Interrupted


async def stopped_by(stop: Callable[[Interrupt], None], *, grace_s: float = 0.0, work_s: float = 30.0) -> str:
    """Run work that is stopped soon after it began; return what came of it."""
    interrupt, ended = Interrupt(), []

    async def work() -> str:
        try:
            await asyncio.sleep(work_s)
        finally:
            ended.append(True)
        return "done"

    asyncio.get_running_loop().call_later(0.01, stop, interrupt)
    try:
        return await interrupt.run(work(), grace_s=grace_s)
    except Interrupted:
        assert ended, "its clean-up is over when the wait is"
        assert asyncio.current_task() is not None and not asyncio.current_task().cancelling()  # type: ignore[union-attr]
        return "interrupted"


def from_a_thread(interrupt: Interrupt) -> None:
    threading.Thread(target=interrupt.set).start()


@pytest.mark.parametrize("stop", [Interrupt.set, from_a_thread])
async def test_work_is_stopped_from_the_loop_and_from_a_thread(stop: Callable[[Interrupt], None]) -> None:
    assert await asyncio.wait_for(stopped_by(stop), 5) == "interrupted"


async def test_work_that_ends_within_its_grace_has_its_result_and_other_work_has_not() -> None:
    assert await stopped_by(Interrupt.set, grace_s=5, work_s=0.05) == "done"
    assert await asyncio.wait_for(stopped_by(Interrupt.set, grace_s=0.05), 5) == "interrupted"


async def test_who_is_cancelled_from_outside_is_not_interrupted() -> None:
    interrupt = Interrupt()
    task = asyncio.ensure_future(interrupt.run(asyncio.sleep(30), grace_s=30))
    await asyncio.sleep(0)
    interrupt.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stream_ends_and_is_closed_also_between_two_items() -> None:
    closed: list[str] = []

    async def stream(pause_s: float) -> AsyncGenerator[int, None]:
        try:
            for number in range(100):
                yield number
                await asyncio.sleep(pause_s)
        finally:
            closed.append("closed")

    async def main(pause_s: float) -> list[int]:
        interrupt, seen = Interrupt(), list[int]()
        with pytest.raises(Interrupted):
            async for number in interrupt.iterate(stream(pause_s)):
                seen.append(number)
                if number == 2 and not pause_s:
                    interrupt.set()
                elif number == 2:
                    asyncio.get_running_loop().call_soon(interrupt.set)
        return seen

    assert [await main(pause_s) for pause_s in (0, 0.05)] == [[0, 1, 2]] * 2
    assert closed == ["closed"] * 2


async def test_a_wait_that_is_over_is_not_cancelled_later() -> None:
    async def main() -> str:
        interrupt = Interrupt()
        await interrupt.run(asyncio.sleep(0))
        interrupt.set()
        await asyncio.sleep(0.02)
        return "alive"

    assert await main() == "alive"
