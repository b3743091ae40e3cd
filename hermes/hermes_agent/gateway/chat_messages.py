"""A message of a platform as JSON, as it waits in the inbox.

Where a text goes that answers nobody: `PLATFORM[:CHAT[:THREAD]]`, as scheduled jobs and `hermes send` name it.

What the model is told of a message: its text, where it answers something, pictures, files. Source: contract §8.2.

An answer cut into what goes over the wire: texts by the platform's own length, pictures, files.

Source: plugin contract §8.2.2 (reply pipeline). A part is a JSON object of the outbox: `{"text": …}`,
`{"images": [[address, alternative text], …]}`, `{"file": path, "voice": bool, "document": bool}`; the first text may
have `edit`, the id of the message that it takes the place of; a file that says the answer has `spoken`.

One part of a reply goes to its platform, and what became of it. Source: plugin contract §8.2.2.
"""

from __future__ import annotations

import base64
import json
import logging
import mimetypes
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_agent.adapters import media_references
from hermes_agent.adapters.adapter_state import copy_sent_file
from hermes_agent.adapters.events import (
    MessageEvent,
    MessageType,
    SendResult,
    SessionSource,
    as_send_result,
    call_optional,
    call_send,
    classify_send_error,
    is_timeout_error,
)
from hermes_agent.adapters.media_references import file_method
from hermes_agent.adapters.registry import GatewayConfig, PlatformEntry, cron_target
from hermes_agent.adapters.sender import MessageSender
from hermes_agent.adapters.text import split_message, strip_markdown
from hermes_agent.core.calls import call_supported
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Content
from hermes_agent.core.redaction import redactor
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.delivery import Begin, DeliveryCheck, OutboxClaim, ReplyTarget, SendOutcome
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.runtime.bridge import Bridge

_SEPARATE_FIELDS = frozenset({"source", "message_type", "raw_message", "timestamp", "metadata"})
_TEXT_FIELDS = ("text", "reply_to_text", "channel_context")
"""What users wrote: it is stored without known secrets."""
_PLAIN_FIELDS = tuple(field.name for field in fields(MessageEvent) if field.name not in _SEPARATE_FIELDS)


def to_payload(event: MessageEvent) -> dict[str, Any]:
    """Return a message as JSON types; `raw_message`, and of `metadata` what is no JSON, stay behind."""
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
    """Read what `to_payload` gave; a newer release's further keys are left out.

    Raises:
        ValueError: nobody registered its platform.
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
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>\d[\d.]*|[$<].+)")
"""A chat's own name may have colons; the last piece is a thread where it looks like one."""


def parse_target(
    text: str, config: GatewayConfig, entries: Mapping[str, PlatformEntry], environ: Mapping[str, str]
) -> ReplyTarget:
    """Return the target; without a chat it is where the platform's messages without an addressee go.

    Args:
        entries: the platforms that there are, by name.

    Raises:
        UserError: there is no such platform, or none of its chats is its home.
    """
    name, _, rest = text.strip().partition(":")
    known = {platform.value: platform for platform in config.platforms}
    if name not in known and name not in entries:
        names = ", ".join(sorted(known.keys() | entries.keys())) or "none is there"
        raise UserError(f"there is no platform {name!r}", hint=f"Platforms: {names}.")
    if rest:
        return parse_chat_target(name, rest)
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


def parse_chat_target(platform: str, rest: str) -> ReplyTarget:
    """Return the target of `CHAT[:THREAD]`."""
    match = _THREAD.fullmatch(rest)
    return ReplyTarget(platform, match["chat"], match["thread"]) if match else ReplyTarget(platform, rest)


MAX_PICTURE_BYTES = 5 * 1024 * 1024
MAX_PICTURES = 8
MAX_QUOTE_LENGTH = 500
"""Characters of the message that is answered."""


Transcribe = Callable[[str], str]
"""Returns what a recording says; empty when nobody can tell."""


