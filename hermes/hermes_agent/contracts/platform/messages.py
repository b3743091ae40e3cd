"""A message that came in. Source: plugin contract §8.2.3."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from hermes_agent.contracts.platform.source import SessionSource

__all__ = ["MessageEvent", "MessageType", "ProcessingOutcome", "merge_pending_message_event", "join_texts"]


class MessageType(Enum):
    """What a message is made of."""

    TEXT = "text"
    LOCATION = "location"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"
    STICKER = "sticker"
    COMMAND = "command"


class ProcessingOutcome(Enum):
    """How the work on a message ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


@dataclass
class MessageEvent:
    """A message.

    Attributes:
        media_urls: local paths of what came with it.
        media_types: their MIME types, in the same order.
        auto_skill: a skill, or several, to work with.
        channel_prompt: what the channel adds to the system prompt.
        channel_context: what was said in the channel before.
        internal: made by the agent, not by a person.
    """

    text: str
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    platform_update_id: int | None = None
    media_urls: list[str] = field(default_factory=list)
    media_types: list[str] = field(default_factory=list)
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    reply_to_author_id: str | None = None
    reply_to_author_name: str | None = None
    reply_to_is_own_message: bool = False
    auto_skill: str | list[str] | None = None
    channel_prompt: str | None = None
    channel_context: str | None = None
    internal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=datetime.now)

    def attach(self, path: str, mime: str, kind: MessageType) -> None:
        """Add a file that came with it.

        Args:
            kind: what the message is made of, unless an earlier file said so.
        """
        self.media_urls.append(path)
        self.media_types.append(mime)
        if self.message_type in (MessageType.TEXT, MessageType.COMMAND):
            self.message_type = kind

    def is_command(self) -> bool:
        """Say whether the text begins with a slash."""
        return (self.text or "").startswith("/")

    def get_command(self) -> str | None:
        """Return the command's name, lower case, without `@bot`; None for other texts, and for paths."""
        words = self.text[1:].split(maxsplit=1) if self.is_command() else []
        name = words[0].partition("@")[0].lower() if words and not self.text[1:2].isspace() else ""
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """Return what follows the command; the whole text where there is none."""
        if self.get_command() is None:
            return self.text
        return self.text.partition(self.text.split(maxsplit=1)[0])[2].strip()


def merge_pending_message_event(
    pending_messages: MutableMapping[str, MessageEvent],
    session_key: str,
    event: MessageEvent,
    *,
    merge_text: bool = False,
) -> None:
    """Keep a message for when the session is free: pictures that come in a row become one message.

    Args:
        merge_text: texts are joined, a line each; otherwise the newer one takes the place of the older.
    """
    present = pending_messages.get(session_key)
    if present is None:
        pending_messages[session_key] = event
    elif event.media_urls or present.media_urls:
        if present.message_type is MessageType.TEXT and event.message_type is not MessageType.TEXT:
            present.message_type = event.message_type
        present.media_urls.extend(event.media_urls)
        present.media_types.extend(event.media_types)
        present.text = join_texts(present.text, event.text)
    elif merge_text and present.message_type is event.message_type is MessageType.TEXT:
        present.text = join_texts(present.text, event.text)
    else:
        pending_messages[session_key] = event


def join_texts(first: str, second: str) -> str:
    """Return both texts, a line each; a line that is there already is not added again."""
    lines = first.splitlines() if first else []
    return first if not second or second in lines else "\n".join(part for part in (first, second) if part)
