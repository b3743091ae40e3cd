"""Messages without known secrets, as they are stored, sent and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.redact import MASK, redactor

__all__ = ["mask_arguments", "mask_content", "mask_message"]


def mask_content(content: Content) -> Content:
    """Return `content` with known secrets masked in its text; pictures and files stay."""
    if isinstance(content, str):
        return redactor.mask_known(content)
    return [
        {**part, "text": redactor.mask_known(text)} if isinstance(text := part.get("text"), str) else part
        for part in content
    ]


def mask_message(message: Message) -> Message:
    """Return `message` with known secrets masked in its text and in the arguments of its calls; itself without any."""
    content = mask_content(message.content)
    calls = tuple(_mask_call(call) for call in message.tool_calls)
    if content == message.content and calls == message.tool_calls:
        return message
    return replace(message, content=content, tool_calls=calls)


def mask_arguments(arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a call as they are shown."""
    if not arguments:
        return {}
    text = json.dumps(arguments, default=str)
    shown = redactor.mask_known(text)
    if shown == text:
        return arguments
    found = json.loads(shown) if _is_json(shown) else None
    return found if isinstance(found, dict) else {"arguments": MASK}


def _mask_call(call: ToolCall) -> ToolCall:
    arguments = redactor.mask_known(call.arguments)
    if arguments == call.arguments:
        return call
    if _is_json(call.arguments) and not _is_json(arguments):  # a secret that was split over several values
        arguments = json.dumps({"arguments": MASK})
    return replace(call, arguments=arguments)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