def model_content(
    event: MessageEvent, text: str, *, shared: bool, sees: bool, hear: Transcribe | None = None
) -> Content:
    """Return the user's message of a turn. It reads pictures: not for the core loop.

    Args:
        text: what was said, or what a skill makes of it.
        shared: several people speak in this session: each message says whose it is.
        hear: writes down recordings; None leaves them as files.
        sees: the model looks at pictures; otherwise it is told their paths, as of other files.
    """
    source = event.source
    lines = []
    if event.channel_context:
        lines.append(f"[Said here before:]\n{mark_untrusted(event.channel_context, 'others in this channel')}\n")
    if event.reply_to_text:
        lines.append(_quoted_message(event, event.reply_to_text[:MAX_QUOTE_LENGTH]))
    who = (source.user_name or source.user_id) if source is not None and shared else None
    lines.append(f"[{who}] {text}" if who else text)
    pictures: list[dict[str, Any]] = []
    for number, path in enumerate(event.media_urls):
        kind = event.media_types[number] if number < len(event.media_types) else ""
        kind = kind or mimetypes.guess_type(path)[0] or "application/octet-stream"
        part = _picture(path, kind) if sees and len(pictures) < MAX_PICTURES else None
        if part is not None:
            pictures.append(part)
        said = hear(path) if hear is not None and kind.startswith("audio/") else ""
        if said:
            lines.append(f'[A recording came with it, in which is said: "{said}"]')
            continue
        lines.append(f"[{'Picture' if kind.startswith('image/') else 'File'} that came with it: {path} ({kind})]")
    whole = "\n".join(line for line in lines if line)
    return [{"type": "text", "text": whole}, *pictures] if pictures else whole


def _quoted_message(event: MessageEvent, text: str) -> str:
    """Return the message that is answered, between marks: who answers it did not write it."""
    if event.reply_to_is_own_message:
        return f"[This answers your message:]\n{mark_untrusted(text, '')}"
    whose = f"message of {event.reply_to_author_name or 'somebody'}"
    return f"[This answers a message of somebody else:]\n{mark_untrusted(text, whose)}"


def _picture(path: str, kind: str) -> dict[str, Any] | None:
    """Return a picture as a part; None for what is none, too large, or gone."""
    if not kind.startswith("image/"):
        return None
    try:
        data = Path(path).read_bytes() if Path(path).stat().st_size <= MAX_PICTURE_BYTES else b""
    except OSError:  # the cache was cleared: the path in the text says what there was
        return None
    if not data:
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


logger = logging.getLogger(__name__)

Part = dict[str, Any]
MAX_SPEECH_LENGTH = 4000
"""Characters of an answer that are spoken."""


def reply_parts(
    text: str, adapter: Any, max_length: int = 0, *, is_open: Callable[[str], bool], edit: str = ""
) -> list[Part]:
    """Return the parts of an answer. It looks at files and calls the adapter's own code: not for the core loop.

    Args:
        is_open: says whether a file is open to the session that answers; another user's is not sent.
        max_length: what the platform's entry says; the adapter's own number wins.
        edit: id of a message that is to become the first text.
    """
    said = text
    media, text = _extract(adapter, "extract_media", said)
    images, text = _extract(adapter, "extract_images", text)
    files, text = _extract(adapter, "extract_local_files", text)
    parts: list[Part] = [{"text": chunk} for chunk in split_text(text, adapter, max_length)]
    if parts and edit:
        parts[0]["edit"] = edit
    pictures = [[url, alt] for url, alt in images]
    parts += [
        {"images": some} for some in ([[one] for one in pictures] if is_sent_singly(adapter) else [pictures]) if some
    ]
    document = media_references.AS_DOCUMENT in said
    for path, voice in media_references.filter_media_delivery_paths(media):
        if is_open(path) and (kept := copy_sent_file(path)):
            parts.append({"file": kept, "voice": voice, "document": document and not voice})
    for path in filter(is_open, media_references.filter_local_delivery_paths(files)):
        if kept := copy_sent_file(path):
            parts.append({"file": kept, "voice": False, "document": document})
    return parts


def is_sent_singly(adapter: Any) -> bool:
    """Say whether a platform sends several pictures as it sends one after another."""
    return getattr(type(adapter), "send_multiple_images", None) is MessageSender.send_multiple_images


def can_play_audio(adapter: Any) -> bool:
    """Say whether a platform takes recordings."""
    kind = type(adapter)
    own = (getattr(kind, name, None) is not getattr(MessageSender, name) for name in ("send_voice", "play_tts"))
    return any(own) or getattr(kind, "sends_any_file", False) is True


def audio_part(text: str, speak: Callable[[str], str]) -> list[Part]:
    """Return the part that says an answer; none when there is nothing to say, or nobody speaks. In a worker."""
    _, said = media_references.extract_media(text)
    said = strip_markdown(media_references.extract_images(media_references.blank_code(said))[1])[
        :MAX_SPEECH_LENGTH
    ].strip()
    path = speak(said) if said else ""
    return [{"file": path, "voice": True, "document": False, "spoken": True}] if path else []


def split_text(text: str, adapter: Any, max_length: int = 0) -> list[str]:
    """Cut a text into messages; none for a blank one."""
    if not text.strip():
        return []
    limit = message_limit(adapter, max_length)
    if limit <= 0 or getattr(adapter, "splits_long_messages", False):
        return [text]
    length = getattr(adapter, "message_len_fn", len)
    try:
        return [str(chunk) for chunk in adapter.truncate_message(text, limit, length)]
    except Exception as exc:  # noqa: BLE001 - a plugin's code: the answer goes out all the same
        logger.warning("the adapter could not cut a text, it is cut by characters: %r", exc)
        return split_message(text, limit, None)


