"""Conversions of chat messages: event to JSON and model input, answer to parts, parts to the platform.

A part is a JSON object of the outbox: `{"text": …}`, `{"images": [[URL, alternative text], …]}` or
`{"file": path, "voice": bool, "document": bool}`. The first text may have `edit`, the id of the message that it
replaces; an audio file of the answer has `spoken`. A target `PLATFORM[:CHAT[:THREAD]]` names a chat for scheduled jobs
and `hermes send`. Source: plugin contract §8.2, §8.2.2 (reply pipeline).
"""

from __future__ import annotations

import base64
import json
import logging
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_agent.adapters import media_references
from hermes_agent.adapters.adapter_state import copy_sent_file
from hermes_agent.adapters.config import PlatformEntry, cron_target
from hermes_agent.adapters.events import (
    MessageEvent,
    MessageType,
    SendResult,
    SessionSource,
    as_send_result,
    call_optional,
    call_send,
)
from hermes_agent.adapters.media_references import file_method
from hermes_agent.adapters.registry import GatewayConfig
from hermes_agent.adapters.sender import MessageSender
from hermes_agent.adapters.text import classify_send_error, is_timeout_error, split_message, strip_markdown
from hermes_agent.contracts.speech import StreamingTTSHandle
from hermes_agent.core.calls import call_supported, overrides
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import Content
from hermes_agent.core.redaction import redactor
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.delivery import Begin, DeliveryCheck, OutboxClaim, ReplyTarget, SendOutcome
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.runtime.bridge import Bridge

_SEPARATE_FIELDS = frozenset({"source", "message_type", "raw_message", "timestamp", "metadata", "prompt_response"})
_TEXT_FIELDS = ("text", "reply_to_text", "channel_context")
"""Fields with text of users, which is stored with known secrets masked."""
_PLAIN_FIELDS = tuple(field.name for field in fields(MessageEvent) if field.name not in _SEPARATE_FIELDS)


def to_payload(event: MessageEvent) -> dict[str, Any]:
    """Return a message as JSON types, without objects of the adapter and metadata that is no JSON."""
    assert event.source is not None
    return {
        **{name: _json_fields(getattr(event, name)) for name in _PLAIN_FIELDS},
        **{name: redactor.mask_known(text) for name in _TEXT_FIELDS if isinstance(text := getattr(event, name), str)},
        "source": event.source.to_dict(),
        "message_type": event.message_type.value,
        "timestamp": event.timestamp.isoformat(),
        "metadata": {str(key): value for key, value in event.metadata.items() if _is_json(value)},
    }


def from_payload(payload: Mapping[str, Any]) -> MessageEvent:
    """Return the message of a `to_payload` value; keys of newer releases are ignored.

    Raises:
        ValueError: the platform is not registered.
    """
    plain = {name: payload[name] for name in _PLAIN_FIELDS if name in payload}
    return MessageEvent(
        **plain,
        source=SessionSource.from_dict(payload["source"]),
        message_type=MessageType(payload["message_type"]),
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        metadata=dict(payload.get("metadata") or {}),
    )


def _json_fields(value: Any) -> Any:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>\d[\d.]*|[$<].+)")
"""The id of a chat may have colons; the last part is a thread if it looks like a thread id."""


def parse_target(
    text: str, config: GatewayConfig, entries: Mapping[str, PlatformEntry], environ: Mapping[str, str]
) -> ReplyTarget:
    """Return the target of a text; without a chat it is the home channel of the platform.

    Args:
        entries: the registered platforms by name.

    Raises:
        UserError: there is no such platform, or it has no home channel.
    """
    name, _, rest = text.strip().partition(":")
    known = {platform.value: platform for platform in config.platforms}
    if name not in known and name not in entries:
        names = ", ".join(sorted(known.keys() | entries.keys())) or "none"
        raise UserError(f"there is no platform {name!r}", hint=f"Platforms: {names}.")
    if rest:
        return parse_chat_target(name, rest, entries.get(name))
    named = cron_target(entries[name], environ) if name in entries else None
    home = config.get_home_channel(known[name]) if name in known else None
    if named is None and home is not None:
        named = home.chat_id, home.thread_id
    if named is None:
        raise UserError(
            f"{text!r} names no chat, and {name} has no home channel",
            hint=f"Write {name}:CHAT, or set platforms.{name}.home_channel.",
        )
    return ReplyTarget(name, named[0], named[1] or "")


