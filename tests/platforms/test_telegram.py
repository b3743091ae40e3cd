"""Telegram: the bundled platform at a stand-in that a well-known SDK takes for the real thing, too."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType, ProcessingOutcome
from peers.telegram import ANN, BOB, TOKEN, Bad, BotApi, entities_problem
from platforms.conftest import PNG, WAIT_S, Inbox, Make, at, attempted


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as running:
        yield running


@pytest.fixture
def bot(make: Make, api: BotApi) -> Any:
    return make("telegram", token=TOKEN, base_url=api.url, poll_timeout=5)


class TelegramBench:
    """Ann in her chat."""

    def __init__(self, adapter: Any, api: BotApi) -> None:
        self.adapter, self.api = adapter, api

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        self.api.say(int(chat_id), ANN, text)
        await self.taken.next()

    async def leave(self) -> None: ...

    def sent(self) -> list[tuple[str, str]]:
        mine = [m for m in self.api.messages.values() if m["from"]["id"] == 4711]
        return [(str(m["chat"]["id"]), m["text"]) for m in mine if "text" in m]


class TestAtTheStandIn(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = "100", "200", "100"

    @pytest.fixture
    def bench(self, bot: Any, api: BotApi) -> Bench:
        return TelegramBench(bot, api)


async def test_a_well_known_sdk_takes_the_stand_in_for_telegram(api: BotApi) -> None:
    telegram = pytest.importorskip("telegram", reason="python-telegram-bot is not installed (requirements/dev.txt)")

    async with telegram.Bot(TOKEN, base_url=f"{api.url}/bot", base_file_url=f"{api.url}/file/bot") as bot:
        assert bot.username == "hermes_bot"
        api.files["f1"] = PNG
        api.say(
            -500,
            ANN,
            "@hermes_bot hello",
            photo=[{"file_id": "f1", "file_unique_id": "f1", "width": 1, "height": 1}],
        )
        (update,) = await bot.get_updates(timeout=1)
        assert (update.message.text, update.message.from_user.first_name) == ("@hermes_bot hello", "Ann")
        assert update.message.parse_entities() == {update.message.entities[0]: "@hermes_bot"}
        assert bytes(await (await bot.get_file("f1")).download_as_bytearray()) == PNG
        sent = await bot.send_message(100, r"*bold* 1\.", parse_mode="MarkdownV2", reply_to_message_id=None)
        assert sent.text == "bold 1."
        with pytest.raises(telegram.error.BadRequest, match="reserved"):
            await bot.send_message(100, "1.", parse_mode="MarkdownV2")
        assert (await bot.send_document(100, PNG, filename="x.png")).document.file_id == "f"
        buttons = telegram.InlineKeyboardMarkup([[telegram.InlineKeyboardButton("Yes", callback_data="y")]])
        asked = await bot.send_message(100, "?", reply_markup=buttons)
        api.press(asked.message_id, ANN, "Yes")
        (update,) = await bot.get_updates(offset=update.update_id + 1, timeout=1)
        assert (update.callback_query.data, await update.callback_query.answer()) == ("y", True)


def test_messages_say_who_wrote_where_and_whether_it_was_to_the_bot(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        api.say(100, ANN, "hello")
        dm = await inbox.next()
        assert (dm.text, dm.source.chat_id, dm.source.chat_type) == ("hello", "100", "dm")
        assert (dm.source.user_id, dm.source.user_name, dm.timestamp.tzinfo is not None) == ("100", "Ann", True)

        api.say(-500, BOB, "/stop@other_bot")
        api.say(-500, BOB, "😀 hey @Hermes_bot what now?")
        api.say(-500, BOB, "not for you")
        api.say(-500, BOB, "/status@hermes_bot all")
        said, other, command = [await inbox.next() for _ in range(3)]
        assert (said.text, said.metadata["addressed"]) == ("😀 hey  what now?", True)
        assert (said.source.chat_id, said.source.chat_type, said.source.chat_name) == ("-500", "group", "Team")
        assert (other.text, other.metadata["addressed"]) == ("not for you", False)
        assert (command.text, command.message_type, command.get_command()) == (
            "/status all",
            MessageType.COMMAND,
            "status",
        )

        answer = await bot.send("-500", "an answer")
        api.say(-600, BOB, "in a topic", message_thread_id=7, is_topic_message=True)
        api.say(-500, BOB, "why?", reply_to_message=api.messages[int(answer.message_id)])
        topic, reply = await inbox.next(), await inbox.next()
        assert (topic.source.thread_id, topic.source.chat_id) == ("7", "-600")
        assert (reply.reply_to_is_own_message, reply.reply_to_text) == (True, "an answer")
        assert reply.reply_to_message_id == answer.message_id

    at(bot, steps)


async def test_an_update_is_confirmed_after_it_was_taken_in_and_comes_again_otherwise(bot: Any, api: BotApi) -> None:
    lost = asyncio.Event()
    bot.set_fatal_error_handler(lambda adapter: lost.set())

    async def fails(event: Any) -> None:
        raise OSError("disk full")

    bot.handle_message = fails
    api.say(100, ANN, "important")
    assert await bot.connect()
    await asyncio.wait_for(lost.wait(), WAIT_S)
    assert bot.fatal_error_retryable
    await bot.disconnect()
    assert set(api.polls) == {None}

    inbox = Inbox(bot)
    assert await bot.connect(is_reconnect=True)
    assert (await inbox.next()).text == "important"
    await bot.disconnect()


def test_files_come_with_their_messages_and_an_album_is_one(bot: Any, api: BotApi) -> None:
    def photo(name: str) -> list[dict[str, Any]]:
        api.files[name] = PNG + name.encode()
        return [{"file_id": "small"}, {"file_id": name}]

    async def steps(bot: Any, inbox: Inbox) -> None:
        api.files |= {"v": b"OggS", "d": b"%PDF-1.4"}
        api.say(100, ANN, photo=photo("a"), media_group_id="1", caption="two pictures")
        api.say(100, ANN, photo=photo("b"), media_group_id="1")
        api.say(100, ANN, voice={"file_id": "v", "mime_type": "audio/ogg"})
        api.say(100, ANN, document={"file_id": "d", "file_name": "../größe.pdf", "mime_type": "application/pdf"})
        api.say(100, ANN, document={"file_id": "huge", "file_name": "huge.iso"})
        api.say(100, ANN, location={"latitude": 1.5, "longitude": 2.5})
        album, voice, document, huge, place = [await inbox.next() for _ in range(5)]

        assert (album.text, album.message_type, album.media_types) == (
            "two pictures",
            MessageType.PHOTO,
            ["image/jpeg"] * 2,
        )
        assert list(map(Path.read_bytes, map(Path, album.media_urls))) == [PNG + b"a", PNG + b"b"]
        assert (voice.message_type, Path(voice.media_urls[0]).suffix) == (MessageType.VOICE, ".ogg")
        assert document.media_urls[0].endswith("größe.pdf")
        assert (huge.text.startswith("[The file huge.iso could not be fetched"), huge.media_urls) == (True, [])
        assert (place.text, place.message_type) == ("[Location: 1.5, 2.5]", MessageType.LOCATION)

    at(bot, steps)


WRITTEN = """# Title 1.
**bold _and_ more** `a*b` [x.y](https://e.org/(a)?b=1_2) ~~no~~ 5*3*2 snake_case_name
- item!
> quote
```python
print('`')
```"""
SENT = r"""*Title 1\.*
*bold _and_ more* `a*b` [x\.y](https://e.org/(a\)?b=1_2) ~no~ 5\*3\*2 snake\_case\_name
• item\!
>quote
```python
print('\`')
```"""
PIECES = (
    "**",
    "*",
    "_",
    "__",
    "`",
    "```",
    "[",
    "](",
    ")",
    "~~",
    "#",
    "- ",
    "> ",
    "\\",
    "|",
    "a",
    "b c",
    "\n",
    "!",
    ".",
)