def message_limit(adapter: Any, max_length: int = 0) -> int:
    """Return how long a message may be; 0 means that the adapter sees to it."""
    own = getattr(adapter, "MAX_MESSAGE_LENGTH", 0)
    return own if isinstance(own, int) and own > 0 else max_length


def reply_target(part: Mapping[str, Any], index: int, message: str, mode: str) -> str | None:
    """Return which message a part answers: `first` marks one part, `all` each, `off` none."""
    return message if message and "text" in part and mode != "off" and (mode == "all" or index == 0) else None


def _extract(adapter: Any, method: str, text: str) -> tuple[list[Any], str]:
    """Let the adapter take something out of a text; one that cannot leaves it in."""
    try:
        found, rest = getattr(adapter, method, getattr(media_references, method))(text)
        return list(found), str(rest)
    except Exception as exc:  # noqa: BLE001 - a plugin's code: the answer goes out all the same
        logger.warning("the adapter's %s failed: %r", method, exc)
        return [], text


SEND_S = 120.0
"""Longest time that an adapter may take for one message; after it nobody knows whether it arrived."""
MAX_UNKNOWN_ATTEMPTS = 8
"""Attempts, within two minutes, for a failure that says nothing about itself; then the message is given up, not the
chat, whose next messages wait for it."""
REPEATED = "(repeated) "


class PlatformDelivery:
    """Delivers to one platform while its adapter is connected (`delivery.Deliver`)."""

    def __init__(self, link: AdapterConnection, bridge: Bridge) -> None:
        self._link = link
        self._bridge = bridge

    async def deliver(self, sending: OutboxClaim, begin: Begin) -> SendOutcome:
        """Send one part; `begin` is awaited here, unless the adapter does it later itself."""
        adapter = self._link.adapter
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
        """Say whether sending again is safe: where the service drops a second message of the same key."""
        return (
            DeliveryCheck.safe() if getattr(self._link.adapter, "idempotent_sends", False) else DeliveryCheck.unknown()
        )

    async def _send(self, adapter: Any, sending: OutboxClaim, metadata: Mapping[str, Any]) -> SendResult:
        part, chat = sending.part, sending.target.chat
        try:
            if "text" in part:
                return await self._text(adapter, sending, metadata)
            if "images" in part:
                images = [(str(url), str(alt)) for url, alt in part["images"]]
                if len(images) == 1 and is_sent_singly(adapter):  # it says what became of it
                    return await _call_method(adapter, "_picture", (chat, *images[0], metadata), {})
                return await _call_method(adapter, "send_multiple_images", (chat, images), {"metadata": metadata})
            method = file_method(str(part["file"]), as_document=bool(part.get("document")))
            method = "play_tts" if part.get("spoken") and hasattr(adapter, "play_tts") else method
            return await _call_method(adapter, method, (chat, str(part["file"])), {"metadata": metadata})
        except Exception as exc:  # noqa: BLE001 - a plugin's code: the failure becomes a result
            logger.warning("platform %s: sending failed: %s: %s", self._link.name, type(exc).__name__, exc)
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
        mode = str(getattr(self._link.config, "reply_to_mode", "first"))
        answered = reply_target(sending.part, sending.index, sending.reply_to, mode)
        result = await call_send(adapter, chat, text, answered, metadata)
        if not result.success and _kind(result) == "bad_format":
            return await call_send(adapter, chat, strip_markdown(text) or text, answered, metadata)
        return result


def _outcome(result: SendResult, sending: OutboxClaim) -> SendOutcome:
    """Return what a result means for the outbox."""
    if result.success:
        return SendOutcome.sent(str(result.message_id or ""))
    reason, kind = result.error or "send() failed", _kind(result)
    if kind in ("forbidden", "not_found"):
        # a file that is not allowed there says nothing about the chat: its texts would wait behind it for ever
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
    said = result.error_kind or "unknown"
    if said != "unknown" or is_timeout_error(result.error):  # what may have arrived was not refused
        return said
    return classify_send_error(None, result.error or "")


async def _call_method(adapter: Any, method: str, leading: tuple[Any, ...], offered: Mapping[str, Any]) -> SendResult:
    """Call an adapter's method; one that it lacks says so."""
    function = getattr(adapter, method, None)
    if not callable(function):
        return SendResult(False, error="Not supported", error_kind="bad_format")
    value = call_supported(function, tuple(("", one) for one in leading), offered)
    return as_send_result(await value)
