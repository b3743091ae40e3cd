"""Adapter for a Matrix account: events of the sync stream come in, events go out."""

import asyncio
import hashlib
import logging
import mimetypes
import uuid
from html import escape
from pathlib import Path

from hermes_agent.adapters.adapter_state import adapter_file
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, ProcessingOutcome, SendResult
from hermes_agent.adapters.markdown import MATRIX, render
from hermes_agent.adapters.media import cache_media_bytes
from hermes_agent.adapters.questions import ReactionQuestions
from hermes_agent.core.tasks import end_task

from .api import MatrixApi, MatrixError, MatrixUnreachable, as_result
from .events import as_message, file_of, is_for_us, relation_of
from .rooms import Rooms

logger = logging.getLogger(__name__)

POLL_S = 30
TRIES = 6
"""Failed polls in a row, with delays up to half a minute, before the gateway is notified."""
MISSED = 500
"""Limit of messages of a room that are fetched after a downtime; older ones are skipped."""
TYPING_MS = 10_000
FILTER = '{"room": {"timeline": {"limit": 50}, "state": {"lazy_load_members": true}, "ephemeral": {"types": []}}}'
ENCRYPTED = "I cannot read encrypted messages. Please write to me in a room without encryption."


class MatrixAdapter(BasePlatformAdapter):
    """Adapter for one account. A chat is a room; the position of the sync stream is stored in the home."""

    MAX_MESSAGE_LENGTH = 16_000
    supports_code_blocks = True
    typed_command_prefix = "!"  # clients intercept lines that begin with a slash
    idempotent_sends = True  # by transaction ids

    def __init__(self, config, settings):
        super().__init__(config, "matrix")
        self.settings = settings
        self._api = self._rooms = self._syncing = None
        self._me = settings.user_id
        self._questions = ReactionQuestions()
        self._seen, self._read = {}, {}
        self._encryption_notified = set()

    # -- connection ------------------------------------------------------------------------------------------

    async def log_in(self):
        """Log in, so that API calls work. Raises MatrixError, MatrixUnreachable."""
        settings = self.settings
        self._api = MatrixApi(settings.homeserver, settings.access_token)
        if not settings.access_token:
            device = adapter_file("matrix", settings.user_id).read().get("device")
            identifier = {"type": "m.id.user", "user": settings.user_id}
            body = {"type": "m.login.password", "identifier": identifier, "password": settings.password}
            body |= {"device_id": device} if device else {"initial_device_display_name": "Hermes"}
            login = await self._api.call("POST", "login", body=body)
            self._api.token, self._me = login["access_token"], login["user_id"]
            self._save_state(device=login["device_id"])
        else:
            self._me = (await self._api.call("GET", "account", "whoami"))["user_id"]
        self._rooms = Rooms(self._api, self._me)

    async def close(self):
        if self._api is not None:
            await self._api.close()
        self._api = None

    async def connect(self, *, is_reconnect=False):
        identity = f"{self.settings.homeserver}/{self.settings.user_id or self.settings.access_token}"
        if not self._acquire_platform_lock("matrix", identity, "This Matrix account"):
            return False
        try:
            await self.log_in()
        except (MatrixError, MatrixUnreachable) as exc:
            self._give_up(exc)
            await self.close()
            self._release_platform_lock()
            return False
        self._syncing = asyncio.create_task(self._sync(), name=f"matrix {self._me}")
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        syncing, self._syncing = self._syncing, None
        await end_task(syncing)
        await self.close()
        self._release_platform_lock()
        self._mark_disconnected()

    def _give_up(self, exc):
        refused = isinstance(exc, MatrixError) and exc.status in (401, 403)
        text = f"{self.settings.homeserver}: {exc}"
        self._set_fatal_error("refused" if refused else "not_connected", text, retryable=not refused)

    async def _sync(self):
        failures = 0
        try:
            while True:
                since = self._state.read().get("since")
                query = {"since": since, "timeout": str(POLL_S * 1000)} if since else {"timeout": "0"}
                try:
                    answer = await self._api.call("GET", "sync", wait_s=POLL_S, filter=FILTER, **query)
                except (MatrixError, MatrixUnreachable) as exc:
                    failures += 1
                    known = isinstance(exc, MatrixError) and exc.status != 429
                    if known or failures >= TRIES:
                        raise
                    logger.info("[matrix] sync failed, retry: %s", exc)
                    await asyncio.sleep(getattr(exc, "retry_after", None) or min(2.0 ** (failures - 1), 30.0))
                    continue
                failures = 0
                await self._take(answer, since)
                self._save_state(since=answer["next_batch"])  # stored after receipt of all events, so that none is lost
                for room, event_id in self._read.items():
                    await self._quietly("POST", "rooms", room, "receipt", "m.read", event_id, body={})
                self._read.clear()
        except Exception as exc:  # noqa: BLE001 - the gateway reconnects; nothing is lost
            if self._syncing is asyncio.current_task():
                if isinstance(exc, (MatrixError, MatrixUnreachable)):
                    self._give_up(exc)
                else:
                    self._set_fatal_error("sync_failed", f"{type(exc).__name__}: {exc}", retryable=True)
                await self._notify_fatal_error()

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _take(self, answer, since):
        rooms = answer.get("rooms") or {}
        for room in rooms.get("invite") or {} if self.settings.auto_join else ():
            await self._quietly("POST", "join", room, body={})
        for room, news in (rooms.get("join") or {}).items():
            timeline = news.get("timeline") or {}
            events = timeline.get("events") or []
            if since and timeline.get("limited") and timeline.get("prev_batch"):
                events = [*await self._missed(room, timeline["prev_batch"], since), *events]
            joined = next((at for at, event in enumerate(events) if self._is_our_joining(event)), -1)
            for event in events[joined + 1 :] if since else ():  # earlier events were not for the agent
                await self._take_event(room, event)

    def _is_our_joining(self, event):
        is_own = event.get("type") == "m.room.member" and event.get("state_key") == self._me
        before = ((event.get("unsigned") or {}).get("prev_content") or {}).get("membership")
        return is_own and event["content"].get("membership") == "join" and before != "join"

    async def _missed(self, room, start, since):
        """Return the events of a room between two sync answers that neither of them contains."""
        found = []
        while start and len(found) < MISSED:
            query = {"dir": "b", "from": start, "to": since, "limit": "100"}
            answer = await self._api.call("GET", "rooms", room, "messages", **query)
            found += answer.get("chunk") or []
            start = answer.get("end") if answer.get("chunk") else None
        return found[::-1]

    async def _take_event(self, room, event):
        kind = event.get("type")
        if kind in ("m.room.member", "m.room.name", "m.room.encryption"):
            self._rooms.forget(room)
        try:
            message = None
            if kind == "m.reaction" and event.get("sender") != self._me:
                message = await self._reaction_event(room, event)
            elif kind == "m.room.encrypted" and event.get("sender") != self._me:
                await self._notify_encrypted(room)
            elif is_for_us(event, self._me, self.settings.process_notices):
                message = await self._message(room, event)
        except (
            MatrixError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as exc:  # an invalid event must not block later ones
            logger.warning("[matrix] event %s of %s skipped: %r", event.get("event_id"), room, exc)
            return
        if message is not None:
            await self.handle_message(message)
            self._read[room] = event["event_id"]

    async def _message(self, room, event):
        about = await self._rooms.get(room)
        thread, answered = relation_of(event["content"])
        quoted = await self._quietly("GET", "rooms", room, "event", answered) if answered else None
        message = as_message(event, about, self._me, self._source(room, about, event, thread), quoted)
        found = file_of(event)
        if found is not None:
            address, kind, name, mime = found
            try:
                data = await self._api.download(address, self.settings.max_media_bytes)
                cached = cache_media_bytes(data, filename=name, mime_type=mime)
            except (MatrixError, MatrixUnreachable, ValueError) as exc:
                message.text = f"{message.text}\n[The file {name} could not be fetched: {exc}]".strip()
            else:
                if cached is not None:
                    message.attach(cached.path, cached.media_type, kind)
        return message if message.text or message.media_urls else None

    def _source(self, room, about, event, thread):
        own_thread = self.settings.auto_thread and not about.is_direct and not thread
        sender = event["sender"]
        return self.build_source(
            chat_id=room,
            chat_name=about.name,
            chat_type="dm" if about.is_direct else "group",
            user_id=sender,
            user_name=about.members.get(sender, sender),
            thread_id=thread or (event["event_id"] if own_thread else None),
            auto_thread_created=own_thread,
        )

    async def _reaction_event(self, room, event):
        """Return the message that a reaction to a question stands for, or None."""
        relates = event["content"].get("m.relates_to") or {}
        question = self._questions.find(relates.get("event_id"))
        text = question.answers.get(relates.get("key")) if question else None
        if text is None:
            return None
        source = self._source(room, await self._rooms.get(room), event, question.thread)
        source.thread_id, source.auto_thread_created = question.thread, False
        message = MessageEvent(text, source=source, raw_message=event, message_id=event["event_id"])
        message.metadata["addressed"] = True
        return message

    async def _notify_encrypted(self, room):
        if room not in self._encryption_notified:
            self._encryption_notified.add(room)
            logger.warning("[matrix] room %s is encrypted: its messages are not read", room)
            await self._put(room, "m.room.message", {"msgtype": "m.notice", "body": ENCRYPTED})

    async def on_processing_start(self, event):
        if self.settings.reactions and event.message_id:
            self._seen[event.message_id] = await self._react(event.source.chat_id, event.message_id, "👀")

    async def on_processing_complete(self, event, outcome):
        seen = self._seen.pop(event.message_id, None)
        if seen:
            await self.delete_message(event.source.chat_id, seen)
            emoji = {ProcessingOutcome.SUCCESS: "✅", ProcessingOutcome.FAILURE: "❌"}.get(outcome)
            if emoji:
                await self._react(event.source.chat_id, event.message_id, emoji)

    async def _react(self, room, event_id, emoji):
        relates = {"rel_type": "m.annotation", "event_id": event_id, "key": emoji}
        return (await self._put(room, "m.reaction", {"m.relates_to": relates})).message_id

    # -- outgoing messages -------------------------------------------------------------------------------------------

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self._put(chat_id, "m.room.message", {**_text(content), **_relates(reply_to, metadata)}, metadata)

    async def edit_message(self, chat_id, message_id, content, *, finalize=False):
        new = _text(content)
        relates = {"rel_type": "m.replace", "event_id": message_id}
        shown = {**new, "body": f"* {content}", "m.new_content": new, "m.relates_to": relates}
        result = await self._put(chat_id, "m.room.message", shown)
        return SendResult(True, message_id=message_id) if result.success else result

    async def delete_message(self, chat_id, message_id):
        return await self._quietly("PUT", "rooms", chat_id, "redact", message_id, _txn(), body={}) is not None

    async def send_typing(self, chat_id, metadata=None):
        body = {"typing": True, "timeout": TYPING_MS}
        await self._quietly("PUT", "rooms", chat_id, "typing", self._me, body=body)

    async def stop_typing(self, chat_id):
        await self._quietly("PUT", "rooms", chat_id, "typing", self._me, body={"typing": False})

    async def send_image_file(self, chat_id, image_path, caption=None, reply_to=None, metadata=None, **_):
        return await self._file("m.image", chat_id, image_path, caption, reply_to, metadata)

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        return await self._file("m.file", chat_id, file_path, caption, reply_to, metadata)

    async def send_video(self, chat_id, video_path, caption=None, reply_to=None, metadata=None, **_):
        return await self._file("m.video", chat_id, video_path, caption, reply_to, metadata)

    async def send_voice(self, chat_id, audio_path, caption=None, reply_to=None, metadata=None, **_):
        return await self._file("m.audio", chat_id, audio_path, caption, reply_to, metadata)

    async def send_multiple_images(self, chat_id, images, metadata=None, human_delay=0.0):
        for number, (url, alt) in enumerate(images):  # each has a transaction id, so that a retry is safe
            key = (metadata or {}).get("delivery_key")
            own = {**(metadata or {}), **({"delivery_key": f"{key} {number}"} if key else {})}
            result = await self._picture(chat_id, url, alt, own or None)
            if not result.success:
                return result
        return SendResult(True)

    async def send_exec_approval(
        self, chat_id, command, session_key, description="", metadata=None, allow_permanent=True, approval_id="", **more
    ):
        """Ask for a reaction, which stands for a command."""
        lasting = {"permanent": allow_permanent, "session": more.get("allow_session", True)}
        text, answers = ReactionQuestions.approval_question(
            command, description, **lasting, approval_id=approval_id, limit=4000
        )
        return await self._question(chat_id, text, answers, metadata)

    async def send_clarify(self, chat_id, question, choices, clarify_id, session_key, metadata=None):
        """Ask for a reaction with the number of a choice."""
        return await self._question(chat_id, *ReactionQuestions.choice_question(question, choices), metadata)

    async def _question(self, chat_id, text, answers, metadata):
        result = await self.send(chat_id, text, None, metadata)
        if result.success and result.message_id:
            self._questions.remember(result.message_id, answers, (metadata or {}).get("thread_id"))
            for emoji in answers:
                await self._react(chat_id, result.message_id, emoji)
        return result

    async def create_handoff_thread(self, parent_chat_id, name):
        return (await self.send(parent_chat_id, name)).message_id

    async def get_chat_info(self, chat_id):
        try:
            about = await self._rooms.get(await self._rooms.id_of(chat_id))
        except (MatrixError, MatrixUnreachable) as exc:
            logger.info("[matrix] no information about %s: %s", chat_id, exc)
            return {"name": chat_id, "type": "group"}
        return {"name": about.name, "type": "dm" if about.is_direct else "group"}

    async def _file(self, msgtype, chat_id, path, caption, reply_to, metadata):
        if self._api is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        name, mime = Path(path).name, mimetypes.guess_type(str(path))[0] or "application/octet-stream"
        try:
            data = Path(path).read_bytes()  # noqa: ASYNC240 - local files of the agent
            address = await self._api.upload(data, name, mime)
        except OSError as exc:
            return SendResult(False, error=f"cannot read the file: {exc.strerror}", error_kind="unknown")
        except (MatrixError, MatrixUnreachable) as exc:
            return as_result(exc)
        info = {"mimetype": mime, "size": len(data)}
        content = {"msgtype": msgtype, "body": caption or name, "filename": name, "url": address, "info": info}
        return await self._put(chat_id, "m.room.message", {**content, **_relates(reply_to, metadata)}, metadata)

    async def _put(self, chat_id, kind, content, metadata=None):
        """Send an event; the same transaction id is the same event."""
        if self._api is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        try:
            room = await self._rooms.id_of(chat_id)
            if kind == "m.room.message" and content["body"] != ENCRYPTED and (await self._rooms.get(room)).encrypted:
                text = "the room is encrypted: unencrypted messages are not sent there"
                return SendResult(False, error=text, error_kind="forbidden")
            txn = _txn((metadata or {}).get("delivery_key"))
            sent = await self._api.call("PUT", "rooms", room, "send", kind, txn, body=content)
        except (MatrixError, MatrixUnreachable) as exc:
            return as_result(exc)
        return SendResult(True, message_id=sent["event_id"])

    async def _quietly(self, method, *path, body=None):
        """Make a call that is not part of the answer; return None if it fails."""
        try:
            return await self._api.call(method, *path, body=body) if self._api is not None else None
        except (MatrixError, MatrixUnreachable) as exc:
            logger.debug("[matrix] %s %s: %s", method, "/".join(path), exc)
            return None

    @property
    def _state(self):
        return adapter_file("matrix", self._me)

    def _save_state(self, **values):
        with self._state.change() as state:
            state.update(values)


def _txn(key=None):
    return hashlib.sha256(str(key).encode()).hexdigest()[:32] if key else uuid.uuid4().hex


def _text(content):
    message = {"msgtype": "m.text", "body": content, "m.mentions": {}}
    formatted = render(content, MATRIX)
    if formatted == escape(content, quote=False):  # it would say no more than the text
        return message
    return {**message, "format": "org.matrix.custom.html", "formatted_body": formatted}


def _relates(reply_to, metadata):
    thread = (metadata or {}).get("thread_id")
    answered = {"m.in_reply_to": {"event_id": reply_to or thread}} if reply_to or thread else {}
    if thread:
        answered |= {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
    return {"m.relates_to": answered} if answered else {}