async def test_markdown_is_telegram_s_and_hardly_anything_that_a_model_writes_is_refused(bot: Any, api: BotApi) -> None:
    made = random.Random(1)
    wild = ["".join(made.choices(PIECES, k=12)) for _ in range(3000)]

    async def run() -> Any:
        bot.open()
        result = await bot.send("100", WRITTEN)
        await bot.close()
        return result

    assert (await run()).success
    (call,) = api.sent("sendMessage")
    assert (call["text"], call["parse_mode"]) == (SENT, "MarkdownV2")
    refused = [piece for piece in wild if entities_problem(bot.format_message(piece))]
    assert len(refused) < 30, refused[:5]  # `send` makes plain text of them


async def test_what_telegram_cannot_parse_goes_out_as_plain_text(bot: Any, api: BotApi) -> None:
    async def run() -> Any:
        bot.open()
        api.faults.append(("sendMessage", Bad(400, "Bad Request: can't parse entities: at byte offset 3")))
        result = await bot.send("100", "**bold** 1.")
        await bot.close()
        return result

    assert (await run()).success
    (call,) = api.sent("sendMessage")
    assert (call["text"], "parse_mode" in call) == ("bold 1.", False)


async def test_length_is_counted_in_utf_16(bot: Any, api: BotApi) -> None:
    async def run() -> list[Any]:
        bot.open()
        parts = bot.truncate_message("😀" * 3000, bot.MAX_MESSAGE_LENGTH, bot.message_len_fn)
        results = [await bot.send("100", part) for part in parts]
        results.append(await bot.send("100", "😀" * 2049))
        await bot.close()
        return results

    *good, bad = await run()

    assert [result.success for result in good] == [True, True]
    assert (bad.success, bad.error_kind) == (False, "too_long")


