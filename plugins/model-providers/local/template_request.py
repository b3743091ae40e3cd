"""Requests to a model that writes tool calls by itself, in the form of its file's own chat template.

llama.cpp renders the tools and the conversation with the template of the file, restricts calls to the schemas of the
tools, and reads the calls of the model in the form of its family (Qwen, Llama, Mistral, DeepSeek, …).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.core.errors import ContextTooLong
from hermes_agent.core.messages import Message, ToolCall

from .call_arguments import normalise_arguments
from .prompt import CHARS_PER_TOKEN
from .tool_choice import inner_tool, tool_name

ANSWER_SHARE = 4
"""Least part of the context that is left to the answer: a fourth."""
MESSAGE_TOKENS = 8
"""Tokens of the template around each message."""


def fit_request(request: ModelRequest, context_length: int, mask_message: Callable[[Message], Message]) -> ModelRequest:
    """Return the request with as many of the newest turns as the context has room for.

    Raises:
        ContextTooLong: system prompt, tools and the last turn alone do not fit.
    """
    messages = list(_as_templates_take([mask_message(message) for message in request.messages]))
    wanted = request.max_tokens or context_length // ANSWER_SHARE
    max_tokens = min(wanted, context_length // 2)
    room = context_length - max_tokens - len(json.dumps(list(request.tools))) // CHARS_PER_TOKEN
    head = [m for m in messages if m.role == "system"]
    room -= sum(map(_tokens, head))
    kept: list[Message] = []
    turns = _turns([m for m in messages if m.role != "system"])
    for turn in reversed(turns):
        used = sum(map(_tokens, turn))
        if used > room:
            break
        kept, room = [*turn, *kept], room - used
    if turns and not kept:
        needed = sum(map(_tokens, turns[-1]))
        raise ContextTooLong(
            f"The last turn needs about {needed} tokens; the model has room for {max(room, 0)}.",
            hint="Ask with less text, or raise `model.local.context_length`.",
        )
    return replace(request, messages=[*head, *kept], max_tokens=max_tokens)


def _as_templates_take(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the conversation in the form that the templates of all families take.

    One system message before all others; users and assistant take turns; a message has one call, whose id has nine
    letters. Llama's templates refuse two calls in a message, Mistral's the rest.
    """
    if head := "\n\n".join(m.text for m in messages if m.role == "system"):
        yield Message("system", head)
    held: Message | None = None  # a text, which the next message of its role continues
    before = ""
    for message in _with_single_calls([m for m in messages if m.role != "system"]):
        is_text = message.role != "tool" and not message.tool_calls
        if held is not None and is_text and message.role == held.role:
            held = replace(held, content=_joined(held, message))
            continue
        if held is not None:
            yield held
        if before == "tool" and message.role == "user":  # that turn was interrupted before its answer
            yield Message("assistant", "…")
        held, before = (message, message.role) if is_text else (None, message.role)
        if not is_text:
            yield message
    if held is not None:
        yield held


def _with_single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if not message.tool_calls:
            yield message
            continue
        results: dict[str, Message] = {}
        while at < len(messages) and messages[at].role == "tool":
            results[messages[at].tool_call_id], at = messages[at], at + 1
        for number, call in enumerate(message.tool_calls):
            short = _short_id(call.id)
            content = message.content if number == 0 else ""
            yield replace(message, content=content, tool_calls=(replace(call, id=short),))
            if (result := results.get(call.id)) is not None:
                yield replace(result, tool_call_id=short)


def _joined(first: Message, second: Message) -> Any:
    if isinstance(first.content, str) and isinstance(second.content, str):
        return f"{first.content}\n\n{second.content}"
    return [*_content_parts(first), *_content_parts(second)]


def _content_parts(message: Message) -> list[Any]:
    content = message.content
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _short_id(given: str) -> str:
    return given if re.fullmatch("[A-Za-z0-9]{9}", given) else hashlib.sha256(given.encode()).hexdigest()[:9]


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _tokens(message: Message) -> int:
    chars = len(message.text) + sum(len(c.name) + len(c.arguments) for c in message.tool_calls)
    return chars // CHARS_PER_TOKEN + MESSAGE_TOKENS


def normalise_calls(answer: ModelAnswer, tools: Sequence[Mapping[str, Any]]) -> ModelAnswer:
    """Return the answer with the arguments of its calls as the tools take them."""
    if not answer.message.tool_calls:
        return answer
    known = {tool_name(dict(tool)): inner_tool(dict(tool)) for tool in tools}
    calls = tuple(_normalised(call, known.get(call.name)) for call in answer.message.tool_calls)
    return replace(answer, message=replace(answer.message, tool_calls=calls))


def _normalised(call: ToolCall, tool: Mapping[str, Any] | None) -> ToolCall:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return call
    schema = tool.get("parameters") if tool is not None else None
    if tool is None or not isinstance(schema, dict) or not isinstance(arguments, dict):
        return call
    texts = (str(tool.get("description") or ""),)
    return replace(call, arguments=json.dumps(normalise_arguments(arguments, schema, texts), ensure_ascii=False))
