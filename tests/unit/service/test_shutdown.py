"""Stopping in order: real signals to this process, and the turns that are let finish."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from hermes_agent.core.errors import RetryLater
from hermes_agent.service.shutdown import Shutdown, TurnDrain


async def test_sigterm_asks_for_the_end_and_a_second_one_hurries() -> None:
    async def run() -> tuple[str, bool, bool]:
        with Shutdown().signals() as shutdown:
            os.kill(os.getpid(), signal.SIGTERM)
            reason = await asyncio.wait_for(shutdown.wait(), 5)
            patient = not shutdown.hurry.is_set()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.wait_for(shutdown.hurry.wait(), 5)
            return reason, patient, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    assert await run() == ("SIGTERM", True, True)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


async def test_sighup_reloads_and_does_not_stop_even_when_the_reload_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> tuple[int, bool]:
        count = 0
        once, twice = asyncio.Event(), asyncio.Event()

        def reload() -> None:
            nonlocal count
            count += 1
            (once if count == 1 else twice).set()
            raise ValueError("new config is wrong")

        with Shutdown(reload).signals() as shutdown:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.wait_for(once.wait(), 5)
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.wait_for(twice.wait(), 5)
            return count, shutdown.requested.is_set()

    assert await run() == (2, False)
    assert "new config is wrong" in caplog.text


async def test_sighup_without_a_reload_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with Shutdown().signals() as shutdown:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(shutdown.wait(), 5)

    await run()
    assert "nothing can be reloaded" in caplog.text


async def test_the_first_reason_stays() -> None:
    async def run() -> str:
        shutdown = Shutdown()
        shutdown.request("the HTTP server ended")
        shutdown.request("later")
        return await shutdown.wait()

    assert await run() == "the HTTP server ended"


async def test_a_drain_waits_for_running_turns_and_refuses_new_ones() -> None:
    async def run() -> tuple[bool, float, int]:
        drain = TurnDrain(retry_after_s=7)
        release = asyncio.Event()

        async def turn() -> None:
            with drain.turn():
                await release.wait()

        turns = [asyncio.create_task(turn()) for _ in range(3)]
        await asyncio.sleep(0)
        running = drain.running
        waiting = asyncio.create_task(drain.wait_idle(5))
        await asyncio.sleep(0)
        with pytest.raises(RetryLater) as refused, drain.turn():
            pass
        release.set()
        idle = await waiting
        await asyncio.gather(*turns)
        return idle, refused.value.after_s, running

    assert await run() == (True, 7, 3)


async def test_a_turn_that_does_not_end_is_left_to_the_caller() -> None:
    async def run() -> tuple[bool, int]:
        drain = TurnDrain()
        with drain.turn():
            return await drain.wait_idle(0.01), drain.running

    assert await run() == (False, 1)


async def test_a_hurried_stop_does_not_wait() -> None:
    async def run() -> bool:
        drain, hurry = TurnDrain(), asyncio.Event()
        hurry.set()
        with drain.turn():
            return await asyncio.wait_for(drain.wait_idle(600, hurry=hurry), 5)

    assert await run() is False


async def test_an_idle_drain_is_done_at_once_and_a_failed_turn_is_no_longer_counted() -> None:
    async def run() -> bool:
        drain = TurnDrain()
        with pytest.raises(ZeroDivisionError), drain.turn():
            raise ZeroDivisionError
        return await asyncio.wait_for(drain.wait_idle(600), 5)

    assert await run() is True
