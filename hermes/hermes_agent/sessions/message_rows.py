"""Messages as rows of `state.db`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hermes_agent.core.messages import Content, Message, ToolCall

__all__ = ["COLUMNS", "message_of", "row_of"]

COLUMNS = "role, content, tool_calls, tool_call_id, tool_name, extras"
_PARTS = "\x00parts:"
"""Marks a content that is a list of parts; no text of a person starts with a NUL."""


def row_of(message: Message) -> list[str]:
    """Return the columns `COLUMNS`."""
    calls, extras = _encode_calls(message.tool_calls), message.extras
    return [
        message.role,
        _encode(message.content),
        calls,
        message.tool_call_id,
        message.tool_name,
        json.dumps(extras, ensure_ascii=False) if extras else "",
    ]


def message_of(row: Sequence[Any]) -> Message:
    """Read the columns `COLUMNS`."""
    extras = json.loads(row[5]) if row[5] else None
    return Message(row[0], _decode(row[1]), _decode_calls(row[2]), row[3], row[4], extras)


def _encode(content: Content) -> str:
    return content if isinstance(content, str) else _PARTS + json.dumps(content, ensure_ascii=False)


def _decode(text: str) -> Content:
    if text.startswith(_PARTS):
        parts: list[dict[str, Any]] = json.loads(text[len(_PARTS) :])
        return parts
    return text


def _encode_calls(calls: Sequence[ToolCall]) -> str:
    return json.dumps([[c.id, c.name, c.arguments] for c in calls], ensure_ascii=False) if calls else ""


def _decode_calls(text: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(*item) for item in json.loads(text)) if text else ()
