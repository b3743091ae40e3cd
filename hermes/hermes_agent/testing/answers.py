"""What a scripted model may answer: a text, JSON, tool calls, or a failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import ToolCall

__all__ = ["ModelFailure", "Reply", "ScriptedAnswer", "call", "reply_of"]


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """The server answers with an error instead of a message."""

    message: str
    status: int = 500
    """HTTP status: 401 a wrong key, 429 too many requests, 5xx the server's own fault."""
    retry_after_s: float | None = None
    """Seconds in the header `Retry-After`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An assistant's message as it goes over the wire."""

    text: str
    calls: tuple[ToolCall, ...] = ()


Plain = str | Mapping[str, Any] | ToolCall | Sequence[ToolCall] | Reply | ModelFailure
ScriptedAnswer = Plain | Callable[[dict[str, Any]], Plain]
"""A text; a mapping (its JSON is the text); one or several tool calls; a `Reply` with both; a failure; or a function
that is given the request's body and returns one of these."""


def call(tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> ToolCall:
    """Return a tool call for a script: `call("roll", sides=6)`, or `call("roll", {"sides": 6})`."""
    return ToolCall(new_id("call"), tool, json.dumps({**(arguments or {}), **more}))


def reply_of(answer: ScriptedAnswer, request: dict[str, Any]) -> Reply | ModelFailure:
    """Return what goes over the wire.

    Raises:
        TypeError: `answer` is nothing that a model can say.
    """
    if callable(answer):
        answer = answer(request)
    if isinstance(answer, (ModelFailure, Reply)):
        return answer
    if isinstance(answer, str):
        return Reply(answer)
    if isinstance(answer, ToolCall):
        return Reply("", (answer,))
    if isinstance(answer, Mapping):
        return Reply(json.dumps(answer))
    calls = tuple(item for item in answer if isinstance(item, ToolCall)) if isinstance(answer, Sequence) else ()
    if calls and len(calls) == len(answer):
        return Reply("", calls)
    raise TypeError(f"a scripted model cannot answer {answer!r}: expected text, a mapping, call(…) or ModelFailure(…)")
