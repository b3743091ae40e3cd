"""The texts of messages that were sent and that their service does not quote in an answer to them.

Kept in `HOME/rich_sent_messages.json`, so that an answer can be read together with what it answers. Source: plugin
contract §11.1.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.contracts.platform.state_file import change_json, read_json

__all__ = ["MAX_SENT_TEXTS", "MAX_TEXT", "lookup", "record"]

logger = logging.getLogger(__name__)

MAX_SENT_TEXTS = 1000
"""Messages that are kept; the oldest are forgotten first."""
MAX_TEXT = 4000
"""Characters of a text that are kept."""


def record(chat_id: str, message_id: str, text: str) -> None:
    """Keep the text of a message that was sent; a home that cannot be written to is logged, the message is out."""
    if not chat_id or not message_id or not text:
        return
    try:
        with change_json(_sent_texts_file()) as sent:
            key = _message_key(chat_id, message_id)
            sent.pop(key, None)  # a text that is sent again is the newest
            sent[key] = {"text": text[:MAX_TEXT], "at": time.time()}
            for oldest in list(sent)[: max(0, len(sent) - MAX_SENT_TEXTS)]:
                del sent[oldest]
    except OSError as exc:
        logger.warning("the text of message %s is not kept: %s", message_id, exc)


def lookup(chat_id: str, message_id: str) -> str | None:
    """Return the text of a message that was sent; None when it is not known, or forgotten."""
    found = read_json(_sent_texts_file()).get(_message_key(chat_id, message_id))
    text = found.get("text") if isinstance(found, dict) else None
    return text if isinstance(text, str) else None


def _message_key(chat_id: str, message_id: str) -> str:
    return f"{chat_id}:{message_id}"


def _sent_texts_file() -> Path:
    return hermes_home() / "rich_sent_messages.json"
