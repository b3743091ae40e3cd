"""Which messages of a group are meant for the agent. Source: plugin contract §8.2.1.

Adapters know best what a mention is on their service: one that sets `event.metadata["addressed"]` is believed. What it
does not say is told from `mention_patterns`.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from hermes_agent.contracts.platform.messages import MessageEvent
from hermes_agent.contracts.platform.settings import PlatformConfig
from hermes_agent.contracts.platform.source import SessionSource

__all__ = ["is_addressed"]

logger = logging.getLogger(__name__)


def is_addressed(event: MessageEvent, source: SessionSource, config: PlatformConfig) -> bool:
    """Say whether a message is for the agent: in a direct chat all are.

    Keys of `platforms.<name>`: `allowed_chats` (others are not heard), `free_response_chats` (everything is heard),
    `require_mention` (false: the same everywhere), `mention_patterns` (regular expressions).
    """
    if source.chat_type == "dm":
        return True
    here = {one for one in (source.chat_id, source.chat_id_alt, source.parent_chat_id, source.thread_id) if one}
    allowed = _texts(config.extra.get("allowed_chats"))
    if allowed and not here & allowed:
        return False
    if here & _texts(config.extra.get("free_response_chats")):
        return True
    if event.reply_to_is_own_message or event.is_command():
        return True
    addressed = event.metadata.get("addressed")
    if isinstance(addressed, bool):
        return addressed or config.extra.get("require_mention") is False
    patterns = _texts(config.extra.get("mention_patterns"))
    if not patterns or config.extra.get("require_mention") is False:
        return True  # an adapter that knows mentions hands in what is meant, and nothing else
    return any(found.search(event.text or "") for one in patterns if (found := _compiled(one)) is not None)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as exc:
        logger.warning("mention_patterns: %r is no regular expression: %s", pattern, exc)
        return None


def _texts(value: Any) -> frozenset[str]:
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return frozenset(text for one in given if (text := str(one).strip()))
