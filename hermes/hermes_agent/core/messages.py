"""Messages of a conversation, the event stream of a turn, and ids of sessions, turns and calls.

`Message.to_dict` and `Message.from_dict` convert to and from the chat-completions form. Plugins get that form as
`conversation_history` (plugin contract §3.3), and the transcript stores it.

A turn yields any number of `TextDelta`, `ToolStarted`, `ToolFinished` and `Notice` events. It ends with exactly one
`TurnFinished` or raises a `UserError`; the session is consistent in both cases. Ids can be sorted by time and read in a
log.

Source: plugin contract §3.2, §4.4.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from hermes_agent.core.lazy_types import lazy_dataclass

_random = random.Random()
"""Ids are no secrets, and a system call for each costs time."""
os.register_at_fork(after_in_child=_random.seed)


def new_session_id(now: float | None = None) -> str:
    """Return a date, a time and six hex digits (UTC), the form of upstream's session ids."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(time.time() if now is None else now))
    return f"{stamp}_{secrets.token_hex(3)}"


def new_id(prefix: str) -> str:
    """Return the prefix, an underscore and 16 random hex digits."""
    return f"{prefix}_{_random.getrandbits(64):016x}"


Role = Literal["system", "user", "assistant", "tool"]

Content = str | list[dict[str, Any]]
"""Text, or a list of parts of the chat-completions protocol (`{"type": "text", "text": …}`, …)."""


@lazy_dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model requests."""

    id: str
    name: str
    arguments: str
    """JSON text exactly as the model wrote it; it may be invalid."""


@lazy_dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation."""

    role: Role
    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of an assistant message, in the model's order."""
    tool_call_id: str = ""
    """Id of the call that a tool message answers."""
    tool_name: str = ""
    """Name of the tool of a tool message; not sent to the provider."""
    extras: Mapping[str, Any] | None = field(default=None, compare=False)
    """Data that a provider wants back with an assistant message (thoughts with their signatures), by provider name.

    Only the wire protocol that read it knows its form. Other providers do not get it, and `to_dict` leaves it out.
    """
    last_encoding: tuple[object, Sequence[bytes]] | None = field(default=None, init=False, compare=False, repr=False)
    """The encoder that encoded this message last, and the result (`models.wire_protocol`)."""
    runs: Any = field(default=None, init=False, compare=False, repr=False)
    """The encoding of the conversation up to this message (`models.wire_protocol.EncodedRuns`), or None."""
    masked_secrets: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)
    """The known secrets that are masked in it (`core.redaction.mask_message`); None if it was not searched."""

    @property
    def text(self) -> str:
        """The text of the content, without parts of other types."""
        return text_content(self.content)

    def to_dict(self) -> dict[str, Any]:
        """Return the chat-completions form."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            out["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.tool_calls
            ]
            out["content"] = self.content or None
        if self.role == "tool":
            out["tool_call_id"] = self.tool_call_id
        return out

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Message:
        """Read the chat-completions form.

        Raises:
            ValueError: the role is unknown, the content is neither text nor a list of parts, or a tool call is invalid.
        """
        role = value.get("role")
        if role == "developer":
            role = "system"
        if role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"unknown role {role!r}: expected system, user, assistant or tool")
        content = value.get("content")
        if content is None:
            content = ""
        if not isinstance(content, str | list):
            raise ValueError(f"content of a {role} message is {type(content).__name__}: expected text or parts")
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            raise ValueError(f"content of a {role} message has a part that is no mapping")
        given = value.get("tool_calls") or []
        if not isinstance(given, list):
            raise ValueError(f"tool_calls is {type(given).__name__}: expected a list")
        calls = tuple(_call(item) for item in given)
        return cls(role, content, calls, str(value.get("tool_call_id") or ""), str(value.get("name") or ""))


def _call(item: Any) -> ToolCall:
    function = item.get("function") if isinstance(item, dict) else None
    if not isinstance(function, dict):
        raise ValueError("an entry of tool_calls is no call: expected `id` and `function`")
    arguments = function.get("arguments") or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(str(item.get("id") or ""), str(function.get("name") or ""), text)


@lazy_dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or the sum of a turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Part of the input tokens that the provider read from its prompt cache."""
    details: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


def begins_with(messages: Sequence[Message], start: list[Message]) -> bool:
    """Return whether messages begin with others; lists of the same objects are compared by pointers.

    The operator compares the items in order; a slice would count a reference to each of them.
    """
    if not isinstance(messages, list):
        return start == list(messages[: len(start)])
    try:
        return bool(start <= messages)  # False for a shorter list
    except TypeError:  # two of them differ, and messages have no order
        return False


def assistant_text(messages: Iterable[Message]) -> str:
    """Return the text of the assistant messages."""
    return "\n\n".join(m.text for m in messages if m.role == "assistant" and m.text)


