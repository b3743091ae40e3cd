"""What an adapter inherits: sessions that are busy, retries, files in answers, cutting texts, callbacks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.platform_suite import WAIT_S, settled
from hermes_agent.adapters.base import BasePlatformAdapter, set_direct_loop
from hermes_agent.adapters.config import Platform, PlatformConfig
from hermes_agent.adapters.events import (
    EphemeralReply,
    MessageEvent,
    MessageType,
    ProcessingOutcome,
    SendResult,
    as_send_result,
    call_connect,
    call_send,
    call_supported,
    get_session_env,
)
from hermes_agent.adapters.text import split_message, utf16_len
from hermes_agent.compat import adapter_loop, import_hook
from hermes_agent.testing import install_direct_loop

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
KEY = "agent:main:slack:dm:room"


@pytest.fixture(autouse=True)
def direct_loop() -> None:
    install_direct_loop()


class Chat(BasePlatformAdapter):
    """Notes every call; `results` are what `send` returns first."""

    def __init__(self, **config: Any) -> None:
        super().__init__(PlatformConfig(enabled=True, **config), Platform.SLACK)
        self.calls: list[tuple[Any, ...]] = []
        self.results: list[SendResult | Exception] = []

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._mark_disconnected()

    async def send(self, chat_id: str, content: str, reply_to: str | None = None, metadata: Any = None) -> SendResult:
        self.calls.append(("send", content, reply_to, metadata))
        result = self.results.pop(0) if self.results else SendResult(True, message_id=f"id{len(self.calls)}")
        if isinstance(result, Exception):
            raise result
        return result

    def texts(self) -> list[str]:
        return [call[1] for call in self.calls if call[0] == "send"]


class Rich(Chat):
    """Sends files, too."""

    async def send_image(self, chat_id: str, image_url: str, caption: Any = None, *a: Any, **kw: Any) -> SendResult:
        self.calls.append(("image", image_url, caption))
        return SendResult(True)

    async def send_image_file(self, chat_id: str, image_path: str, *a: Any, **kw: Any) -> SendResult:
        self.calls.append(("image file", image_path))
        return SendResult(True)

    async def send_document(self, chat_id: str, file_path: str, *a: Any, **kw: Any) -> SendResult:
        self.calls.append(("document", file_path))
        return SendResult(True)

    async def send_voice(self, chat_id: str, audio_path: str, *a: Any, **kw: Any) -> SendResult:
        self.calls.append(("voice", audio_path))
        return SendResult(True)

    async def send_video(self, chat_id: str, video_path: str, *a: Any, **kw: Any) -> SendResult:
        self.calls.append(("video", video_path))
        return SendResult(True)


def event(adapter: BasePlatformAdapter, text: str, **more: Any) -> MessageEvent:
    where = {name: more.pop(name) for name in ("thread_id", "chat_type", "user_id") if name in more}
    return MessageEvent(text, source=adapter.build_source("room", **where), message_id="m1", **more)


async def within(steps: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await asyncio.wait_for(steps, WAIT_S)

    return await run()


async def answered(adapter: Chat, response: Any, text: str = "hi", **more: Any) -> Chat:
    """Let the adapter take one message in whose answer is `response`."""

    async def run() -> None:
        async def handler(event: MessageEvent) -> Any:
            return response

        adapter.set_message_handler(handler)
        await adapter.handle_message(event(adapter, text, **more))
        await settled(adapter)

    await within(run())
    return adapter


# -- a busy session -------------------------------------------------------------------------------------------------


async def busy(adapter: Chat, meanwhile: Callable[[], Awaitable[Any]]) -> list[str]:
    """Work on a message, take `meanwhile` while it is worked on, and return what the handler was given."""
    given: list[str] = []

    async def run() -> None:
        runs, go_on = asyncio.Event(), asyncio.Event()

        async def handler(event: MessageEvent) -> str:
            given.append(event.text)
            if event.text == "long":
                runs.set()
                await go_on.wait()
            return f"done: {event.text}"

        adapter.set_message_handler(handler)
        await adapter.handle_message(event(adapter, "long"))
        await runs.wait()
        await meanwhile()
        go_on.set()
        await settled(adapter)

    await within(run())
    return given


async def test_what_comes_meanwhile_is_one_message_afterwards_and_the_work_can_see_that_it_waits() -> None:
    adapter = Chat()

    async def meanwhile() -> None:
        assert not adapter.has_pending_interrupt(KEY)
        await adapter.handle_message(event(adapter, "one"))
        await adapter.handle_message(event(adapter, "two"))
        assert adapter.has_pending_interrupt(KEY)

    assert await busy(adapter, meanwhile) == ["long", "one\ntwo"]
    assert adapter.texts() == ["done: long", "done: one\ntwo"]
    assert (adapter._active_sessions, adapter._pending_messages, adapter._session_tasks) == ({}, {}, {})


async def test_pictures_wait_without_interrupting() -> None:
    adapter = Chat()

    async def meanwhile() -> None:
        for number in (1, 2):
            picture = event(adapter, "", message_type=MessageType.PHOTO, media_urls=[f"/{number}"], media_types=["x"])
            await adapter.handle_message(picture)
        assert not adapter.has_pending_interrupt(KEY)
        assert adapter._pending_messages[KEY].media_urls == ["/1", "/2"]

    assert await busy(adapter, meanwhile) == ["long", ""]


async def test_a_command_for_a_busy_session_is_answered_at_once() -> None:
    adapter = Chat()

    async def meanwhile() -> None:
        await adapter.handle_message(event(adapter, "/status now"))
        assert adapter.texts() == ["done: /status now"]

    assert await busy(adapter, meanwhile) == ["long", "/status now"]


async def test_the_runner_may_deal_with_what_comes_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    adapter = Chat()
    seen: list[tuple[str, str]] = []

    async def busy_handler(event: MessageEvent, key: str) -> bool:
        seen.append((event.text, key))
        if event.text == "broken":
            raise RuntimeError("no")
        return event.text == "mine"

    adapter.set_busy_session_handler(busy_handler)

    async def meanwhile() -> None:
        for text in ("mine", "broken"):
            await adapter.handle_message(event(adapter, text))

    assert await busy(adapter, meanwhile) == ["long", "broken"]
    assert seen == [("mine", KEY), ("broken", KEY)]
    assert "[Slack] the handler of busy sessions failed, the message waits: no" in caplog.messages


async def test_stopping_the_work_frees_the_session_and_forgets_what_waits_unless_told_otherwise() -> None:
    outcomes: list[ProcessingOutcome] = []

    class Noting(Chat):
        async def on_processing_complete(self, event: MessageEvent, outcome: ProcessingOutcome) -> None:
            outcomes.append(outcome)

    async def stopped(*, discard: bool) -> list[str]:
        adapter = Noting()

        async def meanwhile() -> None:
            await adapter.handle_message(event(adapter, "next"))
            await adapter.cancel_session_processing(KEY, discard_pending=discard)
            if discard:
                assert not adapter._active_sessions

        return await busy(adapter, meanwhile)

    assert await stopped(discard=True) == ["long"]
    assert await stopped(discard=False) == ["long", "next"]
    assert outcomes == [ProcessingOutcome.CANCELLED, ProcessingOutcome.CANCELLED, ProcessingOutcome.SUCCESS]


async def test_another_chat_does_not_wait() -> None:
    adapter = Chat()

    async def meanwhile() -> None:
        other = MessageEvent("other", source=adapter.build_source("elsewhere"))
        await adapter.handle_message(other)
        await asyncio.wait({t for k, t in adapter._session_tasks.items() if k.endswith("elsewhere")}, timeout=WAIT_S)
        assert adapter.texts() == ["done: other"]

    assert await busy(adapter, meanwhile) == ["long", "other"]


DROPPED = "[Slack] a message was dropped: no gateway receives messages"


async def test_a_message_without_a_handler_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    adapter = Chat()
    await within(adapter.handle_message(event(adapter, "x")))

    assert caplog.messages == [DROPPED]


async def test_an_adapter_answers_messages_itself_only_where_the_direct_loop_is_installed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    set_direct_loop(None)
    assert (await answered(Chat(), "hello")).texts() == []
    assert caplog.messages == [DROPPED]

    install_direct_loop()
    assert (await answered(Chat(), "hello")).texts() == ["hello"]


async def test_an_inbox_receives_the_message_in_place_of_the_direct_loop() -> None:
    received: list[str] = []

    async def inbox(event: MessageEvent) -> None:
        received.append(event.text)

    adapter = Chat()
    adapter.set_inbox(inbox)
    assert (await answered(adapter, "hello")).texts() == []
    assert received == ["hi"]


def test_the_base_of_published_adapters_brings_the_direct_loop() -> None:
    for module in ("gateway.platforms", "gateway.platforms.base"):
        assert import_hook.served()[module].names["BasePlatformAdapter"][0] == adapter_loop.__name__
    assert adapter_loop.BasePlatformAdapter is BasePlatformAdapter


# -- the answer -----------------------------------------------------------------------------------------------------


async def test_an_answer_says_which_message_and_thread_it_belongs_to() -> None:
    assert (await answered(Chat(), "yes", thread_id="t1")).calls == [
        ("send", "yes", "m1", {"thread_id": "t1", "notify": True})
    ]
    assert (await answered(Chat(reply_to_mode="off"), "yes")).calls == [("send", "yes", None, {"notify": True})]


async def test_the_handler_and_what_it_calls_see_the_session() -> None:
    async def run() -> list[str]:
        adapter = Chat()
        seen: list[str] = []

        async def handler(event: MessageEvent) -> None:
            seen.extend(get_session_env(f"HERMES_SESSION_{name}") for name in ("PLATFORM", "CHAT_ID", "KEY"))

        adapter.set_message_handler(handler)
        await adapter.handle_message(event(adapter, "x"))
        await settled(adapter)
        return seen

    assert await within(run()) == ["slack", "room", KEY]


async def test_pictures_and_files_of_an_answer_are_sent_as_what_they_are(home: Path, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("a.png", "b.pdf", "c.ogg", "d.mp4", ".env")}
    for place in places.values():
        place.write_bytes(PNG)
    text = (
        "Look ![an otter](https://x.org/o.png) here\n"
        f"MEDIA:{places['c.ogg']} MEDIA:{places['d.mp4']}\nMEDIA:{places['.env']}\n"
        f"and {places['a.png']}, {places['b.pdf']}\n```\nMEDIA:/in/code.png\n```"
    )

    adapter = await answered(Rich(), text)

    assert adapter.texts() == ["Look  here\n\nand ,\n```\nMEDIA:/in/code.png\n```"]
    assert adapter.calls[1:] == [
        ("image", "https://x.org/o.png", "an otter"),
        ("voice", str(places["c.ogg"])),
        ("video", str(places["d.mp4"])),
        ("image file", str(places["a.png"])),
        ("document", str(places["b.pdf"])),
    ]
    assert (await answered(Rich(), f"[[as_document]] {places['a.png']}")).calls[-1] == (
        "document",
        str(places["a.png"]),
    )


async def test_what_a_platform_cannot_send_is_said_without_the_path(caplog: pytest.LogCaptureFixture) -> None:
    adapter = Chat()

    async def run() -> None:
        await adapter.send_image("room", "https://x.org/a.png", "cap")
        await adapter.send_image_file("room", "/secret/a.png", "cap")
        await adapter.send_document("room", "/secret/b.pdf", file_name="b.pdf")
        await adapter.send_video("room", "/secret/c.mp4")
        await adapter.play_tts("room", "/secret/d.ogg")
        await adapter.send_multiple_images("room", [("https://x.org/a.gif", ""), ("file:///secret/e%20f.png", "alt")])
        await adapter.send_clarify("room", "Which?", ["a", "b"], "c1", KEY)
        await adapter.send_private_notice("room", "u", "psst")

    await within(run())

    assert adapter.texts() == [
        "cap\nhttps://x.org/a.png",
        "cap\n⚠️ Couldn't deliver the image attachment.",
        "⚠️ Couldn't deliver the file attachment (b.pdf).",
        "⚠️ Couldn't deliver the video attachment.",
        "⚠️ Couldn't deliver the audio attachment.",
        "https://x.org/a.gif",
        "alt\n⚠️ Couldn't deliver the image attachment.",
        "❓ Which?\n1. a\n2. b",
        "psst",
    ]
    assert sum("/secret/" in message for message in caplog.messages) == 5


async def test_what_a_platform_does_not_have_says_so() -> None:
    adapter = Chat()

    async def run() -> list[Any]:
        return [
            (await adapter.edit_message("room", "1", "x")).error,
            await adapter.delete_message("room", "1"),
            (await adapter.send_slash_confirm("room", "t", "m", KEY, "c")).error,
            (await adapter.send_draft("room", 1, "x")).error,
            await adapter.create_handoff_thread("room", "n"),
            adapter.supports_draft_streaming(),
            adapter.prefers_fresh_final_streaming("x"),
            adapter.streaming_overflow_limit(),
            (adapter.enforces_own_access_policy, adapter.authorization_is_upstream),
        ]

    unsupported = "Not supported"
    assert await within(run()) == [
        unsupported,
        False,
        unsupported,
        unsupported,
        None,
        False,
        False,
        None,
        (False, False),
    ]


async def test_a_reply_that_is_not_to_stay_is_deleted() -> None:
    deleted: list[str] = []

    class Deleting(Chat):
        async def delete_message(self, chat_id: str, message_id: str) -> bool:
            deleted.append(message_id)
            return True

    await answered(Deleting(), EphemeralReply("soon gone", ttl_seconds=0))
    await answered(Deleting(), EphemeralReply("stays"))

    assert deleted == ["id1"]
    assert (EphemeralReply("x", 5).ttl_seconds, type(EphemeralReply("x").text), EphemeralReply("x") == "x") == (
        5,
        str,
        True,
    )


async def test_typing_is_shown_while_the_work_lasts_and_not_in_a_chat_where_it_is_paused() -> None:
    class Typing(Chat):
        async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
            self.calls.append(("typing", chat_id))
            shown.set()

        async def stop_typing(self, chat_id: str) -> None:
            self.calls.append(("stopped", chat_id))

    shown = asyncio.Event()

    async def run(adapter: Typing, *, wait: bool) -> list[tuple[Any, ...]]:
        async def handler(event: MessageEvent) -> str:
            if wait:
                await shown.wait()
            return "done"

        adapter.set_message_handler(handler)
        await adapter.handle_message(event(adapter, "x"))
        await settled(adapter)
        return adapter.calls

    def kinds(calls: list[tuple[Any, ...]]) -> list[str]:
        return [call[0] for call in calls]

    assert kinds(await within(run(Typing(), wait=True))) == ["typing", "send", "stopped"]
    assert kinds(await within(run(Typing(typing_indicator=False), wait=False))) == ["send"]
    paused = Typing()
    paused.pause_typing_for_chat("room")
    assert "typing" not in kinds(await within(run(paused, wait=False)))
    paused.resume_typing_for_chat("room")
    assert not paused._typing_paused


async def test_a_callback_runs_once_after_the_reply() -> None:
    adapter = Chat()
    adapter.register_post_delivery_callback(KEY, lambda: adapter.calls.append(("callback",)))
    await answered(adapter, "one")
    await answered(adapter, "two")

    assert [call[0] for call in adapter.calls] == ["send", "callback", "send"]
    adapter.register_post_delivery_callback(KEY, print, generation=2)
    assert adapter.pop_post_delivery_callback(KEY, generation=1) is None
    assert adapter.pop_post_delivery_callback(KEY, generation=2) is print
    assert adapter.pop_post_delivery_callback(KEY) is None


async def test_methods_in_the_guide_s_short_form_are_called_with_what_they_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Short(Chat):
        async def send_typing(self, chat_id):  # type: ignore[no-untyped-def,override]
            self.calls.append(("typing", chat_id))
            shown.set()

        async def send_image(self, chat_id, url):  # type: ignore[no-untyped-def,override]
            self.calls.append(("image", url))

    shown = asyncio.Event()

    async def run() -> list[tuple[Any, ...]]:
        adapter = Short()
        typed = asyncio.create_task(adapter._keep_typing("room", metadata={"thread_id": "t"}))
        await shown.wait()
        typed.cancel()
        await adapter.send_multiple_images("room", [("https://x.org/a.png", "alt")], metadata={"thread_id": "t"})
        return adapter.calls

    assert await within(run()) == [("typing", "room"), ("image", "https://x.org/a.png")]
    assert caplog.messages == []


async def test_hooks_of_an_adapter_that_fail_do_not_cost_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Chat):
        async def on_processing_start(self, event: MessageEvent) -> None:
            raise RuntimeError("start")

        async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
            raise RuntimeError("typing")

    assert (await answered(Failing(), "still here")).texts() == ["still here"]
    assert "[Slack] on_processing_start failed: RuntimeError: start" in caplog.messages


# -- retries --------------------------------------------------------------------------------------------------------


async def sent(*results: SendResult | Exception, text: str = "**hi**", **more: Any) -> tuple[SendResult, list[str]]:
    adapter = Chat()
    adapter.results = list(results)
    return await within(adapter._send_with_retry("room", text, base_delay=0, **more)), adapter.texts()


def failed(error: str, **more: Any) -> SendResult:
    return SendResult(False, error=error, **more)


async def test_a_failure_of_the_network_is_tried_again() -> None:
    result, texts = await sent(failed("connection reset by peer"), ConnectionError("refused"))
    assert (result.success, texts) == (True, ["**hi**"] * 3)

    result, texts = await sent(failed("odd", retryable=True, retry_after=0))
    assert (result.success, texts) == (True, ["**hi**"] * 2)


async def test_when_the_network_stays_away_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    result, texts = await sent(*[failed("network is unreachable")] * 3, max_retries=2)

    assert (result.success, result.error) == (False, "network is unreachable")
    assert texts[:3] == ["**hi**"] * 3
    assert texts[3].startswith("⚠️ My answer could not be delivered")
    assert "[Slack] send failed 3 times, message dropped: network is unreachable" in caplog.messages


async def test_a_message_that_may_have_arrived_is_not_sent_again() -> None:
    assert (await sent(failed("read timed out")))[1] == ["**hi**"]
    assert (await sent(TimeoutError("timed out")))[1] == ["**hi**"]


async def test_a_failure_of_the_form_is_answered_with_plain_text() -> None:
    result, texts = await sent(failed("can't parse entities"))

    assert (result.success, texts) == (True, ["**hi**", "hi"])


@pytest.mark.parametrize("error", ["Forbidden: bot was kicked", "chat not found", "message is too long"])
async def test_what_another_form_does_not_cure_is_left(error: str) -> None:
    assert (await sent(failed(error)))[1] == ["**hi**"]


# -- calling by signature -------------------------------------------------------------------------------------------


def test_adapters_of_every_shape_are_called_with_what_they_take() -> None:
    def bare(chat: str, text: str) -> tuple[Any, ...]:
        return (chat, text)

    def full(chat_id: str, content: str, reply_to: Any = None, metadata: Any = None) -> tuple[Any, ...]:
        return (chat_id, content, reply_to, metadata)

    def named(*, chat_id: str, content: str, **rest: Any) -> tuple[Any, ...]:
        return (chat_id, content, rest)

    def anything(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return (args, kwargs)

    def odd(content: str, metadata: str) -> tuple[Any, ...]:  # its second is what the text goes to
        return (content, metadata)

    leading, offered = (("chat_id", "c"), ("content", "t")), {"reply_to": "r", "metadata": {"a": 1}}
    assert call_supported(bare, leading, offered) == ("c", "t")
    assert call_supported(full, leading, offered) == ("c", "t", "r", {"a": 1})
    assert call_supported(named, leading, offered) == ("c", "t", offered)
    assert call_supported(anything, leading, offered) == (("c", "t"), offered)
    assert call_supported(odd, leading, offered) == ("c", "t")


def test_what_an_adapter_returns_is_understood() -> None:
    result = SendResult(True, message_id="1")
    assert as_send_result(result) is result
    assert [as_send_result(v) for v in (None, True, "7", 7)] == [
        SendResult(True),
        SendResult(True),
        SendResult(True, message_id="7"),
        SendResult(True, message_id="7"),
    ]
    assert as_send_result(False).success is False
    found = as_send_result({"success": True, "message_id": 5})
    assert (found.success, found.message_id, as_send_result({"error": "no"}).error) == (True, "5", "no")


async def test_an_adapter_that_inherits_from_nothing_is_called_too() -> None:
    class Own:
        def connect(self) -> bool:
            return False

        def send(self, chat_id: str, text: str) -> str:
            return "id"

    async def run() -> list[Any]:
        own = Own()
        return [await call_connect(own), (await call_send(own, "c", "t")).message_id]

    assert await within(run()) == [False, "id"]


# -- faults and locks -----------------------------------------------------------------------------------------------


async def test_an_adapter_that_gives_up_tells_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    adapter = Chat()
    adapter.set_fatal_error_handler(told.append)
    await within(adapter.connect())
    adapter._set_fatal_error("auth", "wrong token", retryable=False)
    await within(adapter._notify_fatal_error())

    assert told == [adapter]
    assert (adapter.is_connected, adapter.has_fatal_error, adapter.fatal_error_code) == (False, True, "auth")
    assert (adapter.fatal_error_message, adapter.fatal_error_retryable) == ("wrong token", False)
    adapter._mark_connected()
    assert (adapter.has_fatal_error, adapter.fatal_error_code, adapter.fatal_error_message) == (False, None, None)


def test_a_token_that_another_process_uses_is_a_fatal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_GATEWAY_LOCK_DIR", str(tmp_path))
    first, second = Chat(), Chat()

    assert first._acquire_platform_lock("slack-token", "t", "Slack token")
    (lock,) = tmp_path.iterdir()
    lock.write_text(
        lock.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {os.getppid()}').replace('"start_time"', '"x"')
    )
    assert not second._acquire_platform_lock("slack-token", "t", "Slack token")
    assert second.fatal_error_code == "slack-token_lock"
    assert second.fatal_error_message == (
        f"Slack token is already in use by process {os.getppid()}. Stop that one first."
    )
    lock.write_text("")
    first._release_platform_lock()
    assert second._acquire_platform_lock("slack-token", "t", "Slack token")


async def test_buttons_and_topics_ask_the_runner(caplog: pytest.LogCaptureFixture) -> None:
    adapter = Chat()
    assert adapter._is_sender_authorized("u") is None
    adapter.set_authorization_check(lambda user, chat_type, chat: (user, chat_type, chat) == ("u", "dm", "c"))
    assert [adapter._is_sender_authorized("u", "dm", "c"), adapter._is_sender_authorized("v")] == [True, False]

    adapter.set_topic_recovery_fn(lambda source: "t9" if source.chat_id == "room" else None)
    assert (await answered(adapter, "x")).calls == [("send", "x", "m1", {"thread_id": "t9", "notify": True})]
    adapter.set_topic_recovery_fn(lambda source: 1 / 0)  # type: ignore[arg-type,return-value]
    assert (await answered(adapter, "y")).texts() == ["x", "y"]


def test_a_source_has_texts_for_ids_and_no_blank_topic() -> None:
    source = Chat().build_source(-100, user_id=7, thread_id=0, chat_topic="  ", chat_type="group")  # type: ignore[arg-type]

    assert (source.chat_id, source.user_id, source.thread_id, source.chat_topic) == ("-100", "7", "0", None)
    assert (source.platform, source.profile, source.delivered_via_upstream_relay) == (Platform.SLACK, None, False)


# -- texts ----------------------------------------------------------------------------------------------------------


def test_a_short_text_is_left_alone() -> None:
    assert BasePlatformAdapter.truncate_message("a" * 4096) == ["a" * 4096]


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    parts = split_message("Look:\n```python\n" + "x = 1\n" * 40 + "```\nend", 100)

    assert len(parts) > 2
    assert all(len(part) <= 100 and part.count("```") % 2 == 0 for part in parts)
    assert all(part.startswith("```python\n") for part in parts[1:-1])
    assert [part.rpartition(" ")[2] for part in parts] == [f"({n}/{len(parts)})" for n in range(1, len(parts) + 1)]
    assert sum(part.count("x = 1") for part in parts) == 40


def test_inline_code_is_not_cut() -> None:
    parts = split_message("word " * 12 + "`code that stays in one piece`" + " word" * 20, 100)

    assert sum("`code that stays in one piece`" in part for part in parts) == 1


@pytest.mark.parametrize("length", [len, utf16_len])
def test_no_part_is_too_long_and_nothing_is_lost(length: Callable[[str], int]) -> None:
    source = random.Random(7)
    pieces = ["word", "👍", "`code`", "```py\n", "\n```\n", "\n", " ", "a" * 70, "é"]
    for _ in range(300):
        text = "".join(source.choice(pieces) for _ in range(source.randrange(1, 120)))
        limit = source.choice([10, 64, 80, 200])
        parts = split_message(text, limit, length)
        assert all(length(part) <= limit for part in parts), (text, limit, parts)
        kept = "".join(parts)
        for kind in ("w", "👍", "é", "a"):
            assert kept.count(kind) >= text.count(kind), (text, limit, parts)


def test_code_quotes_and_json_are_blanked_for_who_looks_for_tags_that_were_left() -> None:
    code, tag = "`MEDIA:/a` and\n> MEDIA:/b\nMEDIA:/c", '{"x": "MEDIA:/a", "y": 1}'

    assert BasePlatformAdapter._mask_protected_spans(code) == f"{' ' * 10} and\n{' ' * 10}\nMEDIA:/c"
    assert BasePlatformAdapter._mask_json_string_media(tag) == f'{{"x": {" " * 10}, "y": 1}}'


def test_tags_are_found_and_taken_out() -> None:
    extract = BasePlatformAdapter.extract_media
    assert extract("no tags") == ([], "no tags")
    assert extract("Here:\nMEDIA:/a/b.png.\n[[audio_as_voice]]") == ([("/a/b.png", True)], "Here:")
    assert extract('MEDIA:"/a/with blank.png" `MEDIA:/c.mp3`') == (
        [("/a/with blank.png", False), ("/c.mp3", False)],
        "",
    )
    assert extract("MEDIA:~/x.png")[0] == [(str(Path.home() / "x.png"), False)]
    assert extract("MEDIA:file:///a/b%20c.png")[0] == [("/a/b c.png", False)]


def test_pictures_of_the_web_are_found_in_both_forms() -> None:
    text = 'A <img alt="b&amp;c" src="https://x.org/1.png"> ![](http://y.org/2.png "title") ![local](/tmp/x.png)'

    assert BasePlatformAdapter.extract_images(text) == (
        [("https://x.org/1.png", "b&c"), ("http://y.org/2.png", "")],
        "A   ![local](/tmp/x.png)",
    )
    assert BasePlatformAdapter.extract_images("```\n![a](https://x.org/a)\n```")[0] == []


def test_bare_paths_are_files_that_are_there_and_not_in_code(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("x")
    (tmp_path / "b.py").write_text("x")
    text = (
        f"see {tmp_path}/a.pdf and {tmp_path}/b.py and `{tmp_path}/a.pdf` or https://x.org{tmp_path}/a.pdf, /no/c.pdf"
    )

    found, rest = BasePlatformAdapter.extract_local_files(text)

    assert found == [f"{tmp_path}/a.pdf"]
    assert rest == text.replace(f"see {tmp_path}/a.pdf", "see ")


# -- which files may be sent ----------------------------------------------------------------------------------------


def test_secrets_and_the_agent_s_own_files_are_never_sent(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    denied = [
        ".ssh/config",
        ".aws/credentials",
        "project/.env",
        "server.pem",
        "home/config.yaml",
        "home/state.db",
        "home/x/y.txt",
    ]
    for name in [*denied, "report.pdf", "home/cache/images/a.png"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.pdf").symlink_to(tmp_path / ".ssh" / "config")
    check = BasePlatformAdapter.validate_media_delivery_path

    assert [check(str(tmp_path / name)) for name in [*denied, "link.pdf", "absent.pdf", "."]] == [None] * (
        len(denied) + 3
    )
    assert check("/etc/passwd") is None
    assert check("/proc/self/environ") is None
    assert check(str(tmp_path / "report.pdf")) == str(tmp_path / "report.pdf")
    assert check("~/report.pdf") == str(tmp_path / "report.pdf")
    assert check(str(home / "cache" / "images" / "a.png")) is not None
    assert BasePlatformAdapter.filter_media_delivery_paths(
        [("/etc/passwd", True), (str(tmp_path / "report.pdf"), True)]
    ) == [(str(tmp_path / "report.pdf"), True)]
    assert BasePlatformAdapter.filter_local_delivery_paths(["/etc/passwd"]) == []
    assert caplog.records[0].levelno == logging.WARNING


def test_strict_delivery_asks_for_the_caches_named_folders_or_a_fresh_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MEDIA_DELIVERY_STRICT", "1")
    old, fresh, named = tmp_path / "old.pdf", tmp_path / "fresh.pdf", tmp_path / "named" / "n.pdf"
    named.parent.mkdir()
    for place in (old, fresh, named):
        place.write_text("x")
    for place in (old, named):
        os.utime(place, (1, 1))
    check = BasePlatformAdapter.validate_media_delivery_path

    assert [bool(check(str(p))) for p in (old, fresh, named)] == [False, True, False]
    monkeypatch.setenv("HERMES_MEDIA_ALLOW_DIRS", f"/nowhere{os.pathsep}{named.parent}")
    monkeypatch.setenv("HERMES_MEDIA_TRUST_RECENT_FILES", "0")
    assert [bool(check(str(p))) for p in (old, fresh, named)] == [False, False, True]
