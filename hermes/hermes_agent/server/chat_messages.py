"""Read the `messages` of a chat-completions request into our own values."""

from __future__ import annotations

from typing import Any

from hermes_agent.core.messages import Content, Message, ToolCall, text_content
from hermes_agent.server.request_fields import bad_request

__all__ = ["read_messages"]

USER_PARTS = ("text", "image_url", "input_audio", "file")
"""Kinds of parts that a user message may have; each has its value under the key of that name."""
IMAGE_SCHEMES = ("http://", "https://", "data:image/")


def read_messages(given: Any) -> tuple[str, list[Message]]:
    """Return the instructions (system and developer messages, joined by blank lines) and the other messages.

    Raises:
        Refusal: 400 with the place and what was expected.
    """
    if not isinstance(given, list) or not given:
        raise bad_request("messages: expected a list with at least one message", "messages")
    instructions: list[str] = []
    messages: list[Message] = []
    open_calls: set[str] = set()
    for i, value in enumerate(given):
        at = f"messages[{i}]"
        if not isinstance(value, dict):
            raise bad_request(f"{at}: expected an object", at)
        role = value.get("role")
        if role != "tool" and open_calls:
            raise bad_request(f"{at}: the calls {_list(open_calls)} have no result yet", at)
        if role in ("system", "developer"):
            instructions.append(text_content(_content(value.get("content"), at, ("text",))))
        elif role == "user":
            messages.append(Message("user", _content(value.get("content"), at, USER_PARTS)))
        elif role == "assistant":
            message = _assistant(value, at)
            open_calls = {call.id for call in message.tool_calls}
            messages.append(message)
        elif role == "tool":
            messages.append(_tool(value, at, open_calls))
        else:
            raise bad_request(f"{at}.role: expected system, developer, user, assistant or tool", f"{at}.role")
    if open_calls:
        raise bad_request(f"the calls {_list(open_calls)} have no result", "messages")
    return "\n\n".join(text for text in instructions if text.strip()), messages


def _assistant(value: dict[str, Any], at: str) -> Message:
    calls = value.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise bad_request(f"{at}.tool_calls: expected a list", f"{at}.tool_calls")
    read = tuple(_call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls or ()))
    if len({call.id for call in read}) != len(read):
        raise bad_request(f"{at}.tool_calls: two calls have one id", f"{at}.tool_calls")
    content = value.get("content")
    text = "" if content is None else text_content(_content(content, at, ("text", "refusal")))
    return Message("assistant", text, read)


def _call(value: Any, at: str) -> ToolCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise bad_request(f"{at}: expected a call of a function", at)
    return ToolCall(
        _word(value.get("id"), f"{at}.id"),
        _word(function.get("name"), f"{at}.function.name"),
        _word(function.get("arguments", ""), f"{at}.function.arguments", may_be_empty=True),
    )


def _word(value: Any, at: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or may_be_empty):
        raise bad_request(f"{at}: expected text", at)
    _no_nul(value, at)
    return value


def _tool(value: dict[str, Any], at: str, open_calls: set[str]) -> Message:
    call = value.get("tool_call_id")
    if not isinstance(call, str) or call not in open_calls:
        raise bad_request(f"{at}.tool_call_id: no call of the message before has this id", f"{at}.tool_call_id")
    open_calls.discard(call)
    return Message("tool", text_content(_content(value.get("content"), at, ("text",))), tool_call_id=call)


def _content(value: Any, at: str, allowed: tuple[str, ...]) -> Content:
    """Check text or parts; a list of text parts alone becomes text, refusals count as text."""
    place = f"{at}.content"
    if isinstance(value, str):
        _no_nul(value, place)
        return value
    if not isinstance(value, list) or not value:
        raise bad_request(f"{place}: expected text or a list of parts", place)
    parts = [_part(part, f"{place}[{i}]", allowed) for i, part in enumerate(value)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(part: Any, at: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in allowed:
        raise bad_request(f"{at}.type: expected {_words(allowed)}", f"{at}.type")
    if kind in ("text", "refusal"):
        text = part.get(kind)
        if not isinstance(text, str):
            raise bad_request(f"{at}.{kind}: expected text", f"{at}.{kind}")
        _no_nul(text, at)
        return {"type": "text", "text": text}
    value = part.get(kind)
    if not isinstance(value, dict):
        raise bad_request(f"{at}.{kind}: expected an object", f"{at}.{kind}")
    if kind == "image_url":
        url = value.get("url")
        if not isinstance(url, str) or not url.lower().startswith(IMAGE_SCHEMES):
            raise bad_request(
                f"{at}.image_url.url: expected http://…, https://… or data:image/…", f"{at}.image_url.url"
            )
    return {"type": kind, kind: value}


def _no_nul(text: str, at: str) -> None:
    if "\0" in text:
        raise bad_request(f"{at}: the text has a NUL character", at)


def _list(calls: set[str]) -> str:
    return ", ".join(sorted(calls))[:200]


def _words(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
