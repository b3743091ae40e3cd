"""Adapter for a Telegram bot: long polling delivers updates, API calls go out."""

import asyncio
import logging
from pathlib import Path

from hermes_agent.adapters.base import BasePlatformAdapter, PlatformEvent
from hermes_agent.adapters.events import ProcessingOutcome, SendResult
from hermes_agent.adapters.markdown import TELEGRAM, render
from hermes_agent.adapters.media import cache_media_bytes
from hermes_agent.adapters.media_references import local_path
from hermes_agent.adapters.questions import (
    CHOICE,
    answer_text,
    approval_buttons,
    approval_text,
    confirmation_buttons,
    may_answer,
)
from hermes_agent.adapters.text import prefix_within_utf16_limit, strip_markdown, utf16_len
from hermes_agent.core.tasks import end_task

from .api import TelegramApi, TelegramError, TelegramUnreachable, as_result
from .native import end_application, pass_to_application, start_application
from .updates import CHAT_TYPES, GENERAL, as_event, as_platform_event, file_of

logger = logging.getLogger(__name__)

CAPTION = 1024
LARGEST_PHOTO = 10 * 2**20
LARGEST_FILE = 50 * 2**20
ALBUM = 10
MENU = 100
TRIES = 6
"""Failed polls in a row, with delays up to half a minute, before the gateway is notified."""


