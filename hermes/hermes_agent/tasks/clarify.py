"""The tool `clarify`: ask the person something, with choices or without. Contract: §4.12 (parameters)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hermes_agent.core.errors import ToolFailed
from hermes_agent.io.bridge import Bridge
from hermes_agent.policy import Refusal
from hermes_agent.tools import current_scope, tool_error, tool_result, tool_schema

__all__ = ["CLARIFY_SCHEMA", "Clarify"]

MAX_CHOICES = 4

CLARIFY_SCHEMA = tool_schema(
    "clarify",
    "Ask the person what you cannot go on without knowing, or what is theirs to choose, and wait.",
    {
        "question": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_CHOICES},
    },
    required=["question"],
)


@dataclass(frozen=True, slots=True)
class Clarify:
    """The handler. `timeout_s`: longest wait for the answer (`agent.clarify_timeout`)."""

    bridge: Bridge
    timeout_s: float

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Ask through the front door of the conversation."""
        question = str(args.get("question") or "").strip()
        if not question:
            raise ToolFailed("there is no question")
        choices = [text for c in args.get("choices") or () if (text := str(c).strip())][:MAX_CHOICES]
        scope = current_scope.get()
        if scope is None:
            return tool_error("nobody can be asked outside a conversation")
        work = scope.approvals.clarify(
            question, choices, timeout_s=self.timeout_s, turn_id=scope.turn_id, cancelled=scope.cancelled
        )
        answer = self.bridge.wait_core(work)
        if isinstance(answer, Refusal):
            return tool_error(answer.reason)
        return tool_result(question=question, choices_offered=choices or None, user_response=answer)
