"""Read the body of `POST /v1/chat/completions`: what is asked, and on which history.

The shape is OpenAI's. What the agent decides by itself (`temperature`, `max_tokens`, `stop`, `seed`, …) is accepted
and has no effect; what would promise the caller something that it does not get (`tools`, `n`, `response_format`, …)
is refused. `docs/operator/http.md` has the list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from hermes_agent.core.messages import Content, Message, text_of
from hermes_agent.server.chat_messages import bad, read_messages
from hermes_agent.server.reply import Refusal

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


def check_session_id(given: str) -> str:
    """Return the value of `X-Hermes-Session-Id`.

    Raises:
        Refusal: 400, it cannot be the id of a session.
    """
    if not _SESSION_ID.fullmatch(given):
        raise bad(
            "X-Hermes-Session-Id: expected 1 to 128 letters, digits, `.`, `_`, `:` or `-`, the first a letter or digit",
            "X-Hermes-Session-Id",
        )
    return given


def read_chat_request(body: bytes, models: Collection[str]) -> ChatRequest:
    """Read and check a request body.

    Args:
        models: names of the agent's model; other names are refused.

    Raises:
        Refusal: 400 with the place and what was expected, or 404 for an unknown model.
    """
    return read_chat_values(parse_body(body), models)


def read_chat_values(value: dict[str, Any], models: Collection[str]) -> ChatRequest:
    """Check what a body says; arguments and errors as `read_chat_request`."""
    model = _model(value.get("model"), models)
    _refuse_unsupported(value)
    stream = _flag(value, "stream")
    include_usage = _include_usage(value.get("stream_options"), stream)
    instructions, messages = read_messages(value.get("messages"))
    if not messages or messages[-1].role != "user":
        raise bad("the last message must be the user's: it is what the agent answers", "messages")
    last = messages[-1].content
    if not text_of(last).strip() and not (isinstance(last, list) and any(p["type"] != "text" for p in last)):
        raise bad("the last message is empty", f"messages[{len(value['messages']) - 1}].content")
    return ChatRequest(model, last, tuple(messages[:-1]), instructions, stream, include_usage)


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the object of a body.

    Raises:
        Refusal: 400, it is none.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair cannot be stored
    except UnicodeError as exc:
        raise bad("the body has text that is not valid Unicode in UTF-8", None) from exc
    except RecursionError as exc:
        raise bad("the body is nested too deeply", None) from exc
    except ValueError as exc:
        raise bad(f"the body is not JSON: {exc}", None) from exc
    if not isinstance(value, dict):
        raise bad(f"the body is {_kind(value)}: expected an object", None)
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _model(given: Any, models: Collection[str]) -> str:
    if given is None:
        return next(iter(models), AGENT_MODEL)
    if not isinstance(given, str):
        raise bad(f"model is {_kind(given)}: expected text", "model")
    if given != AGENT_MODEL and given not in models:
        names = ", ".join(dict.fromkeys((*models, AGENT_MODEL)))
        raise Refusal(
            404, f"The model {given[:200]!r} does not exist; there is: {names}", code="model_not_found", param="model"
        )
    return given


def _refuse_unsupported(value: dict[str, Any]) -> None:
    if value.get("tools") or value.get("functions"):
        name = "tools" if value.get("tools") else "functions"
        raise _unsupported(name, "the agent runs its own tools; add tools with a plugin")
    if value.get("n") not in (None, 1):
        raise _unsupported("n", "the agent gives one answer")
    if value.get("logprobs"):
        raise _unsupported("logprobs", "the agent does not have them")
    form = value.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise _unsupported("response_format", "the agent answers with text; ask for JSON in words")
    if value.get("audio") or value.get("modalities") not in (None, ["text"]):
        raise _unsupported("modalities", "the agent answers with text")


def _unsupported(name: str, why: str) -> Refusal:
    return Refusal(400, f"{name} is not supported: {why}", code="unsupported_parameter", param=name)


def _flag(value: dict[str, Any], name: str) -> bool:
    given = value.get(name)
    if given is None:
        return False
    if not isinstance(given, bool):
        raise bad(f"{name} is {_kind(given)}: expected true or false", name)
    return given


def _include_usage(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise bad("stream_options is only allowed when stream is true", "stream_options")
    if not isinstance(options, dict):
        raise bad(f"stream_options is {_kind(options)}: expected an object", "stream_options")
    given = options.get("include_usage", False)
    if not isinstance(given, bool):
        raise bad(f"include_usage is {_kind(given)}: expected true or false", "stream_options.include_usage")
    return given


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
