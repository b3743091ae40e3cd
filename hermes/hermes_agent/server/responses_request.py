"""Read the body of `POST /v1/responses` (OpenAI's Responses API) as the same request as one of chat completions.

What is refused, and what has no effect, is as there; `docs/operator/http.md` has the list.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hermes_agent.server.chat_messages import bad
from hermes_agent.server.chat_request import ChatRequest, check_session_id, parse_body, read_chat_values
from hermes_agent.server.reply import Refusal

__all__ = ["read_responses_request", "response_id"]

_ID = re.compile(r"resp_[0-9a-f]{24}(?:_(?P<session>.+))?")
_TEXTS = ("input_text", "output_text", "text")
_REFUSED = {
    "background": "send the request and wait, or stream",
    "prompt": "prompt templates are kept elsewhere",
    "include": "the agent does not have it",
}


def response_id(session_id: str | None) -> str:
    """Return a new id; one with a session can be gone on with (`previous_response_id`)."""
    return f"resp_{secrets.token_hex(12)}" + (f"_{session_id}" if session_id else "")


def read_responses_request(body: bytes, models: Collection[str]) -> ChatRequest:
    """Read and check a request body.

    A request without a history is kept as a session, unless it says `store: false`; `previous_response_id` goes on with
    the session of that answer.

    Raises:
        Refusal: 400 with the place and what was expected, or 404 for an unknown model or answer.
    """
    value = parse_body(body)
    for name, why in _REFUSED.items():
        if value.get(name):
            raise Refusal(400, f"{name} is not supported: {why}", code="unsupported_parameter", param=name)
    form = value.get("text")
    form = form.get("format") if isinstance(form, dict) else None
    instructions = value.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad("instructions: expected text", "instructions")
    if value.get("tools") is not None and not isinstance(value["tools"], list):
        raise bad("tools: expected a list", "tools")
    messages = _messages(value.get("input"))
    if instructions:
        messages.insert(0, {"role": "developer", "content": instructions})
    chat = {name: value.get(name) for name in ("model", "stream", "tools")} | {"messages": messages}
    if form is not None:
        chat["response_format"] = form
    try:
        request = read_chat_values(chat, models)
    except Refusal as refusal:
        said = refusal.message.replace("messages", "input", 1)
        param = refusal.param and refusal.param.replace("messages", "input", 1)
        raise Refusal(refusal.status, said, code=refusal.code, param=param) from None
    return replace(request, session_id=_session(value, request))


def _session(value: dict[str, Any], request: ChatRequest) -> str | None:
    before = value.get("previous_response_id")
    if before is None:
        kept = value.get("store") is not False and not request.history
        return f"resp-{secrets.token_hex(12)}" if kept else None
    match = _ID.fullmatch(before) if isinstance(before, str) else None
    if match is None or match["session"] is None:
        raise Refusal(
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
        raise bad("input: expected text, or a list with at least one item", "input")
    found: list[dict[str, Any]] = []
    for number, item in enumerate(given):
        at = f"input[{number}]"
        if not isinstance(item, dict):
            raise bad(f"{at}: expected an object", at)
        _take(item, at, found)
    return found


def _take(item: dict[str, Any], at: str, found: list[dict[str, Any]]) -> None:
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
            raise bad(f"{at}.type is {str(other)[:100]!r}: expected message, function_call, …", f"{at}.type")


def _content(given: Any, at: str) -> Any:
    if not isinstance(given, list):
        return given
    return [_part(part, f"{at}.content[{number}]") for number, part in enumerate(given)]


def _part(part: Any, at: str) -> Any:
    if not isinstance(part, dict):
        raise bad(f"{at}: expected an object", at)
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
