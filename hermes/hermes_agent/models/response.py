"""An answer as the chat-completions response that plugins know, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Message, Usage
from hermes_agent.models.request import ModelAnswer

__all__ = ["Response", "answer_of", "response_of"]


class Response(dict[str, Any]):
    """A completion: a dict whose keys are attributes too, all the way down, as the SDK's objects have them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a completion has no {name!r}", name=name, obj=self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return plain dicts and lists; the options of the SDK's method are accepted and not used."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    to_dict = model_dump


def response_of(answer: ModelAnswer) -> Response:
    """Return the answer as a chat-completions response."""
    message, usage = answer.message, answer.usage
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in message.tool_calls
    ]
    value = {
        "id": new_id("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": message.text or None, "tool_calls": calls or None},
                "finish_reason": answer.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        },
    }
    response = _with_attributes(value)
    assert isinstance(response, Response)
    return response


def answer_of(value: Any, model: str) -> ModelAnswer:
    """Read a response: a mapping or an object in the shape of a completion, or just the text of an answer.

    Args:
        model: who is said to have answered when the response does not say it.

    Raises:
        ValueError: it is neither, or has neither text nor a tool call.
    """
    if isinstance(value, str):
        value = {"choices": [{"message": {"content": value}}]}
    completion = _plain(value)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    said = choice.get("message")
    if not isinstance(completion, dict) or not isinstance(said, dict):
        raise ValueError(f"{type(value).__name__} has no choices[0].message")
    message = Message.from_dict({"role": "assistant", "content": said.get("content"), "tool_calls": _calls(said)})
    if not message.text and not message.tool_calls:
        raise ValueError("it has neither text nor a tool call")
    reason = choice.get("finish_reason") or ("tool_calls" if message.tool_calls else "stop")
    return ModelAnswer(message, str(reason), _usage(completion.get("usage")), str(completion.get("model") or model))


def _calls(said: dict[str, Any]) -> list[dict[str, Any]]:
    calls = said.get("tool_calls")
    if not isinstance(calls, list):
        return []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not function.get("name"):
            raise ValueError("a tool call has no name")
        call["id"] = call.get("id") or new_id("call")
    return calls


def _usage(value: Any) -> Usage:
    if not isinstance(value, dict):
        return Usage()
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(_count(value.get("prompt_tokens")), _count(value.get("completion_tokens")), _count(cached), value)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _with_attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return Response({k: _with_attributes(v) for k, v in value.items()})
    return [_with_attributes(v) for v in value] if isinstance(value, list) else value


def _plain(value: Any, depth: int = 12) -> Any:
    """Return dicts and lists in place of the objects that stand for them."""
    if depth == 0 or value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {k: _plain(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, depth - 1) for v in value]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return _plain(dump(), depth - 1)
    return _plain(vars(value), depth - 1) if hasattr(value, "__dict__") else value
