"""How long a conversation is, by a rough count: four bytes are a token, more or less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["rough_tokens", "tokens_of"]

_BYTES = 4
_OF_A_MESSAGE = 6
"""Role and marks."""
_OF_A_PICTURE = 1200
"""What a picture, or another part that is not text, is taken for."""


def tokens_of(text: str) -> int:
    """Return about how many tokens a text has."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // _BYTES


def rough_tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return about how many tokens messages of the chat-completions form have."""
    return sum(map(_of_message, messages))


def _of_message(message: Mapping[str, Any]) -> int:
    content = message.get("content") or ""
    count = _OF_A_MESSAGE
    for part in [content] if isinstance(content, str) else content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        count += tokens_of(text) if isinstance(text, str) else _OF_A_PICTURE
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        count += _OF_A_MESSAGE + tokens_of(f"{function.get('name')}{function.get('arguments')}")
    return count
