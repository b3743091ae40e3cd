"""What `call_llm` returns: an answer in the shape of the OpenAI SDK's, and the text of one. Source: §11.3."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_agent.core.ids import new_id
from hermes_agent.models.request import ModelAnswer

__all__ = [
    "AnswerMessage",
    "CalledFunction",
    "Choice",
    "Completion",
    "CompletionUsage",
    "FunctionCall",
    "completion_of",
    "text_of_response",
]

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


@dataclass
class CalledFunction:
    """A function and what it is called with."""

    name: str
    arguments: str
    """JSON text as the model wrote it."""


@dataclass
class FunctionCall:
    """A call that the model asks for."""

    id: str
    function: CalledFunction
    type: str = "function"


@dataclass
class AnswerMessage:
    """The message of an answer."""

    content: str | None
    tool_calls: list[FunctionCall] | None = None
    role: str = "assistant"
    refusal: str | None = None


@dataclass
class Choice:
    """The one answer of a request."""

    message: AnswerMessage
    finish_reason: str
    index: int = 0


@dataclass
class CompletionUsage:
    """Tokens of the request; zeros where the provider did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Completion:
    """An answer."""

    choices: list[Choice]
    model: str
    usage: CompletionUsage
    provider: str
    """Ours: who answered."""
    id: str = field(default_factory=lambda: new_id("chatcmpl"))
    object: str = "chat.completion"


def completion_of(answer: ModelAnswer, provider: str) -> Completion:
    """Return an answer of ours in that shape."""
    calls = [FunctionCall(c.id, CalledFunction(c.name, c.arguments)) for c in answer.message.tool_calls]
    message = AnswerMessage(answer.message.text or None, calls or None)
    usage = answer.usage
    tokens = CompletionUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        {"cached_tokens": usage.cached_tokens},
    )
    return Completion([Choice(message, answer.finish_reason)], answer.model, tokens, provider)


def text_of_response(response: Any) -> str:
    """Return the text of an OpenAI-like response, an object or a mapping, without thoughts in tags; where there is
    none, its reasoning; empty when there is neither."""
    choices = _get(response, "choices") or []
    message = _get(choices[0], "message") if choices else None
    content = _text(_get(message, "content"))
    spoken = _THOUGHTS.sub("", content).strip()
    if spoken:
        return spoken
    for name in ("reasoning", "reasoning_content"):
        if reasoning := _text(_get(message, name)).strip():
            return reasoning
    details = [_text(_get(d, "summary") or _get(d, "text")) for d in _get(message, "reasoning_details") or ()]
    return "\n".join(text for text in details if text).strip()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(_get(part, "text") or "") for part in content)
    return content if isinstance(content, str) else ""
