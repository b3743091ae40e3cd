"""Requests and answers of OpenAI's Responses API (`POST /v1/responses`).

A request is read into the same `ChatRequest` as one of chat completions. `request_fields` lists what happens with each
field.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

from hermes_agent.contracts.model_client import RequestOptions
from hermes_agent.core.messages import ToolCall, TurnFinished, Usage, new_id
from hermes_agent.models.openai_types import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseCompletedEvent,
    ResponseContentPartAddedEvent,
    ResponseContentPartDoneEvent,
    ResponseCreatedEvent,
    ResponseErrorEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseInProgressEvent,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    ResponseUsage,
    as_dict,
)
from hermes_agent.server.chat_format import ChatRequest, check_session_id, parse_body, read_chat_values
from hermes_agent.server.http_types import HttpError, json_bytes
from hermes_agent.server.request_fields import (
    EFFORT,
    RESPONSES,
    VERBOSITY,
    bad_request,
    check_fields,
    kind_of,
    options_of,
    read_response_format,
    unsupported_field,
)

_ID = re.compile(r"resp_[0-9a-f]{24}(?:_(?P<session>.+))?")
_TEXTS = ("input_text", "output_text", "text")
_REPEATED = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "reasoning"),
    *("temperature", "text", "tool_choice", "tools", "top_p", "user"),
)
"""Fields of the request that OpenAI's answer repeats."""


def response_id(session_id: str | None) -> str:
    """Return a new id; an id with a session can be continued (`previous_response_id`)."""
    return f"resp_{secrets.token_hex(12)}" + (f"_{session_id}" if session_id else "")


def read_responses_request(body: bytes, models: Collection[str]) -> ChatRequest:
    """Read and check a request body.

    A request without a history is stored as a session, unless it has `store: false`. `previous_response_id` continues
    the session of that answer.

    Raises:
        HttpError: 400 with the path and the expected value, or 404 for an unknown model or answer.
    """
    value = parse_body(body)
    check_fields(value, RESPONSES)
    plain, names = options_of(value, RESPONSES)
    options = _nested(value, plain)
    names |= {"reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity", "response_format": "text.format"}
    instructions = value.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad_request("instructions: expected text", "instructions")
    messages = _messages(value.get("input"))
    if instructions:
        messages.insert(0, {"role": "developer", "content": instructions})
    chat = {name: value.get(name) for name in ("model", "stream", "stream_options", "store")} | {"messages": messages}
    try:
        continues = value.get("previous_response_id") is not None
        request = read_chat_values(chat, models, options, continues=continues)
    except HttpError as refusal:
        message = refusal.message.replace("messages", "input", 1)
        param = refusal.param and refusal.param.replace("messages", "input", 1)
        raise HttpError(refusal.status, message, code=refusal.code, param=param) from None
    repeated = {name: value[name] for name in _REPEATED if value.get(name) is not None}
    return replace(request, session_id=_session(value, request), names=names, repeated_fields=repeated)


def _nested(value: dict[str, Any], options: RequestOptions) -> RequestOptions:
    """Return the options including nested ones: `reasoning.effort`, `text.verbosity`."""
    more: dict[str, Any] = {}
    for field, known in (("reasoning", ("effort", "summary", "generate_summary")), ("text", ("format", "verbosity"))):
        given = value.get(field)
        if given is not None and not isinstance(given, dict):
            raise bad_request(f"{field} is {kind_of(given)}: expected an object", field)
        for name in given or {}:
            if name not in known:
                raise bad_request(f"{field}.{name[:100]} is an unknown field", f"{field}.{name[:100]}")
    reasoning, text = value.get("reasoning") or {}, value.get("text") or {}
    for name in ("summary", "generate_summary"):
        if reasoning.get(name) is not None:
            raise unsupported_field(f"reasoning.{name}", "the agent does not return its reasoning")
    form = None if text.get("format") is None else read_response_format(text["format"], "text.format")
    if form is not None:
        more["response_format"] = form
    if reasoning.get("effort") is not None:
        more["reasoning_effort"] = EFFORT.read(reasoning["effort"], "reasoning.effort")
    if text.get("verbosity") is not None:
        more["verbosity"] = VERBOSITY.read(text["verbosity"], "text.verbosity")
    return replace(options, extra={**options.extra, **more}) if more else options


