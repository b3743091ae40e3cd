"""An answer cut into what goes over the wire: texts by the platform's own length, pictures, files.

Source: plugin contract §8.2.2 (reply pipeline). A part is a JSON object of the outbox: `{"text": …}`,
`{"images": [[address, alternative text], …]}`, `{"file": path, "voice": bool, "document": bool}`; the first text may
have `edit`, the id of the message that it takes the place of; a file that says the answer has `spoken`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.contracts.platform import media_paths, media_tags
from hermes_agent.contracts.platform.chunks import split_message
from hermes_agent.contracts.platform.markdown import strip_markdown
from hermes_agent.contracts.platform.outlet import MessageSender
from hermes_agent.contracts.platform.sent_files import copy_sent_file

__all__ = [
    "Part",
    "split_text",
    "message_limit",
    "is_sent_singly",
    "reply_parts",
    "can_play_audio",
    "reply_target",
    "audio_part",
]

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
    document = media_tags.AS_DOCUMENT in said
    for path, voice in media_paths.filter_media_delivery_paths(media):
        if is_open(path) and (kept := copy_sent_file(path)):
            parts.append({"file": kept, "voice": voice, "document": document and not voice})
    for path in filter(is_open, media_paths.filter_local_delivery_paths(files)):
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
    _, said = media_tags.extract_media(text)
    said = strip_markdown(media_tags.extract_images(media_tags.blank_code(said))[1])[:MAX_SPEECH_LENGTH].strip()
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
        found, rest = getattr(adapter, method, getattr(media_tags, method))(text)
        return list(found), str(rest)
    except Exception as exc:  # noqa: BLE001 - a plugin's code: the answer goes out all the same
        logger.warning("the adapter's %s failed: %r", method, exc)
        return [], text
