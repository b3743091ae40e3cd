"""Adapter for an XMPP account: contacts and rooms are chats."""

import asyncio
import logging
import mimetypes
import uuid
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slixmpp.exceptions import PresenceError
from slixmpp.jid import JID, InvalidJID

from hermes_agent.adapters.adapter_state import MessageDeduplicator, ReadPositions
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, MessageType, ProcessingOutcome, SendResult
from hermes_agent.adapters.markdown import XMPP, render
from hermes_agent.adapters.media import cache_media_bytes, fetch_media
from hermes_agent.adapters.questions import ReactionQuestions
from hermes_agent.adapters.text import as_command, strip_mention
from hermes_agent.core.tasks import end_task

from . import stanzas
from .stream import XmppRefused, XmppStream
from .uploads import UploadFailed, Uploads

logger = logging.getLogger(__name__)

ANSWER_S = 30.0
TYPING_S = 20.0
REFERENCES = 2000
KINDS = {"image": MessageType.PHOTO, "video": MessageType.VIDEO, "audio": MessageType.AUDIO}
ENCRYPTED = "I cannot read encrypted messages. Please turn encryption (OMEMO) off for this chat."
FAILURES = {
    "item-not-found": "not_found",
    "service-unavailable": "not_found",
    "remote-server-not-found": "not_found",
    "gone": "not_found",
    "forbidden": "forbidden",
    "not-allowed": "forbidden",
    "not-authorized": "forbidden",
    "not-acceptable": "forbidden",
    "registration-required": "forbidden",
    "resource-constraint": "rate_limited",
    "policy-violation": "too_long",
}


