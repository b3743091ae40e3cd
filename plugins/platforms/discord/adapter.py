"""Adapter for Discord: events of the Discord gateway come in, API calls go out."""

import asyncio
import contextlib
import hashlib
import logging
import re
from pathlib import Path

import aiohttp

import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from hermes_agent.adapters.adapter_state import MessageDeduplicator, ReadPositions, ThreadParticipationTracker
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, ProcessingOutcome, SendResult
from hermes_agent.adapters.media import cache_media_bytes
from hermes_agent.adapters.questions import (
    CHOICE,
    approval_buttons,
    approval_text,
    confirmation_buttons,
    may_answer,
)
from hermes_agent.adapters.text import as_command, convert_table_to_bullets, utf16_len
from hermes_agent.core.tasks import end_task

from .events import BUTTON_PREFIX, as_event, failed_result, interaction_text, is_message, kind_of, source_of
from .platform_events import SeenAuthors, as_platform_event

logger = logging.getLogger(__name__)

CONNECT_S = 45.0
LONGEST_WAIT_S = 30.0
"""Longer rate limits are returned to the outbox."""
WAITING = 256
"""Limit of the receive queue (it fills with a full disk, for example); messages above it are fetched later."""
TYPING_S = 8.0
COMMANDS, CHOICES, LABEL = 100, 25, 80
HAS_THREAD = 160004
ROUTE_BASE = Route.BASE
STYLES = {"Once": discord.ButtonStyle.success, "Deny": discord.ButtonStyle.danger}
FATAL = {
    4004: ("bad_token", "Discord does not know the token"),
    4014: ("missing_intent", "turn on the Message Content Intent of the bot in the developer portal"),
}


class _Client(discord.Client):
    """Client that passes events to the adapter."""

    def __init__(self, adapter, proxy):
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)
        super().__init__(
            intents=intents,
            proxy=proxy or None,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            max_ratelimit_timeout=LONGEST_WAIT_S,
            allowed_mentions=discord.AllowedMentions(everyone=False, roles=False),
        )
        self._adapter = adapter

    async def on_connect(self):
        self._adapter.on_session()

    async def on_message(self, item):
        self._adapter.enqueue(item)

    on_interaction = on_raw_message_edit = on_raw_message_delete = on_thread_create = on_message

    async def on_thread_update(self, before, after):
        self._adapter.enqueue((before, after))

    async def on_error(self, event_method, *args, **kwargs):
        logger.exception("[discord] %s failed", event_method)