class TelegramAdapter(BasePlatformAdapter):
    """Adapter for one bot. A chat is Telegram's, by its id; a thread is a topic of a forum."""

    MAX_MESSAGE_LENGTH = 4096
    supports_code_blocks = True

    def __init__(self, config, settings):
        super().__init__(config, "telegram")
        self.settings = settings
        self._api = self._polling = self._application = None
        self._me = {"id": 0}

    @property
    def message_len_fn(self):
        return utf16_len

    # -- connection ------------------------------------------------------------------------------------------

    def open(self):
        """Create the client, so that API calls work."""
        self._api = TelegramApi(self.settings.base_url, self.settings.token, self.settings.proxy)

    async def log_in(self):
        """Create the client and check the token; raise the error."""
        self.open()
        await self._api.call("getMe")

    async def close(self):
        await end_application(self._application)
        self._application = None
        if self._api is not None:
            await self._api.close()
        self._api = None

    async def connect(self, *, is_reconnect=False):
        if not self._acquire_platform_lock("telegram-bot-token", self.settings.token, "This Telegram bot's token"):
            return False
        self.open()
        try:
            self._me = await self._api.call("getMe")
            await self._api.call("deleteWebhook")  # with a webhook, Telegram does not allow polling
        except (TelegramError, TelegramUnreachable) as exc:
            self._give_up(exc)
            await self.close()
            self._release_platform_lock()
            return False
        menu = getattr(self.gateway_runner, "menu", None)
        if callable(menu):
            commands = [{"command": name, "description": about[:256]} for name, about in menu()][:MENU]
            await self._quietly("setMyCommands", commands=commands)
        if self.has_plugin_handlers:
            self._application = await start_application(self.settings.base_url, self.settings.token)
        self._polling = asyncio.create_task(self._poll(), name="telegram")
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        polling, self._polling = self._polling, None
        await end_task(polling)
        await self.close()
        self._release_platform_lock()
        self._mark_disconnected()

    def _give_up(self, exc):
        known = isinstance(exc, TelegramError) and exc.code in (401, 404)
        text = "Telegram rejected the token: get a new one from @BotFather" if known else str(exc)
        code = "bad_token" if known else "conflict" if getattr(exc, "code", 0) == 409 else "not_connected"
        self._set_fatal_error(code, text, retryable=not known)

    async def _poll(self):
        """Receive updates; the next poll confirms the previous ones."""
        offset, failures = None, 0
        try:
            while True:
                try:
                    updates = await self._api.call(
                        "getUpdates",
                        wait_s=self.settings.poll_timeout,
                        offset=offset,
                        timeout=self.settings.poll_timeout,
                        allowed_updates=["message", "callback_query", "edited_message", "message_reaction"],
                    )
                except TelegramUnreachable as exc:
                    failures += 1
                    if failures >= TRIES:
                        raise
                    logger.info("[telegram] poll failed, retry: %s", exc)
                    await asyncio.sleep(min(2.0 ** (failures - 1), 30.0))
                    continue
                except TelegramError as exc:
                    if exc.code != 429:
                        raise
                    await asyncio.sleep(exc.retry_after or 1)
                    continue
                failures = 0
                for update, event in await self._events(updates):
                    if isinstance(event, PlatformEvent):
                        await self.notify_platform_event(event)
                    elif event is not None:
                        await self.handle_message(event)
                    offset = update + 1
        except Exception as exc:  # noqa: BLE001 - the gateway reconnects; nothing is lost
            if self._polling is asyncio.current_task():
                if isinstance(exc, (TelegramError, TelegramUnreachable)):
                    self._give_up(exc)
                else:
                    self._set_fatal_error("polling_failed", f"{type(exc).__name__}: {exc}", retryable=True)
                await self._notify_fatal_error()

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _events(self, updates):
        """Return the id and the message, or other event, of each update; the images of an album are one message."""
        events, albums = [], {}
        for update in updates:
            event = None
            await pass_to_application(self._application, update)
            try:
                event = await self._event(update)
            except (KeyError, TypeError, ValueError) as exc:  # an invalid update must not block later ones
                logger.warning("[telegram] update %s skipped: %r", update.get("update_id"), exc)
            album = (update.get("message") or {}).get("media_group_id")
            first = albums.get(album)
            if event is not None and first is not None:
                first.text = first.text or event.text
                for path, mime in zip(event.media_urls, event.media_types, strict=True):
                    first.attach(path, mime, event.message_type)
                event = None
            elif event is not None and album:
                albums[album] = event
            events.append((update["update_id"], event))
        return events

    async def _event(self, update):
        if "callback_query" in update:
            return await self._pressed(update["callback_query"], update["update_id"])
        if "message" not in update:
            return as_platform_event(update, self._me, self.build_source)
        message = update["message"]
        event = as_event(message, self._me, self.build_source, update["update_id"])
        found = file_of(message)
        if event is None or found is None:
            return event if event is not None and event.text else None
        file_id, kind, name, mime = found
        try:
            _, data = await self._api.file(file_id)
            cached = cache_media_bytes(data, filename=name, mime_type=mime)
        except (TelegramError, TelegramUnreachable, ValueError) as exc:
            event.text = f"{event.text}\n[The file {name} could not be fetched: {exc}]".strip()
            return event
        if cached is not None:
            event.attach(cached.path, cached.media_type, kind)
        return event

    async def _pressed(self, query, update_id):
        """Return the message that a pressed button stands for, or None."""
        message = query.get("message") or {}
        chat = message.get("chat") or {}
        place = CHAT_TYPES.get(chat.get("type"), "group"), str(chat.get("id"))
        if not may_answer(self, query["data"], str(query["from"]["id"]), *place):
            await self._quietly("answerCallbackQuery", callback_query_id=query["id"], text="This is not for you.")
            return None
        await self._quietly("answerCallbackQuery", callback_query_id=query["id"])
        if "text" not in message:
            return None  # too old: Telegram does not return its text
        buttons = [item for row in (message.get("reply_markup") or {}).get("inline_keyboard", []) for item in row]
        label = next((item["text"] for item in buttons if item.get("callback_data") == query["data"]), "")
        text = answer_text(query["data"], label)
        written = {**message, "from": query["from"], "text": text, "entities": []}
        written.pop("reply_to_message", None)
        event = as_event(written, self._me, self.build_source, update_id)
        if event is None or not text:
            return None
        event.message_id = f"button-{query['id']}"
        event.metadata["addressed"] = True
        name = query["from"].get("first_name", "")
        target = {"chat_id": message["chat"]["id"], "message_id": message["message_id"]}
        await self._quietly("editMessageText", text=f"{message['text']}\n\n{name}: {label}", **target)
        return event

    async def add_reaction(self, chat_id, message_id, emoji):
        """React to a message; raise the error."""
        reaction = [{"type": "emoji", "emoji": emoji}]
        await self._api.call("setMessageReaction", chat_id=chat_id, message_id=int(message_id), reaction=reaction)

    async def set_thread_title(self, chat_id, thread_id, title):
        """Rename a topic of a forum; raise the error."""
        await self._api.call("editForumTopic", chat_id=chat_id, message_thread_id=int(thread_id), name=title[:128])

    async def on_processing_start(self, event):
        await self._react(event, "👀")

    async def on_processing_complete(self, event, outcome):
        await self._react(event, {ProcessingOutcome.SUCCESS: "👍", ProcessingOutcome.FAILURE: "👎"}.get(outcome))

    async def _react(self, event, emoji):
        if self.settings.reactions and (event.message_id or "").isdigit():
            reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
            target = {"chat_id": event.source.chat_id, "message_id": int(event.message_id)}
            await self._quietly("setMessageReaction", reaction=reaction, **target)

    # -- outgoing messages -------------------------------------------------------------------------------------------

    def format_message(self, content):
        return render(content, TELEGRAM)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self._text("sendMessage", chat_id, content, **_where(reply_to, metadata))

    async def edit_message(self, chat_id, message_id, content, *, finalize=False):
        result = await self._text("editMessageText", chat_id, content, message_id=message_id)
        if not result.success and "not modified" in (result.error or ""):
            return SendResult(True, message_id=message_id)
        return result

    async def delete_message(self, chat_id, message_id):
        return await self._quietly("deleteMessage", chat_id=chat_id, message_id=message_id)

    async def send_typing(self, chat_id, metadata=None):
        where = _where(None, metadata)
        await self._quietly("sendChatAction", chat_id=chat_id, action="typing", **where)

    async def send_image(self, chat_id, image_url, caption=None, reply_to=None, metadata=None):
        result = await self._media("sendPhoto", "photo", chat_id, image_url, caption, reply_to, metadata)
        if result.success or result.error_kind != "unknown" or self._is_timeout_error(result.error):
            return result
        return await super().send_image(chat_id, image_url, caption, reply_to, metadata)  # Telegram could not fetch it

    async def send_animation(self, chat_id, animation_url, caption=None, reply_to=None, metadata=None):
        return await self._media("sendAnimation", "animation", chat_id, animation_url, caption, reply_to, metadata)

    async def send_image_file(self, chat_id, image_path, caption=None, reply_to=None, metadata=None, **_):
        if _size(image_path) <= LARGEST_PHOTO:
            result = await self._media("sendPhoto", "photo", chat_id, Path(image_path), caption, reply_to, metadata)
            if result.success or result.error_kind != "unknown" or self._is_timeout_error(result.error):
                return result
        return await self.send_document(chat_id, image_path, caption, None, reply_to, metadata)

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        return await self._media("sendDocument", "document", chat_id, Path(file_path), caption, reply_to, metadata)

    async def send_video(self, chat_id, video_path, caption=None, reply_to=None, metadata=None, **_):
        return await self._media("sendVideo", "video", chat_id, Path(video_path), caption, reply_to, metadata)

    async def send_voice(self, chat_id, audio_path, caption=None, reply_to=None, metadata=None, **_):
        voice = Path(audio_path).suffix.lower() in (".ogg", ".opus", ".oga")
        method, field = ("sendVoice", "voice") if voice else ("sendAudio", "audio")
        return await self._media(method, field, chat_id, Path(audio_path), caption, reply_to, metadata)

    async def send_multiple_images(self, chat_id, images, metadata=None, human_delay=0.0):
        """Send images as albums, or one by one if Telegram rejects an album."""
        for at in range(0, len(images), ALBUM):
            some = images[at : at + ALBUM]
            if len(some) == 1:
                result = await self._picture(chat_id, *some[0], metadata)
            else:
                result = await self._album(chat_id, some, metadata)
                if result.error_kind == "unknown" and not self._is_timeout_error(result.error):
                    await super().send_multiple_images(chat_id, some, metadata, human_delay)
                    continue
            if not result.success and at == 0:  # after later failures, a retry would duplicate the first ones
                return result
        return SendResult(True)

    async def send_exec_approval(
        self, chat_id, command, session_key, description="", metadata=None, allow_permanent=True, approval_id="", **more
    ):
        """Ask with buttons, which stand for commands."""
        text = approval_text(prefix_within_utf16_limit(command, 3000), description, limit=3000)
        session = more.get("allow_session", True)
        offered = approval_buttons(permanent=allow_permanent, approval_id=approval_id, session=session)
        return await self._asked(chat_id, text, {value: " ".join(both) for value, both in offered.items()}, metadata)

    async def send_clarify(self, chat_id, question, choices, clarify_id, session_key, metadata=None):
        """Ask with buttons, which stand for their texts."""
        offered = {f"{CHOICE}{number}": str(choice) for number, choice in enumerate(choices or ())}
        return await self._asked(chat_id, f"❓ {question}", offered, metadata)

    async def send_slash_confirm(self, chat_id, title, message, session_key, confirm_id, metadata=None):
        return await self._asked(chat_id, f"❓ **{title}**\n{message}", confirmation_buttons(confirm_id), metadata)

    async def _asked(self, chat_id, text, offered, metadata):
        rows = [[{"text": label, "callback_data": value}] for value, label in offered.items()]
        markup = {"inline_keyboard": rows} if rows else None
        return await self._text("sendMessage", chat_id, text, reply_markup=markup, **_where(None, metadata))

    async def get_chat_info(self, chat_id):
        try:
            chat = await self._api.call("getChat", chat_id=chat_id)
        except (TelegramError, TelegramUnreachable) as exc:
            logger.info("[telegram] no information about chat %s: %s", chat_id, exc)
            return {"name": str(chat_id), "type": "dm"}
        kind = "dm" if chat["type"] == "private" else "channel" if chat["type"] == "channel" else "group"
        return {"name": chat.get("title") or chat.get("first_name") or str(chat_id), "type": kind}

    async def _text(self, method, chat_id, content, **params):
        result = await self._call(method, chat_id, text=render(content, TELEGRAM), parse_mode="MarkdownV2", **params)
        if result.error_kind == "bad_format":
            logger.info("[telegram] markup rejected, sending plain text: %s", result.error)
            result = await self._call(method, chat_id, text=strip_markdown(content) or content, **params)
        return result

    async def _media(self, method, field, chat_id, what, caption, reply_to, metadata):
        """Send a local file (a path) or one on the web (an address)."""
        if isinstance(what, Path) and _size(what) > LARGEST_FILE:
            return SendResult(
                False, error=f"{what.name} is larger than 50 MB, the limit of Telegram", error_kind="too_long"
            )
        where = _where(reply_to, metadata)
        long = caption if caption and utf16_len(caption) > CAPTION else None
        params = {"caption": None if long else caption, **where}
        if isinstance(what, Path):
            try:
                params["files"] = {field: what}
                result = await self._call(method, chat_id, **params)
            except OSError as exc:
                return SendResult(False, error=f"cannot read the file: {exc.strerror}", error_kind="unknown")
        else:
            result = await self._call(method, chat_id, **{field: what}, **params)
        if result.success and long:
            await self.send(chat_id, long, None, metadata)
        return result

    async def _album(self, chat_id, images, metadata):
        files, items = {}, []
        for number, (url, alt) in enumerate(images):
            path = local_path(url)
            if path:
                files[f"p{number}"] = path
            media = f"attach://p{number}" if path else url
            items.append({"type": "photo", "media": media, **({"caption": alt[:CAPTION]} if alt else {})})
        try:
            return await self._call("sendMediaGroup", chat_id, media=items, files=files, **_where(None, metadata))
        except OSError as exc:
            return SendResult(False, error=f"cannot read an image: {exc.strerror}", error_kind="unknown")

    async def _call(self, method, chat_id, **params):
        """Make a call; repeat it if the group has a new id."""
        if self._api is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        try:
            sent = await self._api.call(method, chat_id=chat_id, **params)
        except TelegramError as exc:
            if exc.moved_to:
                return await self._call(method, exc.moved_to, **params)
            return as_result(exc)
        except TelegramUnreachable as exc:
            return as_result(exc)
        ids = [str(m["message_id"]) for m in (sent if isinstance(sent, list) else [sent]) if isinstance(m, dict)]
        return SendResult(True, message_id=ids[0] if ids else None, continuation_message_ids=tuple(ids[1:]))

    async def _quietly(self, method, **params):
        """Make a call that is not part of the answer; return whether it worked."""
        try:
            return bool(await self._api.call(method, **params)) if self._api is not None else False
        except (TelegramError, TelegramUnreachable) as exc:
            logger.debug("[telegram] %s: %s", method, exc)
            return False


def _where(reply_to, metadata):
    thread = str((metadata or {}).get("thread_id") or "")
    where = {"message_thread_id": int(thread)} if thread.isdigit() and thread != GENERAL else {}
    if reply_to and str(reply_to).isdigit():
        where["reply_parameters"] = {"message_id": int(reply_to), "allow_sending_without_reply": True}
    return where


def _size(path):
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
