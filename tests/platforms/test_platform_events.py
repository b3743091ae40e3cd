"""Reactions, edits, deletions and threads as the bundled platforms tell them (contract of 0.23 §7.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hermes_agent.adapters.events import SessionSource
from peers import telegram as tg
from platforms.conftest import WAIT_S, Inbox, Make, at, do


class Told:
    """What an adapter tells besides messages."""

    def __init__(self, adapter: Any) -> None:
        self._events: asyncio.Queue[tuple[dict[str, Any], SessionSource]] = asyncio.Queue()
        adapter.set_platform_event_handler(self._take)

    async def _take(self, event: dict[str, Any], source: SessionSource) -> None:
        self._events.put_nowait((event, source))

    async def next(self) -> tuple[str, dict[str, Any], SessionSource]:
        async with asyncio.timeout(WAIT_S):
            event, source = await self._events.get()
        return event["event_type"], event["payload"], source

    @property
    def is_empty(self) -> bool:
        return self._events.empty()


def test_telegram_tells_reactions_and_edits_of_users(make: Make) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        told = Told(bot)
        emoji = [{"type": "emoji", "emoji": "👍"}, {"type": "custom_emoji", "custom_emoji_id": "77"}]
        chat = {"chat": api.chats[-500], "message_id": 9, "date": 1790000000}
        api.update("message_reaction", {**chat, "user": tg.ANN, "old_reaction": [], "new_reaction": emoji})
        api.update("message_reaction", {**chat, "actor_chat": api.chats[-500], "new_reaction": emoji})  # anonymous
        api.update("edited_message", {**chat, "from": tg.ME, "text": "mine", "edit_date": 1790000000})
        forum = {**chat, "chat": api.chats[-600], "message_thread_id": 7, "is_topic_message": True}
        api.update("edited_message", {**forum, "from": tg.BOB, "caption": "better", "edit_date": 1790000000})
        api.update("edited_message", {"from": tg.BOB})  # malformed
        api.say(100, tg.ANN, "hello")
        assert (await inbox.next()).text == "hello"
        kind, fields, source = await told.next()
        assert (kind, source.user_id, source.chat_id) == ("reaction", "100", "-500")
        ids = {"chat_id": "-500", "message_id": "9", "thread_id": None}
        assert fields == {**ids, "emojis": ["👍"], "custom_emoji_ids": ["77"]}
        kind, fields, source = await told.next()
        assert (kind, source.user_id, source.thread_id) == ("message_edited", "200", "7")
        at_ = "2026-09-21T14:13:20+00:00"
        assert fields == {"chat_id": "-600", "message_id": "9", "thread_id": "7", "text": "better", "edited_at": at_}
        assert told.is_empty and inbox.is_empty

    with tg.BotApi() as api:
        at(make("telegram", token=tg.TOKEN, base_url=api.url, poll_timeout=5), steps)


def test_discord_tells_edits_deletions_and_threads_of_users(make: Make) -> None:
    pytest.importorskip("discord", reason="the extra `discord` is not installed (requirements/dev.txt has it)")
    from peers import discord as dc

    guild = {"guild_id": str(dc.GUILD)}

    def edit(message: str, text: str, when: str | None) -> None:
        there = api.messages[message]
        there |= {"content": text, "edited_timestamp": when}
        api.dispatch("MESSAGE_UPDATE", api._shown(there))

    def thread(event: str, name: str, owner: int, number: str = "555", **more: Any) -> None:
        state = {"archived": False, "auto_archive_duration": 60, "archive_timestamp": "2026-01-01T00:00:00+00:00"}
        about = {"id": number, "type": 11, "name": name, "parent_id": str(dc.TEAM), "owner_id": str(owner)}
        counts = {"member_count": 1, "message_count": 0, "thread_metadata": {**state, "locked": False}}
        api.dispatch(event, {**guild, **about, **counts, **more})

    async def steps(bot: Any, inbox: Inbox) -> None:
        told = Told(bot)
        first = await do(api.say, dc.TEAM, dc.BOB, "frist")
        await inbox.next()
        at_ = "2026-09-21T13:33:20+00:00"
        await do(edit, first, "first", None)  # the preview of a link comes
        await do(edit, first, "first", at_)
        kind, fields, source = await told.next()
        assert (kind, source.user_id, source.chat_id) == ("message_edited", str(dc.BOB), str(dc.TEAM))
        ids = {"chat_id": str(dc.TEAM), "message_id": first, "thread_id": None}
        assert fields == {**ids, "text": "first", "edited_at": at_}

        own = await bot.send(str(dc.TEAM), "mine")
        await do(edit, own.message_id, "mine, too", at_)
        for message in (own.message_id, "123456", first):
            await do(api.dispatch, "MESSAGE_DELETE", {**guild, "id": message, "channel_id": str(dc.TEAM)})
        kind, fields, source = await told.next()
        assert (kind, source.user_id) == ("message_deleted", str(dc.BOB))
        assert fields == {**ids, "author_id": str(dc.BOB)}

        await do(thread, "THREAD_CREATE", "Plan", dc.BOB, newly_created=True)
        await do(thread, "THREAD_CREATE", "Own", dc.ME, number="556", newly_created=True)
        await do(thread, "THREAD_UPDATE", "Plan", dc.BOB, rate_limit_per_user=5)
        await do(thread, "THREAD_UPDATE", "Plan B", dc.BOB)
        kind, fields, source = await told.next()
        where = {"thread_id": "555", "parent_chat_id": str(dc.TEAM)}
        assert (kind, source.user_id, source.thread_id) == ("thread_created", str(dc.BOB), "555")
        assert fields == {**where, "name": "Plan", "owner_id": str(dc.BOB)}
        kind, fields, source = await told.next()
        assert (kind, fields) == ("thread_renamed", {**where, "old_name": "Plan", "new_name": "Plan B"})
        assert told.is_empty

    with dc.DiscordApi() as api:
        at(make("discord", token=dc.TOKEN, base_url=api.url, auto_thread=False), steps)


def test_telegram_reacts_to_a_message_and_renames_a_topic(make: Make) -> None:
    async def steps(bot: Any, inbox: Inbox) -> None:
        message = api.say(100, tg.ANN, "hello")
        await inbox.next()
        await bot.add_reaction("100", str(message), "👍")
        (reacted,) = [one for one in api.sent("setMessageReaction") if one["message_id"] == message]
        assert (reacted["chat_id"], reacted["reaction"]) == ("100", [{"type": "emoji", "emoji": "👍"}])
        with pytest.raises(Exception, match="message to react not found"):
            await bot.add_reaction("100", "99999", "👍")
        await bot.set_thread_title("-600", "7", "t" * 200)
        (renamed,) = api.sent("editForumTopic")
        assert (renamed["message_thread_id"], renamed["name"]) == (7, "t" * 128)
        with pytest.raises(Exception, match="TOPIC_NOT_MODIFIED"):
            await bot.set_thread_title("100", "7", "no forum")

    with tg.BotApi() as api:
        at(make("telegram", token=tg.TOKEN, base_url=api.url, poll_timeout=5), steps)


def test_discord_reacts_to_a_message_and_renames_a_thread(make: Make) -> None:
    pytest.importorskip("discord", reason="the extra `discord` is not installed (requirements/dev.txt has it)")
    from peers import discord as dc

    async def steps(bot: Any, inbox: Inbox) -> None:
        first = await do(api.say, dc.TEAM, dc.BOB, f"<@{dc.ME}> what now?")
        said = await inbox.next()  # in a thread of its own
        await bot.add_reaction(str(dc.TEAM), first, "👍")
        assert [(method, message) for method, message, _ in api.reactions] == [("PUT", first)]
        await bot.set_thread_title(str(dc.TEAM), said.source.thread_id, "t" * 200)
        assert api._channels[said.source.thread_id]["name"] == "t" * 100
        with pytest.raises(Exception, match="Unknown Message"):
            await bot.add_reaction(str(dc.TEAM), "99999", "👍")
        with pytest.raises(Exception, match="Unknown Channel"):
            await bot.set_thread_title(str(dc.TEAM), "99999", "nowhere")

    with dc.DiscordApi() as api:
        at(make("discord", token=dc.TOKEN, base_url=api.url), steps)
