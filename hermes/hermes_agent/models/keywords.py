"""A request as the keywords of a chat-completions call, which is the form that plugins know, and back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.core.messages import Message
from hermes_agent.models.request import ModelRequest

__all__ = ["from_dicts", "from_keywords", "to_keywords"]

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