class DiscordAdapter(BasePlatformAdapter):
    """Adapter for a Discord bot. A chat is a channel, direct message or thread, by its id."""

    MAX_MESSAGE_LENGTH = 2000
    sends_any_file = True
    supports_code_blocks = True

    def __init__(self, config, settings):
        super().__init__(config, "discord")
        self.settings = settings
        self._client = self._running_client = self._taking = None
        self._connected = None
        self._arrived, self._behind = None, False
        self._marks = self._threads = None
        self._seen, self._typing_at, self._authors = MessageDeduplicator(), {}, SeenAuthors()

    @property
    def message_len_fn(self):
        return utf16_len

    # -- connection ------------------------------------------------------------------------------------------

    async def log_in(self):
        """Log in, so that API calls work."""
        Route.BASE = self.settings.base_url.rstrip("/")  # the SDK has one address for all clients
        self._client = _Client(self, self.settings.proxy)
        await self._client.login(self.settings.token)

    async def close(self):
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def connect(self, *, is_reconnect=False):
        if not self._acquire_platform_lock("discord-bot-token", self.settings.token, "This Discord bot's token"):
            return False
        self._connected, self._arrived = asyncio.Event(), asyncio.Queue()
        try:
            await self.log_in()
            if Route.BASE != ROUTE_BASE:
                address = (await self._client.http.get_bot_gateway())[1]
                DiscordWebSocket.DEFAULT_GATEWAY = type(DiscordWebSocket.DEFAULT_GATEWAY)(address)
            self._running_client = asyncio.create_task(self._run(self._client), name="discord")
            ready = asyncio.create_task(self._connected.wait())
            await asyncio.wait((ready, self._running_client), timeout=CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if self._running_client.done():
                raise self._running_client.result()
            if not self._connected.is_set():
                raise TimeoutError(f"no session within {CONNECT_S:g} s")
            self._marks = ReadPositions("discord", str(self._client.user.id))
            self._threads = ThreadParticipationTracker("discord")
            await self._offer_commands()
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            await self.disconnect()
            self._give_up(exc)
            return False
        self._taking = asyncio.create_task(self._take_all(), name="discord messages")
        self._running_client.add_done_callback(self._on_end)
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        running, taking = self._running_client, self._taking
        self._running_client = self._taking = None
        await self.close()
        for task in (running, taking):
            await end_task(task)
        if self._marks is not None:
            self._marks.write()
        self._release_platform_lock()
        self._mark_disconnected()

    async def _run(self, client):
        """Stay connected, with the delays of the SDK; return the reason of the end."""
        try:
            await client.connect(reconnect=True)
        except Exception as exc:  # noqa: BLE001 - any error is reported to the gateway
            return exc
        return ConnectionError("the connection was closed")

    def _on_end(self, task):
        if task is self._running_client and not task.cancelled():
            self._lost(task.result())

    def _lost(self, exc):
        self._give_up(exc)
        task = asyncio.create_task(self._notify_fatal_error())
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    def _give_up(self, exc):
        code = 4004 if isinstance(exc, discord.LoginFailure) else getattr(exc, "code", None)
        code = 4014 if isinstance(exc, discord.PrivilegedIntentsRequired) else code
        if code in FATAL:
            self._set_fatal_error(*FATAL[code], retryable=False)
        else:
            self._set_fatal_error("not_connected", f"{type(exc).__name__}: {exc}", retryable=True)

    async def _offer_commands(self):
        menu = getattr(self.gateway_runner, "menu", None)
        if not callable(menu) or not self.settings.slash_commands:
            return
        rest = {"type": 3, "name": "rest", "description": "Arguments of the command", "required": False}
        commands = [
            {"type": 1, "name": name, "description": about[:100] or name, "options": [rest]}
            for name, about in menu()
            if re.fullmatch(r"[-_0-9a-z]{1,32}", name)
        ]
        await self._quietly(
            self._client.http.bulk_upsert_global_commands(self._client.application_id, commands[:COMMANDS])
        )

    # -- incoming messages -------------------------------------------------------------------------------------------

    def on_session(self):
        """Handle a new session: messages before it are fetched before later ones."""
        self._arrived.put_nowait(None)
        self._connected.set()

    def enqueue(self, item):
        """Add a message, an interaction or another event to the receive queue.

        Discord has no back-pressure, so events above the limit are not queued. Messages are fetched after the queued
        ones; for interactions, Discord shows that the application did not respond.
        """
        is_message = isinstance(item, discord.Message)
        if self._arrived.qsize() < WAITING and not (is_message and self._behind):
            self._arrived.put_nowait(item)
            return
        if not self._behind or not is_message:
            logger.warning(
                "[discord] receive queue full (%d messages), others are %s",
                WAITING,
                "fetched later" if is_message else "lost",
            )
        if is_message:
            self._behind = True
            if self._marks is not None and self._marks.get(str(item.channel.id)) is None:
                with contextlib.suppress(OSError):  # it is kept in memory and written later
                    self._marks.put(str(item.channel.id), str(item.id - 1))

    async def _catch_up(self):
        """Receive all messages since the last received one."""
        for chat, mark in self._marks.items():
            try:
                channel = await self._client.fetch_channel(int(chat))
                after = discord.Object(int(mark))
                if (getattr(channel, "last_message_id", after.id + 1) or 0) > after.id:  # a DM does not have it
                    async for message in channel.history(after=after, limit=None, oldest_first=True):
                        await self._take(message)
            except (discord.HTTPException, discord.InvalidData) as exc:
                logger.info("[discord] cannot fetch the messages of %s: %s", chat, exc)

    async def _take_all(self):
        try:
            while True:
                item = await self._arrived.get()
                await (self._catch_up() if item is None else self._take(item))
                if self._behind and self._arrived.empty():
                    self._behind = False
                    await self._catch_up()
        except Exception as exc:  # noqa: BLE001 - it was not stored, and is fetched after a new connection
            logger.warning("[discord] message not stored: %r", exc)
            self._lost(exc)

    async def _take(self, item):
        if isinstance(item, discord.Interaction):
            await self._interacted(item)
            return
        if not isinstance(item, discord.Message):
            event = as_platform_event(item, self._client.user.id, self._authors, self.build_source)
            if event is not None:
                await self.notify_platform_event(event)
            return
        self._authors.add(item)
        if not is_message(item, self._client.user.id) or self._seen.is_duplicate(str(item.id)):
            return
        try:
            event = await self._event(item)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            discord.DiscordException,
        ) as exc:  # an invalid message must not block later ones
            logger.warning("[discord] message %s skipped: %r", item.id, exc)
            return
        if event.text or event.media_urls:
            await self.handle_message(event)
        self._marks.put(str(item.channel.id), str(item.id))

    async def _event(self, message):
        me, thread = self._client.user.id, None
        if self.settings.auto_thread and isinstance(message.channel, discord.TextChannel):
            thread = await self._own_thread(message, me)
        channel = message.channel
        if isinstance(channel, discord.PartialMessageable):  # an unknown thread
            channel = await self._client.fetch_channel(channel.id)
        event = as_event(message, channel, me, self.build_source, thread)
        event.text = as_command(event.text)
        if event.source.thread_id in self._threads:
            event.metadata["addressed"] = True
        for attachment in message.attachments:
            await self._fetch(attachment, event)
        return event

    async def _own_thread(self, message, me):
        """Create a thread for the answer if an authorized user mentions the bot."""
        if not any(user.id == me for user in message.mentions):
            return None
        if self._is_sender_authorized(str(message.author.id), "group", str(message.channel.id)) is False:
            return None
        name = " ".join(re.sub(r"<[^>]*>", "", message.content).split())[:LABEL] or "Hermes"
        try:
            thread = await message.create_thread(name=name)
        except discord.HTTPException as exc:
            if exc.code != HAS_THREAD:
                logger.info("[discord] no thread in %s: %s", message.channel.id, exc)
                return None
            thread = await self._client.fetch_channel(message.id)  # it has the id of its message
        self._threads.mark(str(thread.id))
        return thread

    async def _fetch(self, attachment, event):
        try:
            if attachment.size > self.settings.max_media_bytes:
                raise ValueError(f"it is larger than {self.settings.max_media_bytes} bytes")
            data = await attachment.read()
            cached = cache_media_bytes(data, filename=attachment.filename, mime_type=attachment.content_type or "")
        except (discord.DiscordException, aiohttp.ClientError, TimeoutError, ValueError) as exc:
            event.text = f"{event.text}\n[The file {attachment.filename} could not be fetched: {exc}]".strip()
            return
        if cached is not None:
            event.attach(cached.path, cached.media_type, kind_of(attachment, cached))

    async def _interacted(self, interaction):
        """Receive a slash command, or a button as the text that it stands for."""
        try:
            text, label = interaction_text(interaction)
            source = source_of(interaction.channel, interaction.user, self.build_source) if text else None
        except (KeyError, TypeError, AttributeError) as exc:
            logger.warning("[discord] interaction %s skipped: %r", interaction.id, exc)
            return
        if source is None:
            return
        if not may_answer(self, text, source.user_id, source.chat_type, source.chat_id):
            logger.info("[discord] user %s may not use %s", source.user_id, text)
            await self._quietly(interaction.response.send_message("This is not for you.", ephemeral=True))
            return
        event = MessageEvent(text, source=source, raw_message=interaction, message_id=f"interaction-{interaction.id}")
        event.metadata["addressed"] = True
        await self.handle_message(event)
        if label:
            shown = f"{interaction.message.content}\n\n{interaction.user.display_name}: {label}"
            answer = interaction.response.edit_message(content=shown[-2000:], view=None)
        else:
            answer = interaction.response.send_message(text, ephemeral=True)
        await self._quietly(answer)

    async def add_reaction(self, chat_id, message_id, emoji):
        await self._message(chat_id, message_id).add_reaction(emoji)

    async def set_thread_title(self, chat_id, thread_id, title):
        await (await self._client.fetch_channel(int(thread_id))).edit(name=title[:100])

    async def on_processing_start(self, event):
        await self._react(event, "👀")

    async def on_processing_complete(self, event, outcome):
        await self._react(event, "👀", add=False)
        emoji = {ProcessingOutcome.SUCCESS: "✅", ProcessingOutcome.FAILURE: "❌"}.get(outcome)
        if emoji:
            await self._react(event, emoji)

    async def _react(self, event, emoji, *, add=True):
        if self.settings.reactions and self._client is not None and (event.message_id or "").isdigit():
            within = event.source.parent_chat_id if event.source.auto_thread_created else event.source.chat_id
            message = self._partial(within).get_partial_message(int(event.message_id))
            work = message.add_reaction(emoji) if add else message.remove_reaction(emoji, self._client.user)
            await self._quietly(work)

    # -- outgoing messages -------------------------------------------------------------------------------------------

    def format_message(self, content):
        return convert_table_to_bullets(content)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self._post(chat_id, reply_to, metadata, content=self.format_message(content))

    async def edit_message(self, chat_id, message_id, content, *, finalize=False):
        text = self.format_message(content)
        return await self._call(lambda: self._message(chat_id, message_id).edit(content=text))

    async def delete_message(self, chat_id, message_id):
        return (await self._call(lambda: self._message(chat_id, message_id).delete())).success

    async def send_typing(self, chat_id, metadata=None):
        chat, now = _target(chat_id, metadata), asyncio.get_running_loop().time()
        if self._client is not None and now - self._typing_at.get(chat, -TYPING_S) >= TYPING_S:
            self._typing_at[chat] = now  # Discord shows it for ten seconds
            await self._quietly(self._client.http.send_typing(int(chat)))

    async def stop_typing(self, chat_id):
        self._typing_at.pop(chat_id, None)

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        try:
            file = discord.File(Path(file_path), filename=file_name or Path(file_path).name)
        except OSError as exc:
            return SendResult(False, error=f"cannot read the file: {exc.strerror}", error_kind="unknown")
        return await self._post(chat_id, reply_to, metadata, content=(caption or "")[:2000] or None, file=file)

    async def send_exec_approval(
        self, chat_id, command, session_key, description="", metadata=None, allow_permanent=True, approval_id="", **more
    ):
        """Ask with buttons, which stand for commands."""
        session = more.get("allow_session", True)
        offered = approval_buttons(permanent=allow_permanent, approval_id=approval_id, session=session)
        labels = {value: label for value, (_, label) in offered.items()}
        return await self._asked(chat_id, approval_text(command, description, limit=1500), labels, metadata)

    async def send_clarify(self, chat_id, question, choices, clarify_id, session_key, metadata=None):
        """Ask with buttons; a button shows its choice, or a number if the choices are too long."""
        texts = [str(choice) for choice in choices or ()]
        if not texts or len(texts) > CHOICES:
            return await super().send_clarify(chat_id, question, choices, clarify_id, session_key, metadata)
        fits = all(text and len(text) <= LABEL for text in texts)
        offered = {f"{CHOICE}{n}": text if fits else str(n) for n, text in enumerate(texts, 1)}
        lines = [] if fits else [f"{number}. {text}" for number, text in enumerate(texts, 1)]
        return await self._asked(chat_id, "\n".join([f"❓ {question}", *lines])[:2000], offered, metadata)

    async def send_slash_confirm(self, chat_id, title, message, session_key, confirm_id, metadata=None):
        return await self._asked(chat_id, f"❓ **{title}**\n{message}", confirmation_buttons(confirm_id), metadata)

    async def _asked(self, chat_id, text, offered, metadata):
        view = discord.ui.View(timeout=None)
        for value, label in offered.items():
            style = STYLES.get(label, discord.ButtonStyle.secondary)
            view.add_item(discord.ui.Button(label=label, custom_id=f"{BUTTON_PREFIX}{value}", style=style))
        try:
            return await self._post(chat_id, None, metadata, content=text, view=view)
        finally:
            view.stop()  # all button events arrive anyway, so the SDK need not store the view

    async def create_handoff_thread(self, parent_chat_id, name):
        try:
            channel = await self._client.fetch_channel(int(parent_chat_id))
            thread = await channel.create_thread(name=name[:LABEL], type=discord.ChannelType.public_thread)
        except (discord.DiscordException, AttributeError, aiohttp.ClientError) as exc:
            logger.info("[discord] no thread in %s: %s", parent_chat_id, exc)
            return None
        self._threads.mark(str(thread.id))
        return str(thread.id)

    async def get_chat_info(self, chat_id):
        try:
            channel = await self._client.fetch_channel(int(chat_id))
        except (discord.DiscordException, aiohttp.ClientError, ValueError) as exc:
            logger.info("[discord] no information about %s: %s", chat_id, exc)
            return {"name": str(chat_id), "type": "group"}
        if isinstance(channel, discord.DMChannel):
            return {"name": getattr(channel.recipient, "display_name", str(chat_id)), "type": "dm"}
        return {"name": channel.name, "type": "thread" if isinstance(channel, discord.Thread) else "group"}

    def _partial(self, chat_id):
        return self._client.get_partial_messageable(int(chat_id))

    def _message(self, chat_id, message_id):
        return self._partial(chat_id).get_partial_message(int(message_id))

    async def _post(self, chat_id, reply_to, metadata, **content):
        """Send a message. Discord drops a second message with the same delivery key for some minutes."""
        key = (metadata or {}).get("delivery_key")
        place = _target(chat_id, metadata)
        if str(reply_to or "").isdigit() and reply_to != place:  # a thread has the id of its first message
            content["reference"] = discord.MessageReference(
                message_id=int(reply_to), channel_id=int(place), fail_if_not_exists=False
            )
            content["mention_author"] = False
        digest = hashlib.sha256(str(key).encode()).hexdigest()[:25] if key else None
        result = await self._call(lambda: self._partial(place).send(nonce=digest, **content))
        self._typing_at.pop(place, None)
        return result

    async def _call(self, make):
        if self._client is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        try:
            sent = await make()
        except ValueError as exc:
            return SendResult(False, error=str(exc), error_kind="not_found")
        except discord.RateLimited as exc:
            return SendResult(False, error="429", error_kind="rate_limited", retry_after=exc.retry_after)
        except discord.HTTPException as exc:
            return failed_result(exc)
        except aiohttp.ClientConnectorError as exc:
            return SendResult(False, error=f"no connection: {exc}", retryable=True, error_kind="transient")
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            logger.warning("[discord] a message may have arrived: %r", exc)
            return SendResult(False, error="timed out: it may have arrived", error_kind="unknown")
        return SendResult(True, message_id=str(sent.id) if sent is not None else None)

    async def _quietly(self, work):
        """Run a call that is not part of the answer."""
        try:
            await work
        except (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError) as exc:
            logger.debug("[discord] %s", exc)


def _target(chat_id, metadata):
    return str((metadata or {}).get("thread_id") or chat_id)
