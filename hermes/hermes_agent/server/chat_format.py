"""Requests and answers of the chat-completions API.

Reads the body of `POST /v1/chat/completions` into `ChatRequest`, and writes the answer as an object or as chunks of a
stream (server-sent events). `request_fields` lists what happens with each field.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Any, Protocol

from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Content, FinishReason, Message, ToolCall, TurnFinished, new_id, text_content
from hermes_agent.models.openai_format import write_usage
from hermes_agent.models.openai_types import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
    ChunkChoice,
    Function,
    JsonObject,
    as_dict,
    field_names,
)
from hermes_agent.server.conversations import AGENT_MODEL
from hermes_agent.server.http_types import HttpError, json_bytes
from hermes_agent.server.request_fields import CHAT, bad_request, check_fields, kind_of, options_of, unsupported_field

MESSAGE = field_names(ChatCompletionMessage)
CALL = field_names(ChatCompletionMessageFunctionToolCall)
FUNCTION = field_names(Function)

USER_PARTS = ("text", "image_url", "input_audio", "file")
"""Kinds of parts of a user message; the value of a part is under the key of its kind."""
IMAGE_SCHEMES = ("http://", "https://", "data:image/")


def read_messages(given: Any, *, continues: bool = False) -> tuple[str, list[Message]]:
    """Return the instructions (joined system and developer messages) and the other messages.

    Args:
        continues: whether the first messages may be results of calls that the session has.

    Raises:
        HttpError: 400 with the path of the part and the expected value.
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
            in_session = continues and all(message.role == "tool" for message in messages)
            messages.append(_tool(value, at, None if in_session else open_calls))
        else:
            raise bad_request(f"{at}.role: expected system, developer, user, assistant or tool", f"{at}.role")
    if open_calls:
        raise bad_request(f"the calls {_list(open_calls)} have no result", "messages")
    return "\n\n".join(text for text in instructions if text.strip()), messages


def _assistant(value: JsonObject, at: str) -> Message:
    calls = value.get(MESSAGE.tool_calls)
    if calls is not None and not isinstance(calls, list):
        raise bad_request(f"{at}.tool_calls: expected a list", f"{at}.tool_calls")
    read = tuple(_call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls or ()))
    if len({call.id for call in read}) != len(read):
        raise bad_request(f"{at}.tool_calls: two calls have the same id", f"{at}.tool_calls")
    content = value.get(MESSAGE.content)
    text = "" if content is None else text_content(_content(content, at, ("text", "refusal")))
    return Message("assistant", text, read)


def _call(value: Any, at: str) -> ToolCall:
    function: Any = value.get(CALL.function) if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise bad_request(f"{at}: expected a call of a function", at)
    return ToolCall(
        _word(value.get(CALL.id), f"{at}.id"),
        _word(function.get(FUNCTION.name), f"{at}.function.name"),
        _word(function.get(FUNCTION.arguments, ""), f"{at}.function.arguments", may_be_empty=True),
    )


def _word(value: Any, at: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or may_be_empty):
        raise bad_request(f"{at}: expected text", at)
    _no_nul(value, at)
    return value


def _tool(value: dict[str, Any], at: str, open_calls: set[str] | None) -> Message:
    """Return a result. `open_calls`: the calls without one; None: the session has them."""
    call = value.get("tool_call_id")
    if not isinstance(call, str) or not (call if open_calls is None else call in open_calls):
        raise bad_request(f"{at}.tool_call_id: no call of the message before has this id", f"{at}.tool_call_id")
    if open_calls is not None:
        open_calls.discard(call)
    return Message("tool", text_content(_content(value.get("content"), at, ("text",))), tool_call_id=call)


def _content(value: Any, at: str, allowed: tuple[str, ...]) -> Content:
    """Return text or checked parts; a list of text parts becomes text, and refusals count as text."""
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
        raise bad_request(f"{at}: the text contains a NUL character", at)


def _list(calls: set[str]) -> str:
    return ", ".join(sorted(calls))[:200]


