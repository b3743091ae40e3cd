"""Slack: the bundled platform, with Slack's own SDK, at a stand-in of its wire (docs/operator/platforms/slack.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("slack_sdk", reason="the extra `slack` is not installed (requirements/dev.txt has it)")

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType, ProcessingOutcome
from peers.slack import APP_TOKEN, BOT_TOKEN, SlackApi
from platforms.conftest import PNG, WAIT_S, Inbox, Make, at, attempted, do


@pytest.fixture
def api() -> Iterator[SlackApi]:
    with SlackApi() as running:
        yield running


@pytest.fixture
def bot(make: Make, api: SlackApi) -> Any:
    return make("slack", token=BOT_TOKEN, app_token=APP_TOKEN, base_url=api.url)


class SlackBench:
    """Ann in her direct messages."""

    def __init__(self, adapter: Any, api: SlackApi) -> None:
        self.adapter, self.api = adapter, api

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        await do(self.api.say, chat_id, user_id, text)
        await self.taken.next()

    async def leave(self) -> None: ...

    def sent(self) -> list[tuple[str, str]]:
        return [(m["channel"], m["text"]) for m in self.api.messages.values() if m["user"] == "UHERMES"]


class TestAtTheStandIn(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = "DANN", "CTEAM", "UANN"

    @pytest.fixture
    def bench(self, bot: Any, api: SlackApi) -> Bench:
        return SlackBench(bot, api)


async def confirmed(api: SlackApi, envelope: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while envelope not in api.confirmed:
            await do(lambda: None)


def test_messages_say_who_wrote_where_and_whether_it_was_to_the_agent(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.say, "DANN", "UANN", "a &lt; b, see <https://e.org|this> and <@UBOB>")
        dm = await inbox.next()
        assert dm.text == "a < b, see this (https://e.org) and @Bob"
        assert (dm.source.chat_id, dm.source.chat_type, dm.source.thread_id) == ("DANN", "dm", None)
        assert (dm.source.user_id, dm.source.user_name) == ("UANN", "Ann")

        first = await do(api.say, "CTEAM", "UBOB", "<@UHERMES> what now?")  # comes as message and as mention
        await do(api.say, "CTEAM", "UBOB", "not for you")
        await do(api.say, "CTEAM", "UBOB", "changed", subtype="message_changed")
        await do(api.say, "CTEAM", "UBOB", "!status all", thread_ts=first, parent_user_id="UBOB")
        said, other, command = [await inbox.next() for _ in range(3)]
        assert (said.text, said.metadata["addressed"], said.message_id) == ("what now?", True, first)
        assert (said.source.chat_type, said.source.thread_id, said.source.auto_thread_created) == ("group", first, True)
        assert (other.text, other.metadata["addressed"]) == ("not for you", False)
        assert (command.text, command.source.thread_id) == ("/status all", first)
        assert inbox.is_empty

        slash = {"command": "/model", "text": "gpt", "channel_id": "CTEAM", "user_id": "UBOB", "trigger_id": "t1"}
        await do(api.deliver, "slash_commands", slash)
        await do(api.deliver, "slash_commands", {**slash, "command": "/hermes", "text": "how are you?"})
        assert [(await inbox.next()).text, (await inbox.next()).text] == ["/model gpt", "how are you?"]

    at(bot, steps)


def test_a_delivery_is_confirmed_after_it_was_taken_in_and_works_when_it_comes_again(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        taken, failures = bot.handle_message, [OSError("disk full")]

        async def fails_once(event: Any) -> None:
            if failures:
                raise failures.pop()
            await taken(event)

        bot.handle_message = fails_once
        event = {"type": "message", "channel": "DANN", "channel_type": "im", "user": "UANN", "text": "hi", "ts": "1.2"}
        payload = {"event": event}
        lost = await do(api.deliver, "events_api", payload)
        good = await do(api.deliver, "events_api", {"event": {**event, "ts": "1.3"}})
        await confirmed(api, good)
        assert lost not in api.confirmed
        await do(api.deliver, "events_api", payload)  # as Slack does
        again = await do(api.deliver, "events_api", payload)
        await confirmed(api, again)
        assert [(await inbox.next()).message_id for _ in range(2)] == ["1.3", "1.2"]
        assert inbox.is_empty

    at(bot, steps)


def test_files_go_both_ways_and_nobody_but_slack_sees_the_token(bot: Any, api: SlackApi, tmp_path: Path) -> None:
    api.files |= {"F1": PNG, "F2": b"OggS"}
    address = api.url.replace("/api/", "/files/")
    report = tmp_path / "größe.csv"
    report.write_bytes(b"a,b\n")

    async def steps(bot: Any, inbox: Inbox) -> None:
        files = [
            {"name": "pic.png", "mimetype": "image/png", "url_private_download": f"{address}F1"},
            {"name": "x.ogg", "mimetype": "audio/ogg", "subtype": "slack_audio", "url_private": f"{address}F2"},
            {"name": "evil.txt", "mimetype": "text/plain", "url_private": "https://slack.com.evil.example/x"},
        ]
        await do(api.say, "DANN", "UANN", "look", subtype="file_share", files=files)
        event = await inbox.next()
        assert (event.message_type, event.media_types) == (MessageType.PHOTO, ["image/png", "audio/ogg"])
        assert await do(Path(event.media_urls[0]).read_bytes) == PNG
        assert "evil.txt could not be fetched: its host is slack.com.evil.example" in event.text
        first = await do(api.say, "CTEAM", "UBOB", "x")
        await inbox.next()
        for send in (bot.send_document, bot.send_image_file, bot.send_voice, bot.send_video):
            assert (await send("CTEAM", str(report), "the report", metadata={"thread_id": first})).success
        assert (await bot.send_image("CTEAM", "https://e.org/x.png", "a picture")).success
        done = api.sent("files.completeUploadExternal")
        assert (len(done), done[0]["channel_id"], done[0]["thread_ts"]) == (4, "CTEAM", first)
        assert (done[0]["initial_comment"], list(api.files.values())[-1]) == ("the report", b"a,b\n")

    at(bot, steps)


def test_messages_are_edited_deleted_and_go_into_their_thread(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        first = await do(api.say, "CTEAM", "UBOB", "go")
        await inbox.next()
        thread = {"thread_id": first}
        sent = await bot.send("CTEAM", "**one**", first, thread)
        assert (api.messages[sent.message_id]["thread_ts"], api.messages[sent.message_id]["text"]) == (first, "**one**")
        assert (await bot.edit_message("CTEAM", sent.message_id, "two", finalize=True)).success
        assert api.messages[sent.message_id]["text"] == "two"
        assert await bot.delete_message("CTEAM", sent.message_id)
        assert not await bot.delete_message("CTEAM", sent.message_id)
        await bot.send_typing("CTEAM", thread)
        assert api.sent("assistant.threads.setStatus")[0]["status"] == "is thinking…"
        assert (await bot.send_private_notice("CTEAM", "UBOB", "only you")).success
        assert await bot.get_chat_info("CTEAM") == {"name": "team", "type": "group"}

    at(bot, steps)


def test_a_button_is_what_its_presser_would_have_written(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        first = await do(api.say, "CTEAM", "UBOB", "go")
        await inbox.next()
        asked = await bot.send_exec_approval(
            "CTEAM", "rm x", "k", "delete", {"thread_id": first}, allow_permanent=False, approval_id="q1"
        )
        message = api.messages[asked.message_id]
        assert [one["text"]["text"] for one in message["blocks"][1]["elements"]] == ["Once", "This session", "Deny"]
        await do(api.press, asked.message_id, "UBOB", "This session")
        event = await inbox.next()
        assert (event.text, event.source.user_id, event.source.thread_id) == ("/approve session q1", "UBOB", first)
        assert event.metadata["addressed"]
        assert ("<@UBOB>: This session" in api.messages[asked.message_id]["text"], message["blocks"]) == (True, [])

        asked = await bot.send_clarify("DANN", "Which?", ["the first", "x" * 100], "c", "k")
        await do(api.press, asked.message_id, "UANN", "x" * 75)
        assert (await inbox.next()).text == "x" * 100

    at(bot, steps)


def test_buttons_ask_about_a_command_and_only_who_gave_it_answers(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_slash_confirm("CTEAM", "A new session?", "It ends.", "key", "confirm-7", None)
        assert api.messages[asked.message_id]["text"] == "❓ *A new session?*\nIt ends."
        await do(api.press, asked.message_id, "UANN", "Yes")
        await do(api.press, asked.message_id, "UBOB", "Cancel")
        event = await inbox.next()
        assert (event.text, event.source.user_id) == ("/cancel confirm-7", "UBOB")
        asked = await bot.send_clarify("DANN", "Which?", ["approve", "deny"], "c", "k")
        await do(api.press, asked.message_id, "UANN", "approve")
        assert (await inbox.next()).text == "approve", "a choice that reads like a command is none"

    bot.gateway_runner = SimpleNamespace(asker_of=lambda value: "UBOB" if value.endswith(" confirm-7") else None)
    bot.set_authorization_check(lambda user, chat_type, chat: user == "UANN")
    at(bot, steps)


def test_who_may_not_talk_to_the_agent_presses_no_button(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_exec_approval("CTEAM", "rm x", "k", "delete")
        await do(api.press, asked.message_id, "UBOB", "Deny")
        await do(api.press, asked.message_id, "UANN", "Deny")
        assert (await inbox.next()).source.user_id == "UANN"
        assert "UBOB" not in api.messages[asked.message_id]["text"]

    bot.set_authorization_check(lambda user, chat_type, chat: (user, chat_type, chat) == ("UANN", "group", "CTEAM"))
    at(bot, steps)


def test_a_button_of_a_plugin_is_given_to_it(make: Make, bot: Any, api: SlackApi) -> None:
    pressed: list[str] = []

    async def handler(ack: Any, body: Any, action: Any) -> None:
        await ack()
        pressed.append(action["value"])

    make.host.slack_actions.add("weather_more", handler, plugin="weather")  # type: ignore[attr-defined]
    button = {
        "type": "button",
        "action_id": "weather_more",
        "value": "7",
        "text": {"type": "plain_text", "text": "More"},
    }
    message = {"channel": "DANN", "user": "UHERMES", "ts": "1.1", "blocks": [{"type": "actions", "elements": [button]}]}
    api.messages["1.1"] = message

    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.press, "1.1", "UANN", "More")
        await do(api.say, "DANN", "UANN", "next")
        assert (await inbox.next()).text == "next"

    at(bot, steps)
    assert pressed == ["7"]


def test_failures_say_what_to_do_next(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        unknown, archived = await bot.send("CNOWHERE", "x"), await bot.send("CGONE", "x")
        assert (unknown.error_kind, archived.error_kind) == ("not_found", "not_found")
        method = "chat.postMessage"
        api.faults += [(method, "ratelimited"), (method, "not_in_channel"), (method, 502), (method, "token_revoked")]
        flood, kept_out, broken, revoked = [await bot.send("CTEAM", "x") for _ in range(4)]
        assert (flood.error_kind, flood.retry_after) == ("rate_limited", 7)
        assert (kept_out.error_kind, revoked.retryable) == ("forbidden", True)
        assert (broken.retryable, bot._is_timeout_error(broken.error)) == (False, True)
        assert len(api.sent("chat.postMessage")) == 2  # nothing was sent again by itself
        assert (await bot.send("CTEAM", "x" * 12_001)).error_kind == "too_long"

    at(bot, steps)


def test_a_socket_that_slack_ends_or_that_breaks_is_opened_anew(bot: Any, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.emit, {"type": "disconnect", "reason": "refresh_requested"})
        async with asyncio.timeout(WAIT_S):
            while api.opened < 2:
                await do(lambda: None)
        await do(api.say, "DANN", "UANN", "after the change")
        assert (await inbox.next()).text == "after the change"

    at(bot, steps)


def test_reactions_show_the_work_where_they_are_wanted(make: Make, api: SlackApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.say, "DANN", "UANN", "hello")
        event = await inbox.next()
        await bot.on_processing_start(event)
        await bot.on_processing_complete(event, ProcessingOutcome.SUCCESS)

    at(make("slack", token=BOT_TOKEN, app_token=APP_TOKEN, base_url=api.url, reactions=True), steps)

    assert [p["name"] for p in api.sent("reactions.add", "reactions.remove")] == ["eyes", "eyes", "white_check_mark"]


@pytest.mark.parametrize("wrong", [{"token": "xoxb-wrong"}, {"app_token": "xapp-wrong"}])
async def test_a_wrong_token_ends_it_for_good_and_is_not_shown(
    make: Make, api: SlackApi, wrong: dict[str, str]
) -> None:
    bot = make("slack", **{"token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": api.url, **wrong})

    assert await bot.connect() is False

    assert (bot.fatal_error_code, bot.fatal_error_retryable, bot.fatal_error_message) == (
        "bad_token", False, "Slack: invalid_auth",
    )  # fmt: skip


async def test_a_slack_that_cannot_be_reached_is_tried_again(make: Make) -> None:
    bot = make("slack", token=BOT_TOKEN, app_token=APP_TOKEN, base_url="http://127.0.0.1:1/api/")

    assert await bot.connect() is False
    assert (bot.fatal_error_code, bot.fatal_error_retryable) == ("not_connected", True)


def test_setup_tries_both_tokens(make: Make, bot: Any, api: SlackApi) -> None:
    assert attempted(make, bot) == ""
    for wrong in ({"token": "xoxb-wrong"}, {"app_token": "xapp-wrong"}):
        other = make("slack", **{"token": BOT_TOKEN, "app_token": APP_TOKEN, "base_url": api.url, **wrong})
        assert "invalid_auth" in attempted(make, other)
