"""Requests and answers in the form that plugins know: the keywords of a chat-completions call, and its response."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.core.messages import Message, Usage, new_id

logger = logging.getLogger(__name__)

_OWN = ("model", "messages", "tools", "max_tokens", "temperature", "extra_body")
_UNUSED = ("stream", "stream_options", "timeout", "extra_headers", "extra_query")
"""What such a call may have beside its body; here it belongs to who sends."""


def to_keywords(request: ModelRequest) -> dict[str, Any]:
    """Return the request as `model`, `messages` and, where they are set, `tools`, `max_tokens`, `temperature`, ….

    The values are fresh down to the messages; what is inside a message's parts is the request's own.
    """
    keywords: dict[str, Any] = {"model": request.model, "messages": [m.to_dict() for m in request.messages]}
    if request.tools:
        keywords["tools"] = list(request.tools)
    if request.max_tokens is not None:
        keywords["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        keywords["temperature"] = request.temperature
    return {**keywords, **request.extra}


def from_keywords(keywords: dict[str, Any], base: ModelRequest) -> ModelRequest:
    """Read the keywords that somebody changed.

    Args:
        base: what they were made of; the messages that are the same are taken from it.

    Raises:
        ValueError: they make no request.
    """
    messages = keywords.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise ValueError("`messages` is no list of mappings")
    tools = keywords.get("tools") or ()
    if not isinstance(tools, list | tuple):
        raise ValueError("`tools` is no list")
    model = keywords.get("model", base.model)
    if not isinstance(model, str):
        raise ValueError(f"`model` is {model!r}: expected a name")
    unused = [name for name in _UNUSED if name in keywords]
    if unused:
        logger.debug("keywords of a request that are not used here: %s", ", ".join(unused))
    extra = {k: v for k, v in keywords.items() if k not in _OWN and k not in _UNUSED}
    body = keywords.get("extra_body")
    return replace(
        base,
        model=model,
        messages=from_dicts(messages, base.messages),
        tools=tools,
        max_tokens=keywords.get("max_tokens"),
        temperature=keywords.get("temperature"),
        extra={**extra, **(body if isinstance(body, dict) else {})},
    )


def from_dicts(given: Sequence[dict[str, Any]], known: Sequence[Message]) -> list[Message]:
    """Read messages that somebody may have changed.

    Args:
        known: what they were made of; one that is as it was keeps what its dict form leaves out.

    Raises:
        ValueError: one is no message.
    """
    return [
        known[at] if at < len(known) and known[at].to_dict() == value else Message.from_dict(value)
        for at, value in enumerate(given)
    ]


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


def to_response(answer: ModelAnswer) -> Response:
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
                "message": {
                    "role": "assistant",
                    "content": message.text or None,
                    "refusal": None,
                    "tool_calls": calls or None,
                },
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


def parse_answer(value: Any, model: str) -> ModelAnswer:
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
    return ModelAnswer(
        message, str(reason), parse_usage(completion.get("usage")), str(completion.get("model") or model)
    )


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


def parse_usage(value: Any) -> Usage:
    """Return the tokens that the `usage` of an answer has, in the words of any wire; zeros for what it does not say."""
    value = value if isinstance(value, dict) else {}
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details")
    details = details if isinstance(details, dict) else {}
    # the last is DeepSeek's
    read = _count(
        details.get("cached_tokens"), value.get("cache_read_input_tokens"), value.get("prompt_cache_hit_tokens")
    )
    asked = _count(value.get("prompt_tokens"), value.get("input_tokens"))
    if "prompt_tokens" not in value and not details:  # Anthropic counts what was cached apart
        asked += read + _count(value.get("cache_creation_input_tokens"))
    return Usage(asked, _count(value.get("completion_tokens"), value.get("output_tokens")), read, value)


def _count(*values: Any) -> int:
    """Return the first that is a count of tokens."""
    return next((value for value in values if isinstance(value, int) and value > 0), 0)


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
