"""The events of a turn: the one stream that terminal, HTTP, chat platforms and tests fold.

A turn yields any number of `TextDelta`, `ToolStarted`, `ToolFinished` and `Notice`, and ends with exactly one
`TurnFinished`, or raises a `UserError` (the session is consistent then, too).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hermes_agent.core.messages import Usage

__all__ = [
    "Event",
    "FinishReason",
    "Notice",
    "StopSentence",
    "TextDelta",
    "ToolFinished",
    "ToolStarted",
    "ToolStatus",
    "TurnEnd",
    "TurnFinished",
]

ToolStatus = Literal["ok", "error", "blocked", "cancelled", "timeout"]
"""How a tool call ended; the values of `post_tool_call`'s `status` (plugin contract §3.2)."""

TurnEnd = Literal["answered", "interrupted", "budget", "stopped"]
"""`budget`: the steps or tokens were spent and the last answer was given without tools; `stopped`: the agent ended the
turn with a sentence of its own, because the model repeated itself or a limit of the operator was reached."""


FinishReason = Literal["stop", "length", "content_filter"]
"""In the words of chat completions: the model had said everything, a limit of tokens or steps ended the answer, or the
provider withheld the rest of it."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, in order."""

    text: str


@dataclass(frozen=True, slots=True)
class StopSentence(TextDelta):
    """The sentence of the agent's own with which it ends a turn (`stopped`)."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call has ended and its result goes to the model."""

    call_id: str
    name: str
    result: str
    status: ToolStatus
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the person; not part of the answer."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The end of the turn."""

    text: str
    """The whole reply, after `transform_llm_output`; empty when interrupted before any text."""
    reason: TurnEnd
    usage: Usage
    model: str
    turn_id: str = ""
    """The same when a turn that was cut off goes on and ends."""
    finish_reason: FinishReason = "stop"
    """How the last answer of the model ended."""

    @property
    def reply_finish_reason(self) -> FinishReason:
        """Whether the reply is whole: a limit that ends the turn cuts it, whatever the last answer says."""
        return self.finish_reason if self.reason == "answered" else "length"


Event = TextDelta | ToolStarted | ToolFinished | Notice | TurnFinished
