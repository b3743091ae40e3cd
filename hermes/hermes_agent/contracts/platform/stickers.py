"""What stickers show, kept in `HOME/sticker_cache.json`: each is looked at once. Source: plugin contract §11.1."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.contracts.platform.state_file import change_json, read_json

__all__ = [
    "STICKER_VISION_PROMPT",
    "build_animated_sticker_injection",
    "build_sticker_injection",
    "cache_sticker_description",
    "get_cached_description",
]

logger = logging.getLogger(__name__)

STICKER_VISION_PROMPT = (
    "What does this sticker show? Answer with one short sentence: who or what, doing what, in what mood."
)
"""What a model that can see is asked about a sticker."""


def get_cached_description(file_unique_id: str) -> dict[str, Any] | None:
    """Return what is known of a sticker: `description`, `emoji`, `set_name`, `cached_at`; None when it is new."""
    found = read_json(_sticker_file()).get(file_unique_id)
    return found if isinstance(found, dict) else None


def cache_sticker_description(file_unique_id: str, description: str, emoji: str = "", set_name: str = "") -> None:
    """Keep what a sticker shows; a home that cannot be written to is logged, the message goes on."""
    entry = {"description": description, "emoji": emoji, "set_name": set_name, "cached_at": time.time()}
    try:
        with change_json(_sticker_file()) as known:
            known[file_unique_id] = entry
    except OSError as exc:
        logger.warning("the description of a sticker is not kept: %s", exc)


def build_sticker_injection(description: str, emoji: str = "", set_name: str = "") -> str:
    """Return the line that stands in a conversation for a sticker."""
    return f"[Sticker{_sticker_words(emoji, set_name)}, which shows: {_escape_text(description)}]"


def build_animated_sticker_injection(emoji: str = "") -> str:
    """Return the line for a sticker that moves, and that nobody can look at."""
    return f"[Animated sticker{_sticker_words(emoji, '')}; what it shows is not known]"


def _sticker_words(emoji: str, set_name: str) -> str:
    return (f" {_escape_text(emoji)}" if emoji else "") + (
        f' of the set "{_escape_text(set_name)}"' if set_name else ""
    )


def _escape_text(text: str) -> str:
    """Return a foreign text that cannot end the line, or the brackets, that it stands in."""
    return " ".join(text.split()).replace("[", "(").replace("]", ")")


def _sticker_file() -> Path:
    return hermes_home() / "sticker_cache.json"
