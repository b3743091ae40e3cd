"""Model requests and answers as plugins see them: keywords and response of a chat-completions call."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.core.messages import Message, Usage, new_id
from hermes_agent.models.openai_types import (
    ChatCompletion,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    Choice,
    CompletionUsage,
    Function,
    JsonObject,
    PromptTokensDetails,
    ResponseUsage,
    field_names,
)

COMPLETION = field_names(ChatCompletion)
CHOICE = field_names(Choice)
MESSAGE = field_names(ChatCompletionMessage)
CALL = field_names(ChatCompletionMessageFunctionToolCall)
FUNCTION = field_names(Function)
USAGE = field_names(CompletionUsage)
DETAILS = field_names(PromptTokensDetails)
RESPONSES_USAGE = field_names(ResponseUsage)

logger = logging.getLogger(__name__)

_OWN = ("model", "messages", "tools", "max_tokens", "temperature", "extra_body")
_UNUSED = ("stream", "stream_options", "timeout", "extra_headers", "extra_query")
"""Keywords of such a call that are not part of its body; the client of the agent decides on them."""


def to_keywords(request: ModelRequest) -> dict[str, Any]:
    """Return the request as `model`, `messages` and, if set, `tools`, `max_tokens`, `temperature`, ….

    The values are copies down to the messages; the parts of a message are shared with the request.
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
    """Return the request of keywords that a plugin may have changed.

    Args:
        base: the request that the keywords were made from; unchanged messages are taken from it.

    Raises:
        ValueError: they are no request.
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
        logger.debug("keywords of a model request ignored: %s", ", ".join(unused))
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
    """Return messages that a plugin may have changed.

    Args:
        known: the messages that they were made from; an unchanged one keeps what its dict form leaves out.

    Raises:
        ValueError: an entry is no message.
    """
    return [
        known[at] if at < len(known) and known[at].to_dict() == value else Message.from_dict(value)
        for at, value in enumerate(given)
    ]


class Response(dict[str, Any]):
    """A completion: a dict with its keys as attributes, too, like the objects of the SDK."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a completion has no {name!r}", name=name, obj=self) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return plain dicts and lists; the options of the SDK's method are accepted and ignored."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    to_dict = model_dump


def to_response(answer: ModelAnswer) -> Response:
    """Return the answer as a chat-completions response."""
    message, usage = answer.message, answer.usage
    calls: Any = [
        ChatCompletionMessageFunctionToolCall(
            id=call.id, type="function", function=Function(name=call.name, arguments=call.arguments)
        )
        for call in message.tool_calls
    ]
    reason: Any = answer.finish_reason  # a provider may have words of its own
    said = ChatCompletionMessage(role="assistant", content=message.text or None, refusal=None, tool_calls=calls or None)
    value = ChatCompletion(
        id=new_id("chatcmpl"),
        object="chat.completion",
        created=int(time.time()),
        model=answer.model,
        choices=[Choice(index=0, message=said, finish_reason=reason)],
        usage=write_usage(usage),
    )
    response = _with_attributes(value)
    assert isinstance(response, Response)
    return response


def write_usage(usage: Usage) -> CompletionUsage:
    """Return the `usage` of a completion."""
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached_tokens),
    )


def parse_answer(value: Any, model: str) -> ModelAnswer:
    """Return the answer in a response: a mapping or object in the form of a completion, or only its text.

    Args:
        model: the model that answered, if the response names none.

    Raises:
        ValueError: it has another form, or neither text nor a tool call.
    """
    if isinstance(value, str):
        value = {"choices": [{"message": {"content": value}}]}
    completion = _plain(value)
    choices = completion.get(COMPLETION.choices) if isinstance(completion, dict) else None
    choice: JsonObject = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    given = choice.get(CHOICE.message)
    if not isinstance(completion, dict) or not isinstance(given, dict):
        raise ValueError(f"{type(value).__name__} has no choices[0].message")
    content = given.get(MESSAGE.content)
    message = Message.from_dict({"role": "assistant", "content": content, "tool_calls": _calls(given)})
    if not message.text and not message.tool_calls:
        raise ValueError("it has neither text nor a tool call")
    reason = choice.get(CHOICE.finish_reason) or ("tool_calls" if message.tool_calls else "stop")
    return ModelAnswer(
        message,
        str(reason),
        parse_usage(completion.get(COMPLETION.usage)),
        str(completion.get(COMPLETION.model) or model),
    )


def _calls(message: JsonObject) -> list[JsonObject]:
    calls = message.get(MESSAGE.tool_calls)
    if not isinstance(calls, list):
        return []
    for call in calls:
        function = call.get(CALL.function) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not function.get(FUNCTION.name):
            raise ValueError("a tool call has no name")
        call[CALL.id] = call.get(CALL.id) or new_id("call")
    return calls


def parse_usage(value: Any) -> Usage:
    """Return the tokens in the `usage` of an answer, in any wire protocol; zeros for what it leaves out."""
    usage: JsonObject = value if isinstance(value, dict) else {}
    nested = usage.get(USAGE.prompt_tokens_details) or usage.get(RESPONSES_USAGE.input_tokens_details)
    details: JsonObject = nested if isinstance(nested, dict) else {}
    # the second is Anthropic's, the third DeepSeek's
    cached = _count(
        details.get(DETAILS.cached_tokens), usage.get("cache_read_input_tokens"), usage.get("prompt_cache_hit_tokens")
    )
    sent = _count(usage.get(USAGE.prompt_tokens), usage.get(RESPONSES_USAGE.input_tokens))
    if USAGE.prompt_tokens not in usage and not details:  # Anthropic does not count cached tokens in
        sent += cached + _count(usage.get("cache_creation_input_tokens"))
    received = _count(usage.get(USAGE.completion_tokens), usage.get(RESPONSES_USAGE.output_tokens))
    # some providers do not count reasoning as output, but in the total
    received += max(0, _count(usage.get(USAGE.total_tokens)) - sent - received)
    return Usage(sent, received, cached, usage)


def _count(*values: Any) -> int:
    """Return the first value that is a number of tokens."""
    for value in values:
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _with_attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return Response({k: _with_attributes(v) for k, v in value.items()})
    return [_with_attributes(v) for v in value] if isinstance(value, list) else value


def _plain(value: Any, depth: int = 12) -> Any:
    """Return dicts and lists for the objects of the SDK."""
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