def text_content(content: Content) -> str:
    """Return the text of `content`: itself, or its text parts joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(str(p.get("text", "")) for p in content if p.get("type") in ("text", "input_text"))


ToolStatus = Literal["ok", "error", "blocked", "cancelled", "timeout"]
"""How a tool call ended; the values of `status` of `post_tool_call` (plugin contract §3.2)."""

TurnEnd = Literal["answered", "interrupted", "budget", "stopped"]
"""Why a turn ended.

`budget`: the steps or tokens are spent, and the last answer has no tool calls. `stopped`: the agent ended the turn with
its own sentence, because the model repeated itself or reached a limit of the operator.
"""


FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]
"""Why an answer ended, in the terms of chat completions.

`stop`: the model finished. `length`: a limit of tokens or steps. `content_filter`: the provider withheld the rest.
"""


@lazy_dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, in order."""

    text: str


@lazy_dataclass(frozen=True, slots=True)
class StopSentence(TextDelta):
    """The sentence with which the agent itself ends a turn (`stopped`)."""


@lazy_dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, in order; only for a front end that asks for it."""

    text: str


@lazy_dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call that is about to run."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@lazy_dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of a command that a tool call runs, as it comes; only for a front end that asks for it."""

    call_id: str
    text: str


@lazy_dataclass(frozen=True, slots=True)
class ToolFinished:
    """The result of a tool call, which goes to the model."""

    call_id: str
    name: str
    result: str
    status: ToolStatus
    duration_ms: int


@lazy_dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the user that is not part of the answer."""

    text: str
    level: Literal["info", "warning"] = "info"


@lazy_dataclass(frozen=True, slots=True)
class TurnFinished:
    """The end of the turn."""

    text: str
    """The whole reply after `transform_llm_output`; empty if the turn was interrupted before any text."""
    reason: TurnEnd
    usage: Usage
    model: str
    turn_id: str = ""
    """Stays the same when an interrupted turn resumes."""
    finish_reason: FinishReason = "stop"
    """How the last answer of the model ended; `tool_calls`: with calls of the caller's tools."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of the caller's tools, which the caller runs."""

    @property
    def reply_finish_reason(self) -> FinishReason:
        """`length` if a limit ended the turn, otherwise how the last answer ended."""
        return self.finish_reason if self.reason == "answered" else "length"


TurnEvent = TextDelta | ReasoningDelta | ToolStarted | ToolOutput | ToolFinished | Notice | TurnFinished
"""One item of the event stream. `Conversation.turn` and its variants produce it, `fold` reads it."""
Event = TurnEvent


class TurnSink:
    """A reader of the event stream with a method for each kind of event; the default ignores it."""

    def event(self, event: TurnEvent) -> None:
        """Handle one event: call the method of its kind. Override it to see each event."""
        match event:
            case StopSentence(text):
                self.stop_sentence(text)
            case TextDelta(text):
                self.text(text)
            case ReasoningDelta(text):
                self.reasoning(text)
            case ToolStarted():
                self.tool_started(event)
            case ToolOutput(call_id, text):
                self.tool_output(call_id, text)
            case ToolFinished():
                self.tool_finished(event)
            case Notice():
                self.notice(event)
            case TurnFinished():
                self.finished(event)

    def text(self, delta: str) -> None:
        """Handle a piece of the answer."""

    def reasoning(self, delta: str) -> None:
        """Handle a piece of the model's reasoning."""

    def stop_sentence(self, text: str) -> None:
        """Handle the sentence with which the agent ends the turn; it is part of the answer."""
        self.text(text)

    def tool_started(self, event: ToolStarted) -> None:
        """Handle the start of a tool call."""

    def tool_output(self, call_id: str, text: str) -> None:
        """Handle output of a command that runs."""

    def tool_finished(self, event: ToolFinished) -> None:
        """Handle the result of a tool call."""

    def notice(self, event: Notice) -> None:
        """Handle a notice for the user."""

    def finished(self, event: TurnFinished) -> None:
        """Handle the end. Hooks of the turn may still run then; `fold` returns after them."""


IGNORE_EVENTS = TurnSink()
"""The sink of a caller that needs only the end."""


async def fold(events: AsyncGenerator[TurnEvent, None], sink: TurnSink = IGNORE_EVENTS) -> TurnFinished | None:
    """Read an event stream to its end and give each event to `sink`.

    The stream is closed also after an exception.

    Returns:
    The end of the turn, or None if there was no turn to resume.

    Raises:
        UserError: the turn failed.
    """
    end: TurnFinished | None = None
    async with contextlib.aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, TurnFinished):
                end = event
            sink.event(event)
    return end


def error_object(result: str) -> dict[str, Any] | None:
    """Return the object of a result that reports an error, or None for any other result."""
    if '"error"' not in result or not result.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("error") else None
