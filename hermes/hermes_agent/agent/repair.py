"""Make a stored conversation acceptable to a provider, whatever interrupted it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hermes_agent.core.messages import Content, Message
from hermes_agent.tools import tool_error

__all__ = ["LOST_RESULT", "sound"]

LOST_RESULT = tool_error(
    "The end of this call is unknown: the agent stopped before its result was recorded. "
    "It may or may not have taken effect; check before you do it again."
)


def sound(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for each tool call and no two user messages in a row.

    A call without a result gets `LOST_RESULT`; a result without a call is left out; user messages that follow
    each other become one.
    """
    out: list[Message] = []
    open_calls: dict[str, str] = {}
    last = ""
    for message in messages:  # of each request: a plain loop
        role = message.role
        if role == "tool":
            if open_calls.pop(message.tool_call_id, None) is not None:
                out.append(message)
                last = role
            continue
        if open_calls:
            _close(out, open_calls)
            last = "tool"
        if role == "user" and last == "user":
            out[-1] = replace(out[-1], content=_join(out[-1].content, message.content))
            continue
        out.append(message)
        last = role
        if message.tool_calls:
            open_calls = {call.id: call.name for call in message.tool_calls}
    _close(out, open_calls)
    return out


def _close(out: list[Message], open_calls: dict[str, str]) -> None:
    for call_id, name in open_calls.items():
        out.append(Message("tool", LOST_RESULT, tool_call_id=call_id, tool_name=name))
    open_calls.clear()


def _join(one: Content, other: Content) -> Content:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Content) -> list[dict[str, object]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
