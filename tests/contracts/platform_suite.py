"""What every platform adapter must do, whoever wrote it: subclass `PlatformSuite` and give it a `bench`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import (
    CHAT_TYPES,
    MessageEvent,
    ProcessingOutcome,
    SendResult,
    build_session_key,
    call_connect,
    call_send,
)
from hermes_agent.testing import install_direct_loop

WAIT_S = 60.0
"""Longest wait for something that happens by itself; a test that waits so long has failed."""


class Bench(Protocol):
    """An adapter, and the other end of its line."""

    @property
    def adapter(self) -> BasePlatformAdapter:
        """The adapter, not connected yet."""
        ...

    async def arrive(self) -> None:
        """Let people come; the adapter is connected."""
        ...

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        """Let somebody write to the agent; returns when the adapter has taken the message in."""
        ...

    async def leave(self) -> None:
        """Keep what the service received, and let people go; the adapter is still connected."""
        ...

    def sent(self) -> list[tuple[str, str]]:
        """Return what the service received: chat and text of each message."""
        ...


async def settled(adapter: BasePlatformAdapter) -> None:
    """Wait until the adapter works on nothing any more."""
    while adapter._background_tasks:
        await asyncio.wait_for(asyncio.wait(set(adapter._background_tasks)), WAIT_S)


def drive(bench: Bench, handler: Any, steps: Callable[[BasePlatformAdapter], Awaitable[Any]]) -> Any:
    """Connect, take the steps, wait for the answers, disconnect."""

    async def run() -> Any:
        adapter = bench.adapter
        install_direct_loop()
        adapter.set_message_handler(handler)
        assert await call_connect(adapter, is_reconnect=False) is True
        await bench.arrive()
        result = await asyncio.wait_for(steps(adapter), WAIT_S)
        await settled(adapter)
        await bench.leave()
        await adapter.disconnect()
        return result

    return asyncio.run(run())


class PlatformSuite:
    """The tests; a platform with ids of its own form names two chats and somebody who writes in the first."""

    ROOM, OTHER_ROOM, PERSON = "room-1", "room-2", "ann"

    def test_it_is_an_adapter_with_a_name_and_a_platform(self, bench: Bench) -> None:
        adapter = bench.adapter
        assert isinstance(adapter, BasePlatformAdapter)
        assert adapter.name
        assert adapter.platform.value == adapter.platform.value.lower()
        assert (adapter.is_connected, adapter.has_fatal_error) == (False, False)

    def test_a_message_reaches_the_handler_and_the_answer_its_chat(self, bench: Bench) -> None:
        events: list[MessageEvent] = []

        async def answer(event: MessageEvent) -> str:
            events.append(event)
            return f"you said {event.text}"

        drive(bench, answer, lambda adapter: bench.write(self.ROOM, self.PERSON, "hello"))

        (event,) = events
        source = event.source
        assert source is not None
        assert (event.text, source.chat_id, source.platform) == ("hello", self.ROOM, bench.adapter.platform)
        assert source.chat_type in CHAT_TYPES
        assert build_session_key(source).startswith(
            f"agent:main:{source.platform.value}:{source.chat_type}:{self.ROOM}"
        )
        assert bench.sent() == [(self.ROOM, "you said hello")]

    def test_two_messages_of_one_chat_are_answered_one_after_the_other(self, bench: Bench) -> None:
        first_runs, go_on = asyncio.Event(), asyncio.Event()
        order: list[str] = []

        async def answer(event: MessageEvent) -> str:
            order.append(event.text)
            if event.text == "one":
                first_runs.set()
                await go_on.wait()
            return event.text.upper()

        async def steps(adapter: BasePlatformAdapter) -> None:
            await bench.write(self.ROOM, self.PERSON, "one")
            await first_runs.wait()
            await bench.write(self.ROOM, self.PERSON, "two")
            assert order == ["one"]
            go_on.set()

        drive(bench, answer, steps)

        assert order == ["one", "two"]
        assert bench.sent() == [(self.ROOM, "ONE"), (self.ROOM, "TWO")]

    def test_no_answer_sends_nothing(self, bench: Bench) -> None:
        async def silent(event: MessageEvent) -> None:
            return None

        drive(bench, silent, lambda adapter: bench.write(self.ROOM, self.PERSON, "hello"))

        assert bench.sent() == []

    def test_a_handler_that_fails_is_told_in_the_chat_without_its_details(self, bench: Bench) -> None:
        outcomes: list[ProcessingOutcome] = []

        async def broken(event: MessageEvent) -> str:
            raise RuntimeError("the secret is 12345")

        async def note(event: MessageEvent, outcome: ProcessingOutcome) -> None:
            outcomes.append(outcome)

        bench.adapter.on_processing_complete = note  # type: ignore[method-assign]
        drive(bench, broken, lambda adapter: bench.write(self.ROOM, self.PERSON, "hello"))

        said = "".join(text for _, text in bench.sent())
        assert "RuntimeError" in said
        assert "12345" not in said
        assert outcomes == [ProcessingOutcome.FAILURE]

    def test_sending_by_itself_says_what_became_of_it(self, bench: Bench) -> None:
        async def steps(adapter: BasePlatformAdapter) -> SendResult:
            return await call_send(adapter, self.OTHER_ROOM, "news", None, {"notify": True})

        result = drive(bench, None, steps)

        assert isinstance(result, SendResult)
        assert (result.success, result.error) == (True, None)
        assert bench.sent() == [(self.OTHER_ROOM, "news")]

    def test_a_long_text_arrives_whole(self, bench: Bench) -> None:
        words = [f"word{number}" for number in range(200)]

        async def steps(adapter: BasePlatformAdapter) -> SendResult:
            return await call_send(adapter, self.ROOM, " ".join(words))

        assert drive(bench, None, steps).success
        limit = getattr(bench.adapter, "MAX_MESSAGE_LENGTH", None)
        texts = [text for _, text in bench.sent()]
        assert limit is None or all(bench.adapter.message_len_fn(text) <= limit for text in texts)
        assert [word for text in texts for word in text.split() if word.startswith("word")] == words

    def test_a_file_that_cannot_be_sent_is_named_without_its_path(self, bench: Bench) -> None:
        async def steps(adapter: BasePlatformAdapter) -> Any:
            return await adapter.send_document(self.ROOM, "/tmp/private/place/report.pdf", file_name="report.pdf")

        result = drive(bench, None, steps)

        assert isinstance(result, SendResult)
        assert not any("/tmp/private" in text for _, text in bench.sent())

    def test_a_chat_has_a_name_and_a_type(self, bench: Bench) -> None:
        async def steps(adapter: BasePlatformAdapter) -> dict[str, Any]:
            return await adapter.get_chat_info(self.ROOM)

        info = drive(bench, None, steps)

        assert info["name"]
        assert info["type"] in CHAT_TYPES

    def test_after_disconnecting_nothing_runs_on(self, bench: Bench) -> None:
        runs, ended = asyncio.Event(), []

        async def forever(event: MessageEvent) -> str:
            runs.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(event.text)
            return "never"

        async def steps(adapter: BasePlatformAdapter) -> None:
            await bench.write(self.ROOM, self.PERSON, "hello")
            await runs.wait()
            await adapter.cancel_background_tasks()
            assert adapter._active_sessions == {}

        drive(bench, forever, steps)

        assert ended == ["hello"]
        assert bench.sent() == []
        assert not bench.adapter.is_connected