def _session(value: dict[str, Any], request: ChatRequest) -> str | None:
    before = value.get("previous_response_id")
    if before is None:
        is_stored = value.get("store") is not False and not request.history and not request.options.continuation
        return f"resp-{secrets.token_hex(12)}" if is_stored else None
    match = _ID.fullmatch(before) if isinstance(before, str) else None
    if match is None or match["session"] is None:
        raise HttpError(
            404,
            f"there is no answer {str(before)[:200]!r} that can be continued",
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
            return  # reasoning of a model is not sent back
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


_INCOMPLETE: Mapping[str, Literal["max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
FIRST_EVENTS = 4
"""Number of events of `first_chunk`; later events are numbered from here."""


class ResponsesFormat:
    """Writes the answer of one request.

    Args:
        session_id: part of the id of the answer, so that it can be continued; None: it cannot.
        repeated: fields of the request that the answer repeats.
    """

    def __init__(self, model: str, session_id: str | None, repeated: Mapping[str, Any]) -> None:
        self._head: dict[str, Any] = {
            "id": response_id(session_id),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "store": session_id is not None,
            **repeated,
        }
        self._item = new_id("msg")
        self._streamed_text = ""
        self._is_streamed = False
        self._count = FIRST_EVENTS

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of a complete answer."""
        return as_dict(self._response(end))

    def _response(self, end: TurnFinished) -> Response:
        why = _INCOMPLETE.get(end.reply_finish_reason)
        status = self._status(end)
        details = {} if why is None else {"incomplete_details": IncompleteDetails(reason=why)}
        has_message = bool(end.text or self._is_streamed or not end.calls)
        output: list[Any] = [self._message(status, [_text(end.text)])] if has_message else []
        output += [self._call(call) for call in end.calls]
        return Response(**{**self._head, **details}, status=status, output=output, usage=_usage(end.usage))

    def _status(self, end: TurnFinished) -> Literal["completed", "incomplete"]:
        return "incomplete" if end.reply_finish_reason in _INCOMPLETE else "completed"

    def first_chunk(self) -> bytes:
        """Return the first events of a stream."""
        self._is_streamed = True
        begun = Response(**self._head, status="in_progress", output=[], usage=None)
        item = self._message("in_progress", [])
        return b"".join(
            (
                _event(ResponseCreatedEvent(type="response.created", sequence_number=0, response=begun)),
                _event(ResponseInProgressEvent(type="response.in_progress", sequence_number=1, response=begun)),
                _event(
                    ResponseOutputItemAddedEvent(
                        type="response.output_item.added", sequence_number=2, output_index=0, item=item
                    )
                ),
                _event(
                    ResponseContentPartAddedEvent(
                        type="response.content_part.added",
                        sequence_number=3,
                        item_id=self._item,
                        output_index=0,
                        content_index=0,
                        part=_text(""),
                    )
                ),
            )
        )

    def text_chunk(self, text: str) -> bytes:
        """Return a piece of the answer."""
        self._streamed_text += text
        return _event(
            ResponseTextDeltaEvent(
                type="response.output_text.delta",
                sequence_number=self._next_number(),
                item_id=self._item,
                output_index=0,
                content_index=0,
                delta=text,
                logprobs=[],
            )
        )

    def last_chunk(self, end: TurnFinished) -> bytes:
        """Return the end of a stream."""
        response, text, status = self._response(end), self._streamed_text, self._status(end)
        done = ResponseTextDoneEvent(
            type="response.output_text.done",
            sequence_number=self._next_number(),
            item_id=self._item,
            output_index=0,
            content_index=0,
            text=text,
            logprobs=[],
        )
        part_done = ResponseContentPartDoneEvent(
            type="response.content_part.done",
            sequence_number=self._next_number(),
            item_id=self._item,
            output_index=0,
            content_index=0,
            part=_text(text),
        )
        item_done = ResponseOutputItemDoneEvent(
            type="response.output_item.done",
            sequence_number=self._next_number(),
            output_index=0,
            item=self._message(status, [_text(text)]),
        )
        calls = b"".join(self._call_events(call, index) for index, call in enumerate(end.calls, 1))
        number = self._next_number()
        ended: object
        if status == "completed":
            ended = ResponseCompletedEvent(type="response.completed", sequence_number=number, response=response)
        else:
            ended = ResponseIncompleteEvent(type="response.incomplete", sequence_number=number, response=response)
        return b"".join(map(_event, (done, part_done, item_done))) + calls + _event(ended)

    def _call_events(self, call: ToolCall, index: int) -> bytes:
        """Return the events of one call of a caller's tool."""
        item = self._call(call)
        begun = ResponseOutputItemAddedEvent(
            type="response.output_item.added",
            sequence_number=self._next_number(),
            output_index=index,
            item=ResponseFunctionToolCall(**{**as_dict(item), "arguments": "", "status": "in_progress"}),
        )
        where = {"item_id": as_dict(item)["id"], "output_index": index}
        delta = ResponseFunctionCallArgumentsDeltaEvent(
            type="response.function_call_arguments.delta",
            sequence_number=self._next_number(),
            delta=call.arguments,
            **where,
        )
        done = ResponseFunctionCallArgumentsDoneEvent(
            type="response.function_call_arguments.done",
            sequence_number=self._next_number(),
            arguments=call.arguments,
            name=call.name,
            **where,
        )
        ended = ResponseOutputItemDoneEvent(
            type="response.output_item.done", sequence_number=self._next_number(), output_index=index, item=item
        )
        return b"".join(map(_event, (begun, delta, done, ended)))

    def _call(self, call: ToolCall) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(
            id=f"fc_{self._item}_{call.id}",
            call_id=call.id,
            type="function_call",
            name=call.name,
            arguments=call.arguments,
            status="completed",
        )

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """Return the event that ends a failed stream; clients raise it."""
        found = body["error"]
        return _event(
            ResponseErrorEvent(
                type="error",
                sequence_number=self._next_number(),
                code=found["code"],
                message=found["message"],
                param=found["param"],
            )
        )

    def _message(
        self, status: Literal["in_progress", "completed", "incomplete"], content: list[Any]
    ) -> ResponseOutputMessage:
        return ResponseOutputMessage(id=self._item, type="message", status=status, role="assistant", content=content)

    def _next_number(self) -> int:
        self._count += 1
        return self._count - 1


def _event(event: object) -> bytes:
    kind: str = as_dict(event)["type"]
    return b"event: " + kind.encode() + b"\ndata: " + json_bytes(event) + b"\n\n"


def _text(text: str) -> ResponseOutputText:
    return ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        # `cache_write_tokens` is left out: providers count them differently, or not at all
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_tokens),  # type: ignore[call-arg]
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        total_tokens=usage.total_tokens,
    )