def parse_chat_target(platform: str, rest: str, entry: PlatformEntry | None = None) -> ReplyTarget:
    """Return the target of `CHAT[:THREAD]`, or of a text that the platform's own functions read and check.

    Raises:
        UserError: the platform refuses the chat, or one of its functions fails.
    """
    match = _THREAD.fullmatch(rest)
    target = ReplyTarget(platform, match["chat"], match["thread"]) if match else ReplyTarget(platform, rest)
    if entry is None:
        return target
    try:
        parsed = entry.parse_target_ref_fn(rest) if entry.parse_target_ref_fn is not None else None
        if parsed is not None:
            target = ReplyTarget(platform, str(parsed[0]), str(parsed[1] or ""))
        verdict = entry.validate_target_ref_fn(target.chat) if entry.validate_target_ref_fn is not None else True
    except Exception as exc:
        raise UserError(f"platform {platform}: target {rest!r} cannot be read: {type(exc).__name__}: {exc}") from exc
    if verdict is True:
        return target
    why = f": {verdict}" if isinstance(verdict, str) and verdict else ""
    raise UserError(f"{rest!r} is no target of platform {platform}{why}")


MAX_PICTURE_BYTES = 5 * 1024 * 1024
MAX_PICTURES = 8
MAX_QUOTE_LENGTH = 500
"""Characters of a quoted message."""


Transcribe = Callable[[str], str]
"""Return the text of an audio file; "" if no provider can transcribe it."""


def model_content(
    event: MessageEvent, text: str, *, shared: bool, supports_images: bool, transcribe: Transcribe | None = None
) -> Content:
    """Return the user message of a turn. Reads images, so it must not run on the core loop.

    Args:
        text: text of the user, or the message of a skill.
        shared: whether several users share the session; each message then names its author.
        transcribe: returns the text of an audio file; None: audio files are named like other files.
        supports_images: whether the model accepts images; otherwise they are named like other files.
    """
    source = event.source
    lines = []
    if event.channel_context:
        lines.append(f"[Said here before:]\n{mark_untrusted(event.channel_context, 'others in this channel')}\n")
    if event.reply_to_text:
        lines.append(_quoted_message(event, event.reply_to_text[:MAX_QUOTE_LENGTH]))
    author = (source.user_name or source.user_id) if source is not None and shared else None
    lines.append(f"[{author}] {text}" if author else text)
    pictures: list[dict[str, Any]] = []
    for number, path in enumerate(event.media_urls):
        kind = event.media_types[number] if number < len(event.media_types) else ""
        kind = kind or mimetypes.guess_type(path)[0] or "application/octet-stream"
        part = _picture(path, kind) if supports_images and len(pictures) < MAX_PICTURES else None
        if part is not None:
            pictures.append(part)
        speech = transcribe(path) if transcribe is not None and kind.startswith("audio/") else ""
        if speech:
            lines.append(f'[A recording came with it, in which is said: "{speech}"]')
            continue
        lines.append(f"[{'Picture' if kind.startswith('image/') else 'File'} that came with it: {path} ({kind})]")
    whole = "\n".join(line for line in lines if line)
    return [{"type": "text", "text": whole}, *pictures] if pictures else whole


def _quoted_message(event: MessageEvent, text: str) -> str:
    """Return the quoted message between marks, because its author may be another user."""
    if event.reply_to_is_own_message:
        return f"[This answers your message:]\n{mark_untrusted(text, '')}"
    source = f"message of {event.reply_to_author_name or 'another user'}"
    return f"[This answers a message of another user:]\n{mark_untrusted(text, source)}"


def _picture(path: str, kind: str) -> dict[str, Any] | None:
    """Return an image as a content part; None if it is no image, too large or missing."""
    if not kind.startswith("image/"):
        return None
    try:
        data = Path(path).read_bytes() if Path(path).stat().st_size <= MAX_PICTURE_BYTES else b""
    except OSError:  # the cache was cleared: the text still names the path
        return None
    if not data:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


