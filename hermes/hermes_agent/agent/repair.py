"""Make a stored conversation acceptable to a provider, whatever interrupted it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hermes_agent.core.messages import Content, Message
from hermes_agent.tools import tool_error

__all__ = ["LOST_RESULT", "Repair", "sound"]

LOST_RESULT = tool_error(
    "The end of this call is unknown: the agent stopped before its result was recorded. "
    "It may or may not have taken effect; check before you do it again."
)


def sound(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for each tool call and no two user messages in a row.

    A call without a result gets `LOST_RESULT`; a result without a call is left out; user messages that follow
    each other become one.
    """
    return Repair().of(messages)


class Repair:
    """`sound` for a conversation that grows: only what is new is looked at."""

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._out: list[Message] = []
        self._open_calls: dict[str, str] = {}

    def of(self, messages: Sequence[Message]) -> list[Message]:
        """Return what `sound` does; messages that are as they were the last time stay the same objects."""
        if self._seen != messages[: len(self._seen)]:  # the same objects: quick for any number
            self._seen, self._out, self._open_calls = [], [], {}
        for message in messages[len(self._seen) :]:
            self._take(message)
            self._seen.append(message)
        return [*self._out, *_lost(self._open_calls)]

    def _take(self, message: Message) -> None:
        out = self._out
        if message.role == "tool":
            if self._open_calls.pop(message.tool_call_id, None) is not None:
                out.append(message)
            return
        out += _lost(self._open_calls)
        self._open_calls = {call.id: call.name for call in message.tool_calls}
        if message.role == "user" and out and out[-1].role == "user":
            out[-1] = replace(out[-1], content=_join(out[-1].content, message.content))
        else:
            out.append(message)


def _lost(open_calls: Mapping[str, str]) -> list[Message]:
    return [Message("tool", LOST_RESULT, tool_call_id=id_, tool_name=name) for id_, name in open_calls.items()]


def _join(one: Content, other: Content) -> Content:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Content) -> list[dict[str, object]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
