"""A daemon that uses too much lets idle sessions go, and restarts when that is not enough."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from hermes_agent.config.settings import Settings
from hermes_agent.core.messages import Message
from hermes_agent.host.maintenance import GRACE_PERIOD_S, MB, MemoryWatch
from hermes_agent.system.process_tree import resident_bytes
from hermes_agent.testing.chat import chat_host


async def watched(
    uses: list[int], after: int = 0, *, age: float = GRACE_PERIOD_S + 1, soft: int = 100, hard: int = 200
) -> list[str]:
    """Return what is done when so many MB are used at one look after another; `after`: once idle sessions are gone."""
    done: list[str] = []

    async def run() -> None:
        left, over = list(uses), asyncio.Event()
        now = [0.0]

        async def sleep(seconds: float) -> None:
            now[0] += seconds if now[0] else age
            if not left:
                over.set()
                await asyncio.Event().wait()

        async def relieve() -> None:
            done.append("relieve")
            if after:
                left.insert(0, after)

        async def aside(call: Callable[[], None]) -> None:
            call()

        def restart() -> None:
            done.append("restart")
            over.set()

        settings = Settings({"gateway": {"memory_soft_mb": soft, "memory_hard_mb": hard}})
        used = lambda: left.pop(0) * MB  # noqa: E731
        watch = MemoryWatch(lambda: settings, relieve, restart, aside, used=used, sleep=sleep, clock=lambda: now[0])
        await watch.start()
        await asyncio.wait_for(over.wait(), 30)
        await watch.drain(0)

    await run()
    return done


async def test_beyond_the_first_limit_idle_sessions_are_let_go_and_not_again_at_each_look() -> None:
    assert await watched([50, 150, 150, 150], after=150) == ["relieve"]


async def test_beyond_the_second_limit_it_restarts_when_letting_go_did_not_help() -> None:
    assert await watched([250], after=80) == ["relieve"]
    assert await watched([250], after=230) == ["relieve", "restart"]
    assert await watched([250], after=230, soft=0) == ["relieve", "restart"]


async def test_a_daemon_that_uses_too_much_from_the_start_does_not_restart_for_ever() -> None:
    assert await watched([250], after=230, age=1.0) == ["relieve"]


FIRST = "what no other test of this process says"


def in_memory(text: str) -> bool:
    gc.collect()
    return any(type(one) is Message and one.content == text for one in gc.get_objects())


def test_a_session_that_was_let_go_goes_on_as_before() -> None:
    assert resident_bytes() > MB
    with chat_host(model=["one", "two"]) as chat:
        chat.ask(FIRST)
        assert in_memory(FIRST)
        relieve = chat.host.host.agent.release_memory
        # a session is open for a moment after its answer was sent, and is then left alone
        chat.wait(lambda: chat.host._run(relieve()) or not in_memory(FIRST))
        chat.ask("second")
        said = [message["content"] for message in chat.host.model.messages if message["role"] == "user"]
    assert said == [FIRST, "second"]