class XmppAdapter(BasePlatformAdapter):
    """Adapter for one account. A chat is the address of a contact or room, or of an occupant of a room."""

    MAX_MESSAGE_LENGTH = 10_000
    sends_any_file = True
    supports_code_blocks = True
    typed_command_prefix = "!"  # clients intercept lines that begin with a slash

    def __init__(self, config, settings):
        super().__init__(config, "xmpp")
        self.settings = settings
        self._stream = self._uploads = self._watching = None
        self._rooms = {}  # rooms to join, and their passwords
        self._joined, self._is_room = {}, {}
        self._waiting, self._references = {}, {}
        self._typing_at, self._encryption_notified = {}, set()
        self._seen, self._questions = MessageDeduplicator(), ReactionQuestions()
        self._read_positions = ReadPositions("xmpp", settings.jid)
        self._invitations = ReadPositions("xmpp_invitations", settings.jid)
        self._alone = False

    # -- connection ------------------------------------------------------------------------------------------

    async def connect_alone(self):
        """Connect for sending only, without presence, in parallel to a running gateway."""
        self._alone = True
        if not await self.connect():
            raise ConnectionError(self.fatal_error_message)

    async def connect(self, *, is_reconnect=False):
        settings = self.settings
        if not self._alone and not self._acquire_platform_lock("xmpp", settings.jid, f"The account {settings.jid}"):
            return False
        try:
            if settings.tls not in ("starttls", "direct", "none"):
                raise XmppRefused(
                    "bad_settings", f"platforms.xmpp.tls is {settings.tls!r}: starttls, direct or none", final=True
                )
            resource = f"send-{uuid.uuid4().hex[:8]}" if self._alone else "hermes"
            stream = self._stream = XmppStream(
                settings, resource, self._take, self._on_stream_begin, self._on_stream_lost
            )
            stream.client.add_event_handler("groupchat_presence", self._on_presence)
            self._uploads = Uploads(stream)
            await stream.open()
        except (XmppRefused, InvalidJID, OSError) as exc:
            await self.disconnect()
            code, final = getattr(exc, "code", "bad_settings"), getattr(exc, "final", True)
            self._set_fatal_error(code, f"{settings.jid}: {exc}", retryable=not final)
            return False
        if not self._alone:
            wanted = {room.lower(): next(iter(key), None) for room, *key in map(str.split, settings.rooms)}
            self._rooms = {**{room: key or None for room, key in self._invitations.items()}, **wanted}
            await asyncio.gather(*(self._join(room) for room in self._rooms))
            self._watching = asyncio.create_task(self._watch(), name=f"xmpp {settings.jid}")
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        stream, watching = self._stream, self._watching
        self._stream = self._watching = None
        await end_task(watching)
        if stream is not None:
            await stream.close()
            self._read_positions.write()
        self._joined.clear()
        self._release_platform_lock()
        self._mark_disconnected()

    def _on_stream_begin(self):
        if not self._alone:
            self._stream.client.send_presence()
        for room in list(self._joined):  # the rooms do not know a new stream
            del self._joined[room]
            self._spawn(self._join(room))

    def _on_stream_lost(self, exc):
        self._set_fatal_error(exc.code, f"{self.settings.jid}: {exc}", retryable=not exc.final)
        self._spawn(self._notify_fatal_error())

    def _spawn(self, work):
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _watch(self):
        """Check the connection and the rooms periodically."""
        while True:
            await asyncio.sleep(self.settings.ping_interval)
            stream = self._stream
            if stream.client.transport is None or stream.is_held:
                continue
            try:
                await stream.ping()
            except TimeoutError as exc:
                logger.info("[xmpp] %s", exc)
                stream.client.abort()
                continue
            for room in [room for room in self._rooms if room not in self._joined]:
                await self._join(room)

    async def _join(self, room):
        """Join a room with its messages since the last visit; return whether that worked."""
        since = self._read_positions.get(room)
        history = {"since": datetime.fromisoformat(since)} if since else {"maxstanzas": 0}
        muc, nick = self._stream.client.plugin["xep_0045"], self.settings.nickname
        try:
            for name in (nick, f"{nick}-{uuid.uuid4().hex[:4]}"):
                try:
                    self._joined[room] = name  # messages during the join are those of others
                    password = self._rooms.get(room)
                    await muc.join_muc_wait(JID(room), name, password=password, timeout=ANSWER_S, **history)
                    break
                except PresenceError as exc:
                    self._joined.pop(room, None)
                    if exc.condition != "conflict" or name != nick:
                        raise
        except (PresenceError, TimeoutError, InvalidJID) as exc:
            self._joined.pop(room, None)
            logger.warning("[xmpp] cannot join %s: %s", room, getattr(exc, "condition", None) or exc)
            return False
        self._is_room[room] = True
        return True

    def _on_presence(self, presence):
        room, nick = presence["from"].bare, presence["from"].resource
        gone = presence["type"] == "unavailable" and nick == self._joined.get(room)
        if gone and 303 not in presence["muc"]["status_codes"]:  # status 303 is a change of the nick
            logger.warning("[xmpp] removed from %s", room)
            del self._joined[room]

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _take(self, stanza):
        try:
            event = await self._event(stanza.xml, stanza["from"])
        except (KeyError, TypeError, ValueError) as exc:  # an invalid stanza must not block later ones
            logger.warning("[xmpp] message of %s skipped: %r", stanza["from"], exc)
            return
        if event is None:
            return
        try:
            await self.handle_message(event)
        except BaseException:
            self._seen.discard(f"{event.source.chat_id} {event.message_id}")
            raise
        if event.source.chat_type == "group":
            self._read_positions.put(event.source.chat_id, event.timestamp.astimezone(UTC).isoformat())
        elif stanzas.find(stanza.xml, stanzas.RECEIPTS, "request") is not None and stanza["id"]:
            self._send_extra(
                event.source.chat_id, lambda xml: stanzas.add(xml, stanzas.RECEIPTS, "received", id=stanza["id"])
            )

    async def _event(self, xml, sender):
        """Return the message of a stanza of another user, or None."""
        kind, bare = xml.get("type", "normal"), sender.bare
        if kind == "error":
            return self._resolve_send(xml.get("id"), *stanzas.error_of(xml))
        if kind == "groupchat" and sender.resource in ("", self._joined.get(bare)):
            return self._resolve_send(xml.get("id"), "", stanzas.archive_id(xml, bare))
        invited = stanzas.invitation(xml)
        if invited is not None:
            return await self._on_invitation(*invited)
        if bare == self._stream.jid or stanzas.find(xml, stanzas.CORRECT, "replace") is not None:
            return None
        archived = stanzas.archive_id(xml, bare if kind == "groupchat" else self._stream.jid)
        identity = archived or stanzas.own_id(xml) or uuid.uuid4().hex
        in_room = kind != "groupchat" and bare in self._joined
        chat = sender.full if in_room else bare
        if self._seen.is_duplicate(f"{chat} {identity}"):
            return None
        self._remember_reference(identity, archived if kind == "groupchat" else stanzas.own_id(xml) or identity)
        event = MessageEvent("", raw_message=xml, message_id=identity, source=self._source(xml, sender, chat, kind))
        event.timestamp = stanzas.sent_at(xml) or datetime.now(UTC)
        if stanzas.find(xml, stanzas.REACTIONS, "reactions") is not None:
            return self._reaction_event(xml, event)
        if stanzas.find(xml, stanzas.OMEMO, "encrypted") is not None:
            return self._notify_encrypted(chat, event.source)
        return await self._text_event(xml, event, bare)

    def _source(self, xml, sender, chat, kind):
        bare, nick = sender.bare, sender.resource
        person = bare
        if bare in self._joined:  # a nick in a room does not identify a user
            jid = self._stream.client.plugin["xep_0045"].get_jid_property(bare, nick, "jid")
            person = JID(jid).bare if jid else sender.full
        thread = stanzas.text_of(xml, stanzas.CLIENT, "thread") if self.settings.threads else ""
        return self.build_source(
            chat_id=chat,
            chat_name=chat,
            chat_type="group" if kind == "groupchat" else "dm",
            user_id=person,
            user_name=nick if bare in self._joined else sender.user,
            thread_id=thread or None,
        )

    async def _text_event(self, xml, event, bare):
        text, quoted = stanzas.body_of(xml)
        address = (
            stanzas.text_of(stanzas.find(xml, stanzas.OOB, "x"), stanzas.OOB, "url")
            if (stanzas.find(xml, stanzas.OOB, "x") is not None)
            else ""
        )
        text = text.replace(address, "").strip() if address else text
        if event.source.chat_type == "group":
            text, event.metadata["addressed"] = strip_mention(text, [self._joined[bare]])
        event.text = as_command(text)
        answered = stanzas.find(xml, stanzas.REPLY, "reply")
        if answered is not None:
            event.reply_to_message_id, event.reply_to_text = answered.get("id"), quoted or None
            author = JID(answered.get("to") or "")
            event.reply_to_author_id = author.full or None
            event.reply_to_is_own_message = author.bare == self._stream.jid or author.resource == self._joined.get(
                author.bare
            )
        if address:
            await self._fetch(address, event)
        return event if event.text or event.media_urls else None

    async def _fetch(self, address, event):
        name = unquote(urlsplit(address).path.rpartition("/")[2]) or "file"
        mime = mimetypes.guess_type(name)[0] or ""
        try:
            data = await fetch_media(address, max_bytes=self.settings.max_media_bytes)
            cached = cache_media_bytes(data, filename=name, mime_type=mime)
        except Exception as exc:  # noqa: BLE001 - the message is received without its file
            event.text = f"{event.text}\n[The file {name} could not be fetched: {exc}]".strip()
            return
        if cached is not None:
            voice = cached.kind == "audio" and name.endswith((".ogg", ".oga", ".opus"))
            event.attach(
                cached.path,
                cached.media_type,
                MessageType.VOICE if voice else KINDS.get(cached.kind, MessageType.DOCUMENT),
            )

    def _reaction_event(self, xml, event):
        """Return the message that a reaction to a question stands for, or None."""
        reactions = stanzas.find(xml, stanzas.REACTIONS, "reactions")
        question = self._questions.find(reactions.get("id") or "")
        given = [reaction.text for reaction in reactions]
        event.text = next((text for emoji, text in question.answers.items() if emoji in given), "") if question else ""
        if not event.text:
            return None
        event.source.thread_id = question.thread
        event.metadata["addressed"] = True
        return event

    async def _on_invitation(self, room, inviter, password):
        """Join a room after an invitation of an authorized user."""
        room, user = JID(room).bare, JID(inviter).bare
        if not self.settings.auto_join or room in self._joined:
            return
        if self._is_sender_authorized(user, "dm", user) is False:
            logger.info("[xmpp] invitation of %s to %s ignored: no access", user, room)
            return
        self._rooms[room] = password
        if await self._join(room):
            self._invitations.put(room, password or "")
            self._read_positions.put(room, datetime.now(UTC).isoformat())

    def _notify_encrypted(self, chat, source):
        """Reply once to an authorized user that encrypted messages are not read."""
        allowed = self._is_sender_authorized(source.user_id, source.chat_type, chat) is not False
        if allowed and chat not in self._encryption_notified:
            self._encryption_notified.add(chat)
            logger.warning("[xmpp] messages of %s are encrypted and not read", chat)
            self._spawn(self._send_text(chat, ENCRYPTED))

    async def on_processing_start(self, event):
        self._react(event, ["👀"])

    async def on_processing_complete(self, event, outcome):
        self._react(event, {ProcessingOutcome.SUCCESS: ["✅"], ProcessingOutcome.FAILURE: ["❌"]}.get(outcome, []))

    def _react(self, event, emojis):
        if self.settings.reactions and event.message_id in self._references:
            self._set_reactions(event.source.chat_id, event.message_id, emojis)

    def _set_reactions(self, chat, message_id, emojis):
        def reacts(xml):
            reactions = stanzas.add(
                xml, stanzas.REACTIONS, "reactions", id=self._references.get(message_id, message_id)
            )
            for emoji in emojis:
                stanzas.add(reactions, stanzas.REACTIONS, "reaction", emoji)
            stanzas.add(xml, stanzas.HINTS, "store")

        self._send_extra(chat, reacts)

    # -- outgoing messages -------------------------------------------------------------------------------------------

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self._send_text(chat_id, render(content, XMPP), reply_to, metadata)

    async def edit_message(self, chat_id, message_id, content, *, finalize=False):
        def corrects(xml):
            stanzas.add(xml, stanzas.CORRECT, "replace", id=message_id)

        result = await self._send_text(chat_id, render(content, XMPP), extra=corrects)
        return SendResult(True, message_id=message_id) if result.success else result

    async def delete_message(self, chat_id, message_id):
        def retracts(xml):
            stanzas.add(xml, stanzas.RETRACT, "retract", id=self._references.get(message_id, message_id))
            stanzas.add(xml, stanzas.FALLBACK, "fallback", **{"for": stanzas.RETRACT})

        return (await self._send_text(chat_id, "(This message was retracted.)", extra=retracts)).success

    async def send_typing(self, chat_id, metadata=None):
        now = asyncio.get_running_loop().time()
        if now - self._typing_at.get(chat_id, -TYPING_S) >= TYPING_S:
            self._typing_at[chat_id] = now
            self._send_extra(chat_id, lambda xml: stanzas.add(xml, stanzas.STATES, "composing"))

    async def stop_typing(self, chat_id):
        if self._typing_at.pop(chat_id, None) is not None:
            self._send_extra(chat_id, lambda xml: stanzas.add(xml, stanzas.STATES, "active"))

    async def send_image(self, chat_id, image_url, caption=None, reply_to=None, metadata=None):
        return await self._link(chat_id, image_url, caption, reply_to, metadata)

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        if self._stream is None:
            return _not_connected()
        try:
            address = await self._uploads.put(Path(file_path), file_name)
        except OSError as exc:
            return SendResult(False, error=f"cannot read the file: {exc.strerror}", error_kind="unknown")
        except UploadFailed as exc:
            if exc.retryable:
                return SendResult(False, error=str(exc), retryable=True, error_kind="transient")
            logger.warning("[xmpp] file not sent: %s: %s", file_path, exc)
            return await super().send_document(chat_id, file_path, caption, file_name, reply_to, metadata)
        return await self._link(chat_id, address, caption, reply_to, metadata)

    async def _link(self, chat_id, address, caption, reply_to, metadata):
        def points(xml):
            stanzas.add(stanzas.add(xml, stanzas.OOB, "x"), stanzas.OOB, "url", address)

        # clients show a file inline only if the address is the whole text
        result = await self._send_text(chat_id, address, None if caption else reply_to, metadata, extra=points)
        if result.success and caption:
            await self._send_text(chat_id, render(caption, XMPP), reply_to, metadata)
        return result

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
        if result.success and answers:
            thread = (metadata or {}).get("thread_id")
            for identity in {result.message_id, self._references.get(result.message_id, result.message_id)}:
                self._questions.remember(identity, answers, thread)
            self._set_reactions(chat_id, result.message_id, answers)
        return result

    async def send_private_notice(self, chat_id, user_id, content, reply_to=None, metadata=None):
        muc = self._stream.client.plugin["xep_0045"] if self._stream is not None and chat_id in self._joined else None
        for nick in muc.get_roster(chat_id) or () if muc is not None else ():
            jid = muc.get_jid_property(chat_id, nick, "jid")
            if user_id in (f"{chat_id}/{nick}", JID(jid).bare if jid else None):
                return await self.send(f"{chat_id}/{nick}", content, None, metadata)
        return await self.send(chat_id, content, reply_to, metadata)

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "group" if await self._knows_room(chat_id) else "dm"}

    async def _send_text(self, chat, body, reply_to=None, metadata=None, extra=None):
        """Send a text; return when the server has received it, or when the room has shown it."""
        stream = self._stream
        if stream is None or stream.client.transport is None:
            return _not_connected()
        try:
            in_room = await self._knows_room(chat)
            if in_room and chat not in self._joined and not await self._join(chat):
                return SendResult(False, error=f"not in the room {chat}", error_kind="forbidden")
            message = stream.client.make_message(JID(chat), mtype="groupchat" if in_room else "chat")
        except InvalidJID:
            return SendResult(False, error=f"{chat!r} is no address", error_kind="not_found")
        xml, identity = message.xml, uuid.uuid4().hex
        message["id"] = identity
        stanzas.add(xml, stanzas.CLIENT, "body", body)
        stanzas.add(xml, stanzas.IDS, "origin-id", id=identity)
        stanzas.add(xml, stanzas.STATES, "active")
        self._typing_at.pop(chat, None)
        thread = (metadata or {}).get("thread_id")
        if thread and self.settings.threads:
            stanzas.add(xml, stanzas.CLIENT, "thread", thread)
        if reply_to in self._references:
            stanzas.add(xml, stanzas.REPLY, "reply", id=self._references[reply_to], to=chat)
        if extra is not None:
            extra(xml)
        waiting = self._waiting[identity] = asyncio.get_running_loop().create_future()
        try:
            stream.client.send(message)
            await (asyncio.wait_for(asyncio.shield(waiting), ANSWER_S) if in_room else stream.ping())
        except TimeoutError as exc:
            return SendResult(False, error=f"timed out, it may have arrived: {exc}", error_kind="unknown")
        finally:
            self._waiting.pop(identity, None)
        condition, detail = waiting.result() if waiting.done() else ("", "")
        if condition:
            kind = FAILURES.get(condition, "transient")
            return SendResult(False, error=f"{chat}: {condition} {detail}".strip(), error_kind=kind)
        self._remember_reference(identity, detail or identity)
        return SendResult(True, message_id=identity)

    def _resolve_send(self, identity, condition, detail):
        waiting = self._waiting.get(identity)
        if waiting is not None and not waiting.done():
            waiting.set_result((condition, detail))
        elif condition:
            logger.info("[xmpp] message returned: %s %s", condition, detail)

    def _remember_reference(self, identity, reference):
        """Store the id by which others refer to a message."""
        self._references[identity] = reference
        while len(self._references) > REFERENCES:
            del self._references[next(iter(self._references))]

    def _send_extra(self, chat, fill):
        """Send a stanza that is not part of the answer, without waiting."""
        stream = self._stream
        if stream is not None and stream.client.transport is not None:
            message = stream.client.make_message(JID(chat), mtype="groupchat" if self._is_room.get(chat) else "chat")
            fill(message.xml)
            stream.client.send(message)

    async def _knows_room(self, chat):
        if chat not in self._is_room and self._stream is not None:
            categories = set() if JID(chat).resource else (await self._stream.about(JID(chat)))[0]
            self._is_room[chat] = "conference" in categories
        return self._is_room.get(chat, False)


def _not_connected():
    return SendResult(False, error="not connected", retryable=True, error_kind="transient")