logger = logging.getLogger(__name__)

Part = dict[str, Any]
MAX_SPEECH_LENGTH = 4000
"""Largest number of spoken characters of an answer."""


def reply_parts(
    text: str, adapter: Any, max_length: int = 0, *, is_open: Callable[[str], bool], edit: str = "", chat: str = ""
) -> list[Part]:
    """Return the parts of an answer. Reads files and calls the adapter, so it runs in a worker.

    Args:
        is_open: returns whether the session may send a file; files of other users are not sent.
        max_length: limit of the platform's entry; the adapter's own limit wins.
        edit: id of a message that the first text replaces.
        chat: id of the chat, which may have a limit of its own.
    """
    rest, media, images, files = media_references.extract_references(text, adapter)
    parts: list[Part] = [{"text": chunk} for chunk in split_text(rest, adapter, max_length, chat)]
    if parts and edit:
        parts[0]["edit"] = edit
    connections = [[url, alt] for url, alt in images]
    parts += [
        {"images": group}
        for group in ([[connection] for connection in connections] if is_sent_singly(adapter) else [connections])
        if group
    ]
    document = media_references.AS_DOCUMENT in text
    for path, voice in media_references.filter_media_delivery_paths(media):
        if is_open(path) and (copied := copy_sent_file(path)):
            parts.append({"file": copied, "voice": voice, "document": document and not voice})
    for path in filter(is_open, media_references.filter_local_delivery_paths(files)):
        if copied := copy_sent_file(path):
            parts.append({"file": copied, "voice": False, "document": document})
    return parts


def is_sent_singly(adapter: Any) -> bool:
    """Return whether a platform sends several images one after another."""
    return getattr(type(adapter), "send_multiple_images", None) is MessageSender.send_multiple_images


def can_play_audio(adapter: Any) -> bool:
    """Return whether a platform can send audio files."""
    kind = type(adapter)
    own = (getattr(kind, name, None) is not getattr(MessageSender, name) for name in ("send_voice", "play_tts"))
    return any(own) or getattr(kind, "sends_any_file", False) is True


def spoken_text(text: str) -> str:
    """Return what is spoken of an answer: no code, files or markup."""
    _, speech = media_references.extract_media(text)
    plain = strip_markdown(media_references.extract_images(media_references.blank_code(speech))[1])
    return plain[:MAX_SPEECH_LENGTH].strip()


def audio_part(text: str, synthesize: Callable[[str], str]) -> list[Part]:
    """Return the audio part of an answer, or [] if there is none. Runs in a worker."""
    speech = spoken_text(text)
    path = synthesize(speech) if speech else ""
    return [{"file": path, "voice": True, "document": False, "spoken": True}] if path else []


class SpokenReply(LazyNamedTuple):
    """An answer that a platform plays while it is made."""

    adapter: Any
    handle: StreamingTTSHandle
    pieces: Iterator[bytes]

    async def play(self, bridge: Bridge, limit_s: float) -> None:
        """Pass each piece to the adapter; a failure or a cancel aborts it. `limit_s`: for one piece."""
        try:
            while not self.handle.aborted:
                piece = await bridge.run(next, self.pieces, None, deadline_s=limit_s)
                if piece is None:
                    break
                await bridge.on_plugin(self.adapter.write_streaming_tts(self.handle, piece), deadline_s=limit_s)
            await bridge.on_plugin(self.adapter.finish_streaming_tts(self.handle), deadline_s=limit_s)
        except BaseException as exc:
            try:
                await bridge.on_plugin(self.adapter.abort_streaming_tts(self.handle, exc), deadline_s=limit_s)
            except Exception as failed:  # noqa: BLE001 - the adapter of a plugin; the first failure matters more
                logger.warning("platform %s: speech was not given up cleanly: %r", self.adapter.name, failed)
            if not isinstance(exc, Exception):
                raise
            logger.warning("platform %s: speech ended early: %r", self.adapter.name, exc)


