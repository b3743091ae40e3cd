"""Read the body of `POST /v1/chat/completions`: what is asked, and on which history.

The shape is OpenAI's; `request_fields` says what becomes of each field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes_agent.core.messages import Content, Message, text_content
from hermes_agent.models.request import NO_OPTIONS, RequestOptions
from hermes_agent.server.chat_messages import read_messages
from hermes_agent.server.reply import HttpError
from hermes_agent.server.request_fields import CHAT, bad_request, check_fields, kind_of, options_of, unsupported_field

__all__ = ["AGENT_MODEL", "ChatRequest", "check_session_id", "parse_body", "read_chat_request", "read_chat_values"]

AGENT_MODEL = "hermes-agent"
"""The model name that every agent answers to."""

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request, checked."""

    model: str
    """As the caller named it; the first of the agent's names when it named none."""
    content: Content
    """The last message, the user's: what this turn is about."""
    history: tuple[Message, ...]
    """What came before it, without system messages."""
    instructions: str
    """The system and developer messages, joined by blank lines."""
    stream: bool
    include_usage: bool
    """Whether a stream ends with the usage."""
    session_id: str | None = None
    """The session that the body asks for (the Responses API alone)."""
    store: bool | None = None
    """Whether the turn is to be stored, where the body says so."""
    options: RequestOptions = NO_OPTIONS
    """What goes on to the model."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the body calls each of them."""
    repeated_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the answer repeats (the Responses API alone)."""


def check_session_id(given: str) -> str:
    """Return the value of `X-Hermes-Session-Id`.

    Raises:
        HttpError: 400, it cannot be the id of a session.
    """
    if not _SESSION_ID.fullmatch(given):
        raise bad_request(
            "X-Hermes-Session-Id: expected 1 to 128 letters, digits, `.`, `_`, `:` or `-`, the first a letter or digit",
            "X-Hermes-Session-Id",
        )
    return given


def read_chat_request(body: bytes, models: Collection[str]) -> ChatRequest:
    """Read and check a request body.

    Args:
        models: names of the agent's model; other names are refused.

    Raises:
        HttpError: 400 with the place and what was expected, or 404 for an unknown model.
    """
    value = parse_body(body)
    check_fields(value, CHAT)
    options, names = options_of(value, CHAT)
    return replace(read_chat_values(value, models, options), names=names)


def read_chat_values(value: dict[str, Any], models: Collection[str], options: RequestOptions) -> ChatRequest:
    """Check what a body says; arguments and errors as `read_chat_request`."""
    model = _model(value.get("model"), models)
    stream, store = _flag(value, "stream") or False, _flag(value, "store")
    include_usage = _include_usage(value.get("stream_options"), stream)
    instructions, messages = read_messages(value.get("messages"))
    if not messages or messages[-1].role != "user":
        raise bad_request("the last message must be the user's: it is what the agent answers", "messages")
    last = messages[-1].content
    if not text_content(last).strip() and not (isinstance(last, list) and any(p["type"] != "text" for p in last)):
        raise bad_request("the last message is empty", f"messages[{len(value['messages']) - 1}].content")
    history = tuple(messages[:-1])
    return ChatRequest(model, last, history, instructions, stream, include_usage, store=store, options=options)


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the object of a body.

    Raises:
        HttpError: 400, it is none.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair cannot be stored
    except UnicodeError as exc:
        raise bad_request("the body has text that is not valid Unicode in UTF-8", None) from exc
    except RecursionError as exc:
        raise bad_request("the body is nested too deeply", None) from exc
    except ValueError as exc:
        raise bad_request(f"the body is not JSON: {exc}", None) from exc
    if not isinstance(value, dict):
        raise bad_request(f"the body is {kind_of(value)}: expected an object", None)
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _model(given: Any, models: Collection[str]) -> str:
    if given is None:
        return next(iter(models), AGENT_MODEL)
    if not isinstance(given, str):
        raise bad_request(f"model is {kind_of(given)}: expected text", "model")
    if given != AGENT_MODEL and given not in models:
        names = ", ".join(dict.fromkeys((*models, AGENT_MODEL)))
        raise HttpError(
            404, f"The model {given[:200]!r} does not exist; there is: {names}", code="model_not_found", param="model"
        )
    return given


def _flag(value: dict[str, Any], name: str) -> bool | None:
    given = value.get(name)
    if given is not None and not isinstance(given, bool):
        raise bad_request(f"{name} is {kind_of(given)}: expected true or false", name)
    return given


def _include_usage(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise bad_request("stream_options is only allowed when stream is true", "stream_options")
    if not isinstance(options, dict):
        raise bad_request(f"stream_options is {kind_of(options)}: expected an object", "stream_options")
    for name, given in options.items():
        if name not in ("include_usage", "include_obfuscation"):
            raise bad_request(f"stream_options.{name[:100]} is no option of a stream", f"stream_options.{name[:100]}")
        if given is not None and not isinstance(given, bool):
            raise bad_request(f"{name} is {kind_of(given)}: expected true or false", f"stream_options.{name}")
    if options.get("include_obfuscation"):
        raise unsupported_field("stream_options.include_obfuscation", "streams are not padded")
    return bool(options.get("include_usage"))
