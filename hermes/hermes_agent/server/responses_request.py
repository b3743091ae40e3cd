"""Read the body of `POST /v1/responses` (OpenAI's Responses API) as the same request as one of chat completions.

`request_fields` says what becomes of each field.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hermes_agent.models.request import RequestOptions
from hermes_agent.server.chat_request import ChatRequest, check_session_id, parse_body, read_chat_values
from hermes_agent.server.reply import HttpError
from hermes_agent.server.request_fields import (
    EFFORT,
    RESPONSES,
    VERBOSITY,
    bad_request,
    check_fields,
    kind_of,
    options_of,
    unsupported_field,
)

__all__ = ["read_responses_request", "response_id"]

_ID = re.compile(r"resp_[0-9a-f]{24}(?:_(?P<session>.+))?")
_TEXTS = ("input_text", "output_text", "text")
_REPEATED = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning"),
    *("temperature", "text", "tool_choice", "top_p", "user"),
)
"""Fields that OpenAI's answer repeats."""


def response_id(session_id: str | None) -> str:
    """Return a new id; one with a session can be gone on with (`previous_response_id`)."""
    return f"resp_{secrets.token_hex(12)}" + (f"_{session_id}" if session_id else "")


def read_responses_request(body: bytes, models: Collection[str]) -> ChatRequest:
    """Read and check a request body.

    A request without a history is kept as a session, unless it says `store: false`; `previous_response_id` goes on with
    the session of that answer.

    Raises:
        HttpError: 400 with the place and what was expected, or 404 for an unknown model or answer.
    """
    value = parse_body(body)
    check_fields(value, RESPONSES)
    plain, names = options_of(value, RESPONSES)
    options = _nested(value, plain)
    names |= {"reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity"}
    instructions = value.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad_request("instructions: expected text", "instructions")
    messages = _messages(value.get("input"))
    if instructions:
        messages.insert(0, {"role": "developer", "content": instructions})
    chat = {name: value.get(name) for name in ("model", "stream", "stream_options", "store")} | {"messages": messages}
    try:
        request = read_chat_values(chat, models, options)
    except HttpError as refusal:
        said = refusal.message.replace("messages", "input", 1)
        param = refusal.param and refusal.param.replace("messages", "input", 1)
        raise HttpError(refusal.status, said, code=refusal.code, param=param) from None
    repeated = {name: value[name] for name in _REPEATED if value.get(name) is not None}
    return replace(request, session_id=_session(value, request), names=names, repeated_fields=repeated)


def _nested(value: dict[str, Any], options: RequestOptions) -> RequestOptions:
    """Return the options with those that stand one level down: `reasoning.effort`, `text.verbosity`."""
    more: dict[str, Any] = {}
    for field, known in (("reasoning", ("effort", "summary", "generate_summary")), ("text", ("format", "verbosity"))):
        given = value.get(field)
        if given is not None and not isinstance(given, dict):
            raise bad_request(f"{field} is {kind_of(given)}: expected an object", field)
        for name in given or {}:
            if name not in known:
                raise bad_request(f"{field}.{name[:100]} is no field of this request", f"{field}.{name[:100]}")
    reasoning, text = value.get("reasoning") or {}, value.get("text") or {}
    for name in ("summary", "generate_summary"):
        if reasoning.get(name) is not None:
            raise unsupported_field(f"reasoning.{name}", "the agent does not tell its thoughts")
    if text.get("format") not in (None, {"type": "text"}):
        raise unsupported_field("text.format", "the agent answers with text; ask for JSON in words")
    if reasoning.get("effort") is not None:
        more["reasoning_effort"] = EFFORT.read(reasoning["effort"], "reasoning.effort")
    if text.get("verbosity") is not None:
        more["verbosity"] = VERBOSITY.read(text["verbosity"], "text.verbosity")
    return replace(options, extra={**options.extra, **more}) if more else options


def _session(value: dict[str, Any], request: ChatRequest) -> str | None:
    before = value.get("previous_response_id")
    if before is None:
        kept = value.get("store") is not False and not request.history
        return f"resp-{secrets.token_hex(12)}" if kept else None
    match = _ID.fullmatch(before) if isinstance(before, str) else None
    if match is None or match["session"] is None:
        raise HttpError(
            404,
            f"there is no answer {str(before)[:200]!r} that can be gone on with",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return check_session_id(match["session"])


def _messages(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise bad_request("input: expected text, or a list with at least one item", "input")
    found: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        at = f"input[{number}]"
        if not isinstance(item, dict):
            raise bad_request(f"{at}: expected an object", at)
        _add_item(item, at, found)
    return found


def _add_item(item: dict[str, Any], at: str, found: list[dict[str, Any]]) -> None:
    match item.get("type", "message"):
        case "message":
            found.append({"role": item.get("role"), "content": _content(item.get("content"), at)})
        case "function_call":
            call = {"id": item.get("call_id"), "type": "function"}
            call["function"] = {"name": item.get("name"), "arguments": item.get("arguments")}
            last = found[-1] if found else {}
            if last.get("role") == "assistant" and last.get("tool_calls"):
                last["tool_calls"].append(call)
            else:
                found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        case "function_call_output":
            output = item.get("output")
            content = _content(output, at) if isinstance(output, list) else output
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        case "reasoning":
            return  # what a model thought is no part of what it is told by others
        case other:
            raise bad_request(f"{at}.type is {str(other)[:100]!r}: expected message, function_call, …", f"{at}.type")


def _content(given: Any, at: str) -> Any:
    if not isinstance(given, list):
        return given
    return [_part(part, f"{at}.content[{number}]") for number, part in enumerate(given)]


def _part(part: Any, at: str) -> Any:
    if not isinstance(part, dict):
        raise bad_request(f"{at}: expected an object", at)
    match part.get("type"):
        case kind if kind in _TEXTS:
            return {"type": "text", "text": part.get("text")}
        case "refusal":
            return {"type": "text", "text": part.get("refusal")}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
        case "input_file":
            return {"type": "file", "file": {k: v for k, v in part.items() if k != "type"}}
    return part