async def begin_spoken_reply(
    bridge: Bridge, adapter: Any, source: SessionSource, text: str, stream: Callable[[str], Any], limit_s: float
) -> SpokenReply | None:
    """Begin to play an answer; return None if the platform or the provider makes files alone.

    Args:
        stream: returns the speech of a text while it is made, or None.
    """
    own = getattr(type(adapter), "begin_streaming_tts", None)
    if own in (None, MessageSender.begin_streaming_tts):
        return None
    speech = await bridge.run(lambda: stream(spoken) if (spoken := spoken_text(text)) else None, deadline_s=limit_s)
    if speech is None or not adapter.supports_streaming_tts(source.chat_id, speech.format):
        return None
    where = {"thread_id": source.thread_id} if source.thread_id else None
    begun = adapter.begin_streaming_tts(source.chat_id, speech.format, where)
    handle = await bridge.on_plugin(begun, deadline_s=limit_s)
    return None if handle is None else SpokenReply(adapter, handle, speech.pieces)


def split_text(text: str, adapter: Any, max_length: int = 0, chat: str = "") -> list[str]:
    """Return the messages of a text; [] for a blank text."""
    if not text.strip():
        return []
    limit = message_limit(adapter, max_length, chat)
    if limit <= 0 or getattr(adapter, "splits_long_messages", False):
        return [text]
    try:
        own = bool(chat) and overrides(adapter, MessageSender, "message_len_fn_for_chat")
        length = adapter.message_len_fn_for_chat(chat) if own else getattr(adapter, "message_len_fn", len)
        return [str(chunk) for chunk in adapter.truncate_message(text, limit, length)]
    except Exception as exc:  # noqa: BLE001 - plugin code: the answer is sent anyway
        logger.warning("adapter: truncate_message failed, splitting by characters: %r", exc)
        return split_message(text, limit, None)


def message_limit(adapter: Any, max_length: int = 0, chat: str = "") -> int:
    """Return the length limit of a message of a chat; 0: the adapter takes care of it."""
    if chat and overrides(adapter, MessageSender, "max_message_length_for_chat"):
        try:
            return max(int(adapter.max_message_length_for_chat(chat)), 0)
        except Exception as exc:  # noqa: BLE001 - plugin code: the limit of the platform counts
            logger.warning("adapter: max_message_length_for_chat failed: %r", exc)
    own = getattr(adapter, "MAX_MESSAGE_LENGTH", 0)
    return own if isinstance(own, int) and own > 0 else max_length


def reply_target(part: Mapping[str, Any], index: int, message: str, mode: str) -> str | None:
    """Return the message that a part quotes: `first` for one part, `all` for each, `off` for none."""
    return message if message and "text" in part and mode != "off" and (mode == "all" or index == 0) else None


SEND_S = 120.0
"""Time limit of an adapter for one message; after it, it is unknown whether the message arrived."""

DEGRADED_S = 5.0
"""Delay before the next look at an adapter with `send_path_degraded`."""
MAX_UNKNOWN_ATTEMPTS = 8
"""Attempts within two minutes for a failure without a known kind. Then the message is dropped, so that later messages
of the chat are sent."""
REPEATED = "(repeated) "


