"""Discord: the bundled platform, with discord.py, at a stand-in of its wire (docs/operator/platforms/discord.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("discord", reason="the extra `discord` is not installed (requirements/dev.txt has it)")

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType, ProcessingOutcome
from peers.discord import ANN, BOB, DIRECT, GUILD, ME, TEAM, TOKEN, DiscordApi
from platforms.conftest import PNG, WAIT_S, Inbox, Make, at, attempted, do


@pytest.fixture
def api() -> Iterator[DiscordApi]:
    with DiscordApi() as running:
        yield running


@pytest.fixture
def bot(make: Make, api: DiscordApi) -> Any:
    return make("discord", token=TOKEN, base_url=api.url)


class DiscordBench:
    """Ann in her direct messages."""

    def __init__(self, adapter: Any, api: DiscordApi) -> None:
        self.adapter, self.api = adapter, api

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        await do(self.api.say, chat_id, int(user_id), text)
        await self.taken.next()

    async def leave(self) -> None: ...

    def sent(self) -> list[tuple[str, str]]:
        return [(m["channel_id"], m["content"]) for m in self.api.said()]


class TestAtTheStandIn(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = str(DIRECT), str(TEAM), str(ANN)

    @pytest.fixture
    def bench(self, bot: Any, api: DiscordApi) -> Bench:
        return DiscordBench(bot, api)


def test_messages_say_who_wrote_where_and_whether_it_was_to_the_agent(make: Make, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.say, DIRECT, ANN, f"ask <@{BOB}> <:cat:12345>")
        dm = await inbox.next()
        assert (dm.text, dm.source.chat_id, dm.source.chat_type) == ("ask @Bob :cat:", str(DIRECT), "dm")
        assert (dm.source.user_id, dm.source.user_name, dm.source.guild_id) == (str(ANN), "Ann", None)

        first = await do(api.say, TEAM, BOB, f"<@{ME}> what now?")
        await do(api.say, TEAM, BOB, "not for you")
        await do(api.say, TEAM, BOB, "joined", type=7)
        own = await bot.send(str(TEAM), "mine")
        await do(api.say, TEAM, BOB, "why?", type=19, message_reference={"message_id": own.message_id})
        said, other, answer = [await inbox.next() for _ in range(3)]
        assert (said.text, said.metadata["addressed"], said.message_id) == ("what now?", True, first)
        assert (said.source.chat_type, said.source.guild_id, said.source.chat_topic) == ("group", str(GUILD), "work")
        assert (other.text, other.metadata["addressed"]) == ("not for you", False)
        assert (answer.reply_to_text, answer.reply_to_is_own_message) == ("mine", True)
        assert inbox.is_empty

    at(make("discord", token=TOKEN, base_url=api.url, auto_thread=False), steps)


def test_an_answer_in_a_channel_begins_a_thread_in_which_it_is_meant(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        first = await do(api.say, TEAM, BOB, f"<@{ME}> what now?")
        said = await inbox.next()
        assert (said.source.chat_id, said.source.chat_type, said.source.thread_id) == (first, "thread", first)
        assert (said.source.parent_chat_id, said.source.auto_thread_created) == (str(TEAM), True)
        assert (await bot.send(first, "this", said.message_id, {"thread_id": first})).success
        assert api.said()[-1]["channel_id"] == first
        assert api.said()[-1]["message_reference"] is None  # its first message is not in the thread

        await do(api.say, first, ANN, "and then?")
        more = await inbox.next()
        assert (more.text, more.metadata["addressed"], more.source.thread_id) == ("and then?", True, first)
        handed = await bot.create_handoff_thread(str(TEAM), "A task")
        assert (await bot.get_chat_info(handed)) == {"name": "A task", "type": "thread"}

    at(bot, steps)


def test_a_stranger_opens_no_thread(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.say, TEAM, BOB, f"<@{ME}> hello")
        assert (await inbox.next()).source.chat_id == str(TEAM)

    bot.set_authorization_check(lambda user, chat_type, chat: user == str(ANN))
    at(bot, steps)


def test_what_is_said_while_it_is_away_is_heard_when_it_comes_back(make: Make, api: DiscordApi) -> None:
    said = [f"are you there? {number}" for number in range(230)]  # the service gives a hundred at once

    async def before(bot: Any, inbox: Inbox) -> None:
        await do(api.say, DIRECT, ANN, "before")
        await inbox.next()

    async def after(bot: Any, inbox: Inbox) -> None:
        await do(api.say, DIRECT, ANN, "now")
        assert [(await inbox.next()).text for _ in range(len(said) + 1)] == [*said, "now"]
        assert inbox.is_empty

    at(make("discord", token=TOKEN, base_url=api.url), before)
    for text in said:
        api.say(DIRECT, ANN, text, deliver=False)
    at(make("discord", token=TOKEN, base_url=api.url), after)


def test_a_message_that_could_not_be_stored_is_fetched_after_the_reconnect(make: Make, api: DiscordApi) -> None:
    async def fails(bot: Any, inbox: Inbox) -> None:
        await do(api.say, DIRECT, ANN, "kept")
        await inbox.next()
        told = asyncio.Event()

        async def full(event: Any) -> None:
            raise OSError("disk full")

        async def note(adapter: Any) -> None:
            told.set()

        bot.handle_message = full
        bot.set_fatal_error_handler(note)
        await do(api.say, DIRECT, ANN, "do not lose me")
        await told.wait()
        assert bot.fatal_error_retryable

    async def again(bot: Any, inbox: Inbox) -> None:
        assert (await inbox.next()).text == "do not lose me"

    at(make("discord", token=TOKEN, base_url=api.url), fails)
    at(make("discord", token=TOKEN, base_url=api.url), again)


def test_more_messages_than_may_wait_are_fetched_once_the_others_are_taken_in(make: Make, api: DiscordApi) -> None:
    said = [f"word {number}" for number in range(300)]

    async def steps(bot: Any, inbox: Inbox) -> None:
        free, taken = asyncio.Event(), list[str]()
        all_of_them = asyncio.Event()

        async def waits(event: Any) -> None:
            await free.wait()
            taken.append(event.text)
            if len(taken) >= len(said):
                all_of_them.set()

        bot.handle_message = waits
        await do(lambda: [api.say(DIRECT, ANN, text) for text in said])
        await until(lambda: bot._behind)
        assert bot._arrived.qsize() <= 256
        free.set()
        await all_of_them.wait()
        assert taken == said

    at(make("discord", token=TOKEN, base_url=api.url), steps)


def test_a_connection_that_breaks_is_resumed_and_one_that_ended_begun_anew(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.drop)
        await do(api.say, DIRECT, ANN, "while it was away")
        assert (await inbox.next()).text == "while it was away"
        assert (api.sessions, api.resumes) == (1, 1)
        await do(api.emit, {"op": 7, "d": None})  # please connect elsewhere
        await do(api.say, DIRECT, ANN, "after the change")
        assert (await inbox.next()).text == "after the change"

    at(bot, steps)


def test_a_session_that_cannot_be_resumed_is_begun_anew_and_misses_nothing(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        await do(api.say, DIRECT, ANN, "before")
        assert (await inbox.next()).text == "before"
        await do(api.say, DIRECT, ANN, "nobody delivered this", deliver=False)
        await do(api.emit, {"op": 9, "d": False})
        await until(lambda: api.sessions == 2)
        await do(api.say, DIRECT, ANN, "after")
        assert [(await inbox.next()).text for _ in range(2)] == ["nobody delivered this", "after"]
        assert inbox.is_empty

    at(bot, steps)


def test_files_go_both_ways(bot: Any, api: DiscordApi, tmp_path: Path) -> None:
    api.files |= {"pic.png": PNG, "voice.ogg": b"OggS"}
    report = tmp_path / "report.csv"
    report.write_bytes(b"a,b\n")

    def attached(name: str, mime: str, **more: Any) -> dict[str, Any]:
        address = api.link(name)
        return {
            "id": "1",
            "filename": name,
            "content_type": mime,
            "size": 9,
            "url": address,
            "proxy_url": address,
            **more,
        }

    async def steps(bot: Any, inbox: Inbox) -> None:
        files = [attached("pic.png", "image/png"), attached("gone.txt", "text/plain")]
        await do(api.say, DIRECT, ANN, "look", attachments=files)
        event = await inbox.next()
        assert (event.message_type, event.media_types) == (MessageType.PHOTO, ["image/png"])
        assert await do(Path(event.media_urls[0]).read_bytes) == PNG
        assert "[The file gone.txt could not be fetched: " in event.text
        voice = attached("voice.ogg", "audio/ogg", duration_secs=1.0, waveform="AAAA")
        await do(api.say, DIRECT, ANN, "", attachments=[voice], flags=1 << 13)
        assert (await inbox.next()).message_type is MessageType.VOICE

        for send in (bot.send_document, bot.send_image_file, bot.send_voice, bot.send_video):
            assert (await send(str(DIRECT), str(report), "the report")).success
        sent = api.said()
        assert [(m["content"], m["attachments"][0]["filename"]) for m in sent] == [("the report", "report.csv")] * 4
        assert api.files["report.csv"] == b"a,b\n"
        gone = await bot.send_document(str(DIRECT), "/nowhere/x")
        assert gone.error == "cannot read the file: No such file or directory"

    at(bot, steps)


def test_messages_are_sent_once_edited_deleted_and_answer_their_question(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await do(api.say, TEAM, BOB, "go")
        await inbox.next()
        table = "| a | b |\n|---|---|\n| 1 | 2 |"
        sent = await bot.send(str(TEAM), f"@everyone **one**\n{table}", asked, {"delivery_key": "k1"})
        message = api.messages[sent.message_id]
        assert (message["content"], str(message["message_reference"]["message_id"])) == (
            "@everyone **one**\n• a: 1; b: 2",
            asked,
        )
        again = await bot.send(str(TEAM), "(repeated) one", asked, {"delivery_key": "k1"})
        assert (again.message_id, len(api.said())) == (sent.message_id, 1)
        assert (await bot.edit_message(str(TEAM), sent.message_id, "two", finalize=True)).success
        assert api.messages[sent.message_id]["content"] == "two"
        assert await bot.delete_message(str(TEAM), sent.message_id)
        assert not await bot.delete_message(str(TEAM), sent.message_id)
        await bot.send_typing(str(TEAM))
        await bot.send_typing(str(TEAM))
        assert api.typing == [str(TEAM)]
        assert await bot.get_chat_info(str(TEAM)) == {"name": "team", "type": "group"}
        assert await bot.get_chat_info(str(DIRECT)) == {"name": "Ann", "type": "dm"}

    at(bot, steps)


def test_a_button_is_what_its_presser_would_have_written(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_exec_approval(str(TEAM), "rm x", "k", "delete", allow_permanent=False, approval_id="q1")
        buttons = [one["label"] for row in api.messages[asked.message_id]["components"] for one in row["components"]]
        assert buttons == ["Once", "This session", "Deny"]
        await do(api.press, asked.message_id, BOB, "This session")
        event = await inbox.next()
        assert (event.text, event.source.user_id, event.source.chat_id) == ("/approve session q1", str(BOB), str(TEAM))
        await until(lambda: len(api.answers) == 1)
        assert (api.answers[0]["type"], api.answers[0]["data"]["components"]) == (7, [])
        assert api.answers[0]["data"]["content"].endswith("\n\nBob: This session")

        for choices, label, text in (
            (["the first", "the second"], "the second", "the second"),
            (["x", "y" * 81], "2", "2"),
        ):
            asked = await bot.send_clarify(str(DIRECT), "Which?", choices, "c", "k")
            await do(api.press, asked.message_id, ANN, label)
            assert (await inbox.next()).text == text
        many = await bot.send_clarify(str(DIRECT), "Which?", [str(n) for n in range(26)], "c", "k")
        assert (many.success, api.messages[many.message_id]["components"]) == (True, [])

    at(bot, steps)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await do(lambda: None)


def test_buttons_ask_about_a_command_and_only_who_gave_it_answers(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_slash_confirm(str(TEAM), "A new session?", "It ends.", "key", "confirm-7", None)
        assert api.messages[asked.message_id]["content"] == "❓ **A new session?**\nIt ends."
        await do(api.press, asked.message_id, ANN, "Yes")
        await do(api.press, asked.message_id, BOB, "Yes")
        event = await inbox.next()
        assert (event.text, event.source.user_id) == ("/approve confirm-7", str(BOB))

    bot.gateway_runner = SimpleNamespace(asker_of=lambda value: str(BOB) if value.endswith(" confirm-7") else None)
    bot.set_authorization_check(lambda user, chat_type, chat: user == str(ANN))
    at(bot, steps)


def test_who_may_not_talk_to_the_agent_presses_no_button_and_gives_no_command(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        asked = await bot.send_exec_approval(str(TEAM), "rm x", "k", "delete")
        await do(api.press, asked.message_id, BOB, "Once")
        await do(api.command, TEAM, BOB, "stop")
        await do(api.press, asked.message_id, ANN, "Deny")
        assert (await inbox.next()).source.user_id == str(ANN)
        assert [one["data"]["content"] for one in api.answers[:2]] == ["This is not for you."] * 2

    bot.set_authorization_check(lambda user, chat_type, chat: user == str(ANN))
    at(bot, steps)


def test_the_menu_has_the_commands_that_need_nothing_more(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        assert [(one["name"], one["description"]) for one in api.commands] == [
            ("status", "What it does"),
            ("new", "new"),
        ]
        await do(api.command, TEAM, BOB, "status", "all")
        await do(api.command, DIRECT, ANN, "new")
        first, second = await inbox.next(), await inbox.next()
        assert (first.text, first.source.chat_type, second.text, second.source.chat_type) == (
            "/status all",
            "group",
            "/new",
            "dm",
        )
        await until(lambda: len(api.answers) == 2)
        assert api.answers[0] == {"type": 4, "data": {**api.answers[0]["data"], "content": "/status all", "flags": 64}}

    bot.gateway_runner = SimpleNamespace(menu=lambda: [("status", "What it does"), ("new", ""), ("Übel", "no name")])
    at(bot, steps)


def test_failures_say_what_to_do_next(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        unknown, odd = await bot.send("1", "x"), await bot.send("team", "x")
        assert (unknown.error_kind, odd.error_kind) == ("not_found", "not_found")
        long, empty = await bot.send(str(TEAM), "x" * 2001), await bot.send(str(TEAM), " ")
        assert (long.error_kind, empty.success) == ("too_long", True)
        post = "POST channels/101/messages"
        api.faults.append((post, {"message": "slow", "retry_after": 0.01}))
        assert (await bot.send(str(TEAM), "soon")).success
        api.faults.append((post, {"message": "slow", "retry_after": 77.0}))
        flood = await bot.send(str(TEAM), "later")
        assert (flood.error_kind, flood.retry_after) == ("rate_limited", 77.0)
        api.faults += [(post, 403), (post, 503), (post, 401)]
        kept_out, broken, revoked = [await bot.send(str(TEAM), "x") for _ in range(3)]
        assert (kept_out.error_kind, revoked.retryable) == ("forbidden", True)
        assert (broken.retryable, bot._is_timeout_error(broken.error)) == (False, True)

    at(bot, steps)


def test_an_answer_of_the_service_that_was_lost_leaves_one_message(bot: Any, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        api.faults.append(("POST channels/101/messages", "answer lost"))
        assert (await bot.send(str(TEAM), "once", None, {"delivery_key": "k"})).success
        assert [m["content"] for m in api.said()] == ["once"]

    at(bot, steps)


def test_reactions_show_the_work_where_they_are_wanted(make: Make, api: DiscordApi) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        said = await do(api.say, TEAM, ANN, f"<@{ME}> hello")
        event = await inbox.next()
        await bot.on_processing_start(event)
        await bot.on_processing_complete(event, ProcessingOutcome.SUCCESS)
        assert [(method, message) for method, message, _ in api.reactions] == [
            ("PUT", said), ("DELETE", said), ("PUT", said),
        ]  # fmt: skip

    at(make("discord", token=TOKEN, base_url=api.url, reactions=True), steps)


async def test_a_text_is_sent_without_a_gateway(make: Make, bot: Any, api: DiscordApi) -> None:
    entry = make.host.platforms.get("discord")  # type: ignore[attr-defined]

    sent = await entry.standalone_sender_fn(bot.config, str(TEAM), "x " * 1500)

    assert (sent["success"], len(api.said()), api.sessions) == (True, 2, 0)


async def test_a_wrong_token_or_a_missing_intent_ends_it_for_good(make: Make, api: DiscordApi) -> None:
    wrong = make("discord", token="wrong", base_url=api.url)
    assert await wrong.connect() is False
    assert (wrong.fatal_error_code, wrong.fatal_error_retryable) == ("bad_token", False)
    assert "wrong" not in wrong.fatal_error_message
    with DiscordApi(content_allowed=False) as strict:
        bot = make("discord", token=TOKEN, base_url=strict.url)
        assert await bot.connect() is False
    assert (bot.fatal_error_code, bot.fatal_error_retryable) == ("missing_intent", False)


async def test_a_discord_that_cannot_be_reached_is_tried_again(make: Make) -> None:
    bot = make("discord", token=TOKEN, base_url="http://127.0.0.1:1/api/v10")

    assert await bot.connect() is False
    assert (bot.fatal_error_code, bot.fatal_error_retryable) == ("not_connected", True)


def test_setup_tries_the_token(make: Make, bot: Any, api: DiscordApi) -> None:
    assert attempted(make, bot) == ""
    assert attempted(make, make("discord", token="wrong", base_url=api.url)) != ""
