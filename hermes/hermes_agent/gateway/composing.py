"""What the model is told of a message: its text, where it answers something, pictures, files. Source: contract §8.2."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_agent.contracts.platform.messages import MessageEvent
from hermes_agent.core.foreign import mark_untrusted
from hermes_agent.core.messages import Content

__all__ = ["Transcribe", "model_content"]

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