def _words(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@lazy_dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked request."""

    model: str
    """Model name in the request; default: the first name of the agent's model."""
    content: Content
    """The last user message, which is that of the turn; "" if the session has it."""
    history: tuple[Message, ...]
    """The messages before it, without system messages."""
    instructions: str
    """System and developer messages, joined by blank lines."""
    stream: bool
    include_usage: bool
    """Whether a stream ends with the usage."""
    session_id: str | None = None
    """The session in the body (Responses API only)."""
    store: bool | None = None
    """Whether the turn is stored, if the body has the field."""
    options: RequestOptions = NO_OPTIONS
    """Options for the model requests."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the options in the body."""
    repeated_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the answer repeats (Responses API only)."""


def check_session_id(given: str) -> str:
    """Return the value of `X-Hermes-Session-Id`.

    Raises:
        HttpError: 400, it is no valid session id.
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
        models: names of the agent's model; other names are rejected.

    Raises:
        HttpError: 400 with the path and the expected value, or 404 for an unknown model.
    """
    value = parse_body(body)
    check_fields(value, CHAT)
    options, names = options_of(value, CHAT)
    return replace(read_chat_values(value, models, options), names=names)


def read_chat_values(
    value: dict[str, Any], models: Collection[str], options: RequestOptions, *, continues: bool = False
) -> ChatRequest:
    """Check the values of a body; arguments and errors as in `read_chat_request` and `read_messages`."""
    model = _model(value.get("model"), models)
    stream, store = _flag(value, "stream") or False, _flag(value, "store")
    include_usage = _include_usage(value.get("stream_options"), stream)
    instructions, messages = read_messages(value.get("messages"), continues=continues)
    if not messages or messages[-1].role not in ("user", "tool"):
        raise bad_request(
            "the last message must be a user message, which the agent answers, or the result of a call", "messages"
        )
    asked = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
    if asked < 0 and not continues:
        raise bad_request("there is no user message to which the results belong", "messages")
    if continuation := tuple(messages[asked + 1 :]):
        options = replace(options, continuation=continuation)
    last = messages[asked].content if asked >= 0 else ""
    has_parts = isinstance(last, list) and any(part["type"] != "text" for part in last)
    if not (continuation or has_parts or text_content(last).strip()):
        raise bad_request("the last message is empty", f"messages[{len(value['messages']) - 1}].content")
    history = tuple(messages[: max(asked, 0)])
    return ChatRequest(model, last, history, instructions, stream, include_usage, store=store, options=options)


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the object in a body.

    Raises:
        HttpError: 400, the body is no object.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair cannot be stored
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
            404, f"The model {given[:200]!r} does not exist; available: {names}", code="model_not_found", param="model"
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
            raise bad_request(f"stream_options.{name[:100]} is an unknown option", f"stream_options.{name[:100]}")
        if given is not None and not isinstance(given, bool):
            raise bad_request(f"{name} is {kind_of(given)}: expected true or false", f"stream_options.{name}")
    if options.get("include_obfuscation"):
        raise unsupported_field("stream_options.include_obfuscation", "streams are not padded")
    return bool(options.get("include_usage"))


DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still working\n\n"
"""A comment, which readers of server-sent events ignore."""


class AnswerFormat(Protocol):
    """Writes one answer in the format of one API."""

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""
        ...

    def first_chunk(self) -> bytes:
        """Return the start of a stream."""
        ...

    def text_chunk(self, text: str) -> bytes:
        """Return a piece of the answer."""
        ...

    def last_chunk(self, end: TurnFinished) -> bytes:
        """Return the end of a stream."""
        ...

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """Return the end of a stream that fails."""
        ...


class ChatCompletionFormat:
    """Writes the answer of one chat-completions request.

    Args:
        include_usage: whether the chunks of a stream have a `usage`, which is null except in the last.
    """

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._id, self._created, self._model = new_id("chatcmpl"), int(time.time()), model
        # only the text differs between chunks, so the rest is encoded once
        before, after = self._chunk(ChoiceDelta(content="\0"), None).split(b'"\\u0000"')
        self._before, self._after = before, after

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""
        message = ChatCompletionMessage(role="assistant", content=end.text or (None if end.calls else ""), refusal=None)
        if end.calls:
            message = ChatCompletionMessage(
                **as_dict(message),
                tool_calls=[
                    ChatCompletionMessageFunctionToolCall(
                        id=call.id, type="function", function=Function(name=call.name, arguments=call.arguments)
                    )
                    for call in end.calls
                ],
            )
        choice = Choice(index=0, message=message, logprobs=None, finish_reason=end.reply_finish_reason)
        return as_dict(
            ChatCompletion(
                id=self._id,
                object="chat.completion",
                created=self._created,
                model=self._model,
                choices=[choice],
                usage=write_usage(end.usage),
            )
        )

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """Return the event that ends a failed stream; clients raise it."""
        return b"data: " + json_bytes(body) + b"\n\n"

    def first_chunk(self) -> bytes:
        """Return the chunk that starts the message of the assistant."""
        return self._chunk(ChoiceDelta(role="assistant", content="", refusal=None), None)

    def text_chunk(self, text: str) -> bytes:
        """Return a piece of the answer."""
        return self._before + json.dumps(text).encode("ascii") + self._after

    def last_chunk(self, end: TurnFinished) -> bytes:
        """Return the end of a stream: calls, the finish reason, the usage if requested, and `[DONE]`."""
        out = b""
        if end.calls:
            calls = [
                ChoiceDeltaToolCall(
                    index=index,
                    id=call.id,
                    type="function",
                    function=ChoiceDeltaToolCallFunction(name=call.name, arguments=call.arguments),
                )
                for index, call in enumerate(end.calls)
            ]
            out = self._chunk(ChoiceDelta(tool_calls=calls), None)
        out += self._chunk(ChoiceDelta(), end.reply_finish_reason)
        if self._include_usage:
            out += self._event([], {"usage": write_usage(end.usage)})
        return out + DONE

    def _chunk(self, delta: ChoiceDelta, finish: FinishReason | None) -> bytes:
        choice = ChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=finish)
        return self._event([choice], {"usage": None} if self._include_usage else {})

    def _event(self, choices: list[ChunkChoice], usage: dict[str, Any]) -> bytes:
        chunk = ChatCompletionChunk(
            id=self._id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._model,
            choices=choices,
            **usage,
        )
        return b"data: " + json_bytes(chunk) + b"\n\n"