async def test_failures_say_what_to_do_next(bot: Any, api: BotApi) -> None:
    api.chats[300] = {"id": 300, "type": "private", "blocked": True}
    api.chats[-1] = {"id": -1, "type": "group", "moved": -500}

    async def run() -> dict[str, Any]:
        bot.open()
        found = {"unknown": await bot.send("999", "x"), "blocked": await bot.send("300", "x")}
        api.faults += [
            ("sendMessage", Bad(429, "Too Many Requests: retry after 7", retry_after=7)),
            ("sendMessage", 502),
        ]
        found["flood"] = await bot.send("100", "x")
        found["gateway"] = await bot.send("100", "x")
        found["moved"] = await bot.send("-1", "x")
        found["answered is gone"] = await bot.send("100", "x", reply_to="1")
        await bot.close()
        return found

    found = await run()

    assert (found["unknown"].error_kind, found["blocked"].error_kind) == ("not_found", "forbidden")
    assert (found["flood"].error_kind, found["flood"].retry_after, found["flood"].retryable) == (
        "rate_limited",
        7,
        False,
    )
    assert (found["gateway"].retryable, bot._is_timeout_error(found["gateway"].error)) == (False, True)
    assert found["moved"].success and found["answered is gone"].success


def test_messages_are_edited_deleted_replied_to_and_go_into_their_thread(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = api.say(-600, BOB, "go", message_thread_id=7, is_topic_message=True)
        await inbox.next()
        sent = await bot.send("-600", "one", reply_to=str(asked), metadata={"thread_id": "7"})
        assert (await bot.edit_message("-600", sent.message_id, "one **two**", finalize=True)).success
        assert (await bot.edit_message("-600", sent.message_id, "one **two**", finalize=True)).success  # not modified
        assert api.messages[int(sent.message_id)]["text"] == "one two"
        await bot.send_typing("-600", {"thread_id": "7"})
        assert await bot.delete_message("-600", sent.message_id)
        assert not await bot.delete_message("-600", sent.message_id)
        assert (await bot.send("-600", "general", metadata={"thread_id": "1"})).success
        assert await bot.get_chat_info("-600") == {"name": "Forum", "type": "group"}

    at(bot, steps)

    first, general = api.sent("sendMessage")
    assert (first["message_thread_id"], first["reply_parameters"]["allow_sending_without_reply"]) == (7, True)
    assert "message_thread_id" not in general
    assert api.sent("sendChatAction")[0]["message_thread_id"] == 7


async def test_files_are_sent_as_what_they_are(bot: Any, api: BotApi, tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "voice.ogg", "song.mp3", "film.mp4", "report.pdf"):
        (tmp_path / name).write_bytes(PNG)

    async def run() -> list[Any]:
        bot.open()
        results = [
            await bot.send_image_file("100", str(tmp_path / "a.png"), "a caption"),
            await bot.send_voice("100", str(tmp_path / "voice.ogg")),
            await bot.send_voice("100", str(tmp_path / "song.mp3")),
            await bot.send_video("100", str(tmp_path / "film.mp4")),
            await bot.send_document("100", str(tmp_path / "report.pdf"), "c" * 2000),
            await bot.send_image("100", "https://example.org/x.png", "web"),
        ]
        await bot.send_multiple_images("100", [(f"file://{tmp_path}/a.png", "A"), (f"file://{tmp_path}/b.png", "")])
        api.faults.append(("sendPhoto", Bad(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")))
        results.append(await bot.send_image_file("100", str(tmp_path / "b.png")))
        api.faults.append(("sendPhoto", Bad(400, "Bad Request: failed to get HTTP URL content")))
        results.append(await bot.send_image("100", "https://example.org/gone.png"))
        await bot.close()
        return results

    assert all(result.success and result.message_id for result in await run())
    sent = "Photo Voice Audio Video Document Message Photo MediaGroup Document Message"
    assert [name for name, _ in api.calls] == [f"send{what}" for what in sent.split()]
    assert api.calls[0][1]["photo"] == ("a.png", PNG)
    assert (api.calls[5][1]["text"], api.calls[-1][1]["text"]) == ("c" * 2000, "https://example\\.org/gone\\.png")
    assert [item["media"] for item in api.sent("sendMediaGroup")[0]["media"]] == ["attach://p0", "attach://p1"]


async def test_an_album_that_nobody_took_is_told_and_one_that_may_have_arrived_is_not_sent_again(
    bot: Any, api: BotApi, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    album = [(f"file://{tmp_path}/a.png", "A")] * 2

    async def run() -> list[Any]:
        bot.open()
        busy = Bad(429, "Too Many Requests: retry after 7", retry_after=7)
        api.faults += [("sendMediaGroup", busy), ("sendMediaGroup", 502)]
        results = [await bot.send_multiple_images("100", album) for _ in range(3)]
        await bot.close()
        return results

    busy, lost, fine = await run()
    assert (busy.success, busy.error_kind, busy.retry_after) == (False, "rate_limited", 7)
    assert not lost.success and "may have arrived" in lost.error
    assert fine.success
    assert {name for name, _ in api.calls} == {"sendMediaGroup"}


def test_a_button_is_what_its_presser_would_have_written(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_exec_approval(
            "-500", "rm -r `x`", "key", description="delete a folder", allow_permanent=False, approval_id="q1"
        )
        labels = [row[0]["text"] for row in api.messages[int(asked.message_id)]["reply_markup"]["inline_keyboard"]]
        assert labels == ["✅ Once", "🕐 This session", "⛔ Deny"]
        api.press(int(asked.message_id), BOB, "🕐 This session")
        event = await inbox.next()
        assert (event.text, event.get_command(), event.get_command_args()) == (
            "/approve session q1",
            "approve",
            "session q1",
        )
        assert (event.source.user_id, event.source.chat_id, event.metadata["addressed"]) == ("200", "-500", True)
        assert "Bob: 🕐 This session" in api.messages[int(asked.message_id)]["text"]
        assert "reply_markup" not in api.messages[int(asked.message_id)]

        asked = await bot.send_clarify("-500", "Which one?", ["the first", "/deny"], "c1", "key")
        api.press(int(asked.message_id), BOB, "the first")
        assert (await inbox.next()).text == "the first"
        assert len(api.sent("answerCallbackQuery")) == 2

    at(bot, steps)


def test_buttons_ask_about_a_command_and_only_who_gave_it_answers(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_slash_confirm("-500", "A new session?", "It ends.", "key", "confirm-7", None)
        message = api.messages[int(asked.message_id)]
        assert (message["text"], len(message["reply_markup"]["inline_keyboard"])) == ("❓ A new session?\nIt ends.", 3)
        api.press(int(asked.message_id), ANN, "Yes")
        api.press(int(asked.message_id), BOB, "Always")
        event = await inbox.next()
        assert (event.text, event.source.user_id) == ("/always confirm-7", "200")
        assert [one.get("text") for one in api.sent("answerCallbackQuery")] == ["This is not for you.", None]

    bot.gateway_runner = SimpleNamespace(asker_of=lambda value: "200" if value.endswith(" confirm-7") else None)
    bot.set_authorization_check(lambda user, chat_type, chat: user == "100")  # who may approve is another matter
    at(bot, steps)


def test_who_may_not_talk_to_the_agent_presses_no_button(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_exec_approval("-500", "rm x", "key", description="delete")
        api.press(int(asked.message_id), BOB, "⛔ Deny")
        api.press(int(asked.message_id), ANN, "⛔ Deny")
        assert (await inbox.next()).source.user_id == "100"
        assert "Bob" not in api.messages[int(asked.message_id)]["text"]

    bot.set_authorization_check(lambda user, chat_type, chat: (user, chat_type, chat) == ("100", "group", "-500"))
    at(bot, steps)


def test_reactions_show_the_work_where_they_are_wanted(make: Make, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        api.say(100, ANN, "hello")
        event = await inbox.next()
        await bot.on_processing_start(event)
        await bot.on_processing_complete(event, ProcessingOutcome.SUCCESS)

    at(make("telegram", token=TOKEN, base_url=api.url, reactions=True), steps)

    assert [call["reaction"][0]["emoji"] for call in api.sent("setMessageReaction")] == ["👀", "👍"]


async def test_a_token_that_telegram_does_not_know_ends_it_and_is_in_no_log(
    make: Make, api: BotApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpx")
    bot = make("telegram", token="1:a-wrong-token", base_url=api.url)

    assert await bot.connect() is False

    assert (bot.fatal_error_code, bot.fatal_error_retryable) == ("bad_token", False)
    own = [r.getMessage() for r in caplog.records if r.name.startswith(("httpx", "hermes"))]
    assert any("***" in text for text in own)
    assert not any("a-wrong-token" in text for text in own)


def test_the_gateway_s_commands_are_in_the_menu(bot: Any, api: BotApi) -> None:
    class Runner:
        def menu(self) -> list[tuple[str, str]]:
            return [("status", "what is going on")]

    async def steps(bot: Any, inbox: Inbox) -> None: ...

    bot.gateway_runner = Runner()
    at(bot, steps)

    assert api.sent("setMyCommands") == [{"commands": [{"command": "status", "description": "what is going on"}]}]


async def test_somebody_else_who_polls_is_told_to_the_runner(bot: Any, api: BotApi) -> None:
    async def run() -> tuple[Any, ...]:
        lost = asyncio.Event()
        bot.set_fatal_error_handler(lambda adapter: lost.set())
        api.faults.append(("getUpdates", Bad(409, "Conflict: terminated by other getUpdates request")))
        assert await bot.connect()
        await asyncio.wait_for(lost.wait(), WAIT_S)
        await bot.disconnect()
        return bot.fatal_error_code, bot.fatal_error_retryable

    assert await run() == ("conflict", True)


def test_a_gap_in_the_network_is_bridged(bot: Any, api: BotApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        api.say(100, ANN, "after the gap")
        assert (await inbox.next()).text == "after the gap"

    api.faults += [("getUpdates", 502), ("getUpdates", Bad(429, "Too Many Requests", retry_after=0))]
    at(bot, steps)


def test_setup_tries_the_token_without_taking_a_message(make: Make, bot: Any, api: BotApi) -> None:
    assert attempted(make, bot) == ""
    assert "Unauthorized" in attempted(make, make("telegram", token="1:wrong", base_url=api.url))