class PlatformDelivery:
    """Delivers to one platform while its adapter is connected (`delivery.Deliver`)."""

    def __init__(self, connection: AdapterConnection, bridge: Bridge) -> None:
        self._connection = connection
        self._bridge = bridge

    async def deliver(self, sending: OutboxClaim, begin: Begin) -> SendOutcome:
        """Send a part. `begin` is awaited here, unless the adapter does that itself."""
        adapter = self._connection.adapter
        if getattr(adapter, "send_path_degraded", False) is True:
            return SendOutcome.not_attempted("the adapter reports that messages would not arrive", DEGRADED_S)
        metadata: dict[str, Any] = {"notify": True, "delivery_key": sending.key}
        if sending.target.thread:
            metadata["thread_id"] = sending.target.thread
        if getattr(adapter, "begins_sends", False):
            metadata["begin_send"] = begin
        else:
            await begin()
        try:
            result = await self._bridge.on_plugin(self._send(adapter, sending, metadata), deadline_s=SEND_S)
        except TimeoutError:
            return SendOutcome.unknown(f"no answer within {SEND_S:g} s")
        return _outcome(result, sending)

    async def check(self, sending: OutboxClaim) -> DeliveryCheck:
        """Return whether another attempt is safe: the service drops a second message with the same key."""
        return (
            DeliveryCheck.safe()
            if getattr(self._connection.adapter, "idempotent_sends", False)
            else DeliveryCheck.unknown()
        )

    async def _send(self, adapter: Any, sending: OutboxClaim, metadata: Mapping[str, Any]) -> SendResult:
        part, chat = sending.part, sending.target.chat
        try:
            if "text" in part:
                return await self._text(adapter, sending, metadata)
            if "images" in part:
                images = [(str(url), str(alt)) for url, alt in part["images"]]
                if len(images) == 1 and is_sent_singly(adapter):  # it returns a result
                    return await _call_method(adapter, "_picture", (chat, *images[0], metadata), {})
                return await _call_method(adapter, "send_multiple_images", (chat, images), {"metadata": metadata})
            method = file_method(str(part["file"]), as_document=bool(part.get("document")))
            method = "play_tts" if part.get("spoken") and hasattr(adapter, "play_tts") else method
            return await _call_method(adapter, method, (chat, str(part["file"])), {"metadata": metadata})
        except Exception as exc:  # noqa: BLE001 - plugin code: the failure becomes a result
            logger.warning("platform %s: send failed: %s: %s", self._connection.name, type(exc).__name__, exc)
            return SendResult(False, error=f"{type(exc).__name__}: {exc}", error_kind=classify_send_error(exc))

    async def _text(self, adapter: Any, sending: OutboxClaim, metadata: Mapping[str, Any]) -> SendResult:
        chat, text = sending.target.chat, str(sending.part["text"])
        preview = str(sending.part.get("edit") or "")
        if preview:
            edited = await _call_method(adapter, "edit_message", (chat, preview, text), {"finalize": True})
            if edited.success:
                return SendResult(True, message_id=edited.message_id or preview)
            await call_optional(adapter, "delete_message", chat, preview)
        text = REPEATED + text if sending.repeat else text
        mode = str(getattr(self._connection.config, "reply_to_mode", "first"))
        quoted = reply_target(sending.part, sending.index, sending.reply_to, mode)
        result = await call_send(adapter, chat, text, quoted, metadata)
        if not result.success and _kind(result) == "bad_format":
            return await call_send(adapter, chat, strip_markdown(text) or text, quoted, metadata)
        return result


def _outcome(result: SendResult, sending: OutboxClaim) -> SendOutcome:
    """Return the outcome of a result for the outbox."""
    if result.success:
        return SendOutcome.sent(str(result.message_id or ""))
    reason, kind = result.error or "send() failed", _kind(result)
    if kind in ("forbidden", "not_found"):
        # a forbidden file says nothing about the chat: parking the target would also stop its texts
        return SendOutcome.park(reason) if "text" in sending.part else SendOutcome.refused(reason)
    if kind in ("too_long", "bad_format"):
        return SendOutcome.refused(reason)
    if kind == "rate_limited" or result.retryable:
        return SendOutcome.retry(reason, result.retry_after)
    if is_timeout_error(reason):
        return SendOutcome.unknown(reason)
    if kind == "transient" or sending.attempt < MAX_UNKNOWN_ATTEMPTS:
        return SendOutcome.retry(reason, result.retry_after)
    return SendOutcome.refused(reason)


def _kind(result: SendResult) -> str:
    kind = result.error_kind or "unknown"
    if kind != "unknown" or is_timeout_error(result.error):  # a message that may have arrived was not refused
        return kind
    return classify_send_error(None, result.error or "")


async def _call_method(adapter: Any, method: str, leading: tuple[Any, ...], offered: Mapping[str, Any]) -> SendResult:
    """Call a method of an adapter; return a failure if it is missing."""
    function = getattr(adapter, method, None)
    if not callable(function):
        return SendResult(False, error="Not supported", error_kind="bad_format")
    value = call_supported(function, tuple(("", value) for value in leading), offered)
    return as_send_result(await value)
