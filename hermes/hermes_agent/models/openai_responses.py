"""OpenAI's wire protocol Responses.

https://platform.openai.com/docs/api-reference/responses

The fields of OpenAI's JSON are names of its SDK (`models.openai_types`); a literal text is a field of another provider.
Nothing is stored at the provider (`store` is false): reasoning arrives encrypted and is sent back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.tool_schemas import OPENAI, adapt_schema
from hermes_agent.models.openai_types import (
    EasyInputMessageParam,
    FunctionCallOutput,
    FunctionToolParam,
    IncompleteDetails,
    JsonObject,
    Response,
    ResponseCreateParamsStreaming,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseFunctionToolCallParam,
    ResponseInputImageParam,
    ResponseOutputItemAddedEvent,
    ResponseOutputMessage,
    ResponseTextConfigParam,
    as_dict,
    field_names,
)
from hermes_agent.models.providers import ModelEndpoint, ModelProvider
from hermes_agent.models.wire_protocol import (
    AnswerBuilder,
    ErrorReplyReceived,
    WireProtocol,
    encode_messages,
    encode_tools,
    join_list,
    provider_extras,
)

ANSWER = field_names(Response)
ITEM_ADDED = field_names(ResponseOutputItemAddedEvent)
ARGUMENTS_DELTA = field_names(ResponseFunctionCallArgumentsDeltaEvent)
TOOL_CALL = field_names(ResponseFunctionToolCall)
OUTPUT_MESSAGE = field_names(ResponseOutputMessage)
INCOMPLETE = field_names(IncompleteDetails)
_REASON = {"max_output_tokens": "length", "content_filter": "content_filter"}


def _translate_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the additional fields of a request under their names in this protocol."""
    extra = dict(given)
    openai = cast(ResponseCreateParamsStreaming, extra)  # the same dict; mypy knows its fields
    if effort := extra.pop("reasoning_effort", None):
        openai["reasoning"] = {"effort": effort}
    if max_tokens := extra.pop("max_completion_tokens", None):
        openai["max_output_tokens"] = max_tokens
    form, verbosity = extra.pop("response_format", None), extra.pop("verbosity", None)
    if isinstance(form, dict):
        text_format: Any = {"type": form.get("type"), **(form.get("json_schema") or {})}
        openai["text"] = {"format": text_format}
    if verbosity:
        text: Any = (extra.get("text") or {}) | as_dict(ResponseTextConfigParam(verbosity=verbosity))
        openai["text"] = text
    choice = extra.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        openai["tool_choice"] = {"type": "function", "name": choice["function"].get("name")}
    return extra


def _responses_tool(tool: Mapping[str, Any]) -> FunctionToolParam:
    function = tool.get("function") or tool
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": adapt_schema(function.get("parameters"), OPENAI),
        "strict": False,
    }


def _conversation(messages: Sequence[Message], provider: ModelProvider) -> tuple[str, list[bytes]]:
    """Return the instructions and the encoded items."""
    instructions: list[str] = []
    items: list[bytes] = []
    for message, texts in zip(
        messages, encode_messages(messages, provider, lambda m: _items(m, provider.name)), strict=True
    ):
        if message.role == "system" and not items:
            instructions.append(message.text)
        else:
            items += texts
    return "\n\n".join(filter(None, instructions)), items


def _items(message: Message, provider: str) -> list[dict[str, Any]]:
    content = message.content
    if message.role == "tool":
        output: Any = content if isinstance(content, str) else _parts(content, "input")
        return [as_dict(FunctionCallOutput(type="function_call_output", call_id=message.tool_call_id, output=output))]
    if message.role == "assistant":
        return _assistant_items(message, provider)
    return [_message_item(message.role, content, "input")]


def _message_item(
    role: Literal["system", "user", "assistant"], content: Content, way: Literal["input", "output"]
) -> dict[str, Any]:
    parts: Any = _parts(content, way)  # output parts are allowed where the SDK has input parts alone
    return as_dict(EasyInputMessageParam(role=role, content=parts))


def _call_item(call: ToolCall) -> dict[str, Any]:
    return as_dict(
        ResponseFunctionToolCallParam(type="function_call", call_id=call.id, name=call.name, arguments=call.arguments)
    )


def _assistant_items(message: Message, provider: str) -> list[dict[str, Any]]:
    """Return an assistant message as items, each piece of reasoning before the item that it led to."""
    text = [_message_item("assistant", message.content, "output")] if message.content else []
    calls = {call.id: _call_item(call) for call in message.tool_calls}
    out: list[dict[str, Any]] = []
    for item in provider_extras(message, provider).get("items") or ():
        if item.get("type") == "reasoning":
            out.append(item)
        elif item.get("type") == "message":
            out += text
            text = []
        elif call := calls.pop(item.get("call_id"), None):
            out.append(call)
    while out and out[-1].get("type") == "reasoning" and not (text or calls):
        out.pop()  # reasoning that led to no item is refused
    return [*out, *text, *calls.values()]


def _parts(content: Content, way: Literal["input", "output"]) -> list[dict[str, Any]]:
    """Return a content as parts of the input or the output."""
    if isinstance(content, str):
        return [{"type": f"{way}_text", "text": content}]
    return [_part(part, way) for part in content]


def _part(part: Mapping[str, Any], way: Literal["input", "output"]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("text", "input_text"):
        return {"type": f"{way}_text", "text": str(part.get("text") or "")}
    if kind != "image_url":
        return dict(part)  # a part of this protocol, such as a file
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    detail = image.get("detail") if isinstance(image, Mapping) else None
    image_part = ResponseInputImageParam(type="input_image", image_url=url)  # type: ignore[typeddict-item]
    return as_dict(image_part) | ({"detail": detail} if detail else {})


class _ResponsesAnswerBuilder(AnswerBuilder):
    """Builder of an answer from the events of Responses."""

    whole = ("output", "error")

    def __init__(self, provider: ModelProvider, model: str) -> None:
        super().__init__(provider, model)
        self._items: dict[int, JsonObject] = {}

    def chunk(self, chunk: JsonObject) -> str:
        kind = str(chunk.get("type") or "")
        if kind == "error" or (not kind and chunk.get("error")):
            raise ErrorReplyReceived(self.read_error(chunk))
        if kind == "response.failed":
            raise ErrorReplyReceived(self.read_error({"error": chunk["response"].get("error") or {}}))
        if not kind and isinstance(chunk.get(ANSWER.output), list):  # not a stream
            return self._end(chunk)
        self.has_begun = True
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(chunk["delta"])
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self.reasoning += str(chunk["delta"])
        elif kind == "response.reasoning_summary_part.done":
            self.reasoning += "\n\n"
        elif kind == "response.output_item.added":
            self._items[chunk[ITEM_ADDED.output_index]] = dict(chunk[ITEM_ADDED.item])
        elif kind == "response.output_item.done":
            self._items[chunk[ITEM_ADDED.output_index]] = chunk[ITEM_ADDED.item]
        elif kind == "response.function_call_arguments.delta":
            item = self._items[chunk[ARGUMENTS_DELTA.output_index]]
            item[TOOL_CALL.arguments] = (item.get(TOOL_CALL.arguments) or "") + chunk[ARGUMENTS_DELTA.delta]
        elif kind == "response.created":
            self.model = str(chunk["response"].get(ANSWER.model) or self.model)
        elif kind in ("response.completed", "response.incomplete"):
            self.is_done = True
            return self._end(chunk["response"])
        return ""

    def _end(self, response: JsonObject) -> str:
        """Read the complete response; return its text if none was streamed."""
        self.has_begun = True
        if error := response.get(ANSWER.error):
            raise ErrorReplyReceived(self.read_error({"error": error}))
        self.model = str(response.get(ANSWER.model) or self.model)
        self.usage = dict(response.get(ANSWER.usage) or {})
        for index, item in enumerate(response.get(ANSWER.output) or ()):
            self._items[index] = item
        details: JsonObject = response.get(ANSWER.incomplete_details) or {}
        why = details.get(INCOMPLETE.reason)
        self.finish_reason = _REASON.get(why, str(why)) if why else "tool_calls" if self.calls() else "stop"
        return "" if self.text else "".join(map(_item_text, self._items.values()))

    def calls(self) -> list[dict[str, str]]:
        return [
            {
                "id": str(item.get(TOOL_CALL.call_id) or ""),
                "name": str(item.get(TOOL_CALL.name) or ""),
                "arguments": item.get(TOOL_CALL.arguments) or "",
            }
            for item in self._in_order()
            if item.get("type") == "function_call"
        ]

    def extras(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        items = self._in_order()
        has_reasoning = any(item.get("type") == "reasoning" for item in items)
        return {"items": list(map(_reasoning_item, items))} if has_reasoning else {}

    def _in_order(self) -> list[JsonObject]:
        return [self._items[index] for index in sorted(self._items)]


def _reasoning_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return reasoning as it came, without its state, and of other items their kind and id alone."""
    if item.get("type") == "reasoning":
        return {k: v for k, v in item.items() if k != "status" and v is not None}
    return {k: item[k] for k in ("type", "call_id") if k in item}


def _item_text(item: JsonObject) -> str:
    parts = item.get(OUTPUT_MESSAGE.content) if item.get("type") == "message" else None
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts or ())


class ResponsesProtocol(WireProtocol):
    """OpenAI's Responses."""

    name = "codex_responses"
    builder = _ResponsesAnswerBuilder
    unsupported_options = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias"})

    def path(self, endpoint: ModelEndpoint) -> str:
        return "/responses"

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        instructions, items = _conversation(request.messages, endpoint.provider)
        body: dict[str, Any] = {}
        openai = cast(ResponseCreateParamsStreaming, body)  # the same dict; mypy knows its fields
        openai["model"] = request.model
        if request.tools:
            openai["tools"] = encode_tools(
                request.tools, endpoint.provider, lambda tools: [_responses_tool(t) for t in tools]
            )
        if instructions:
            openai["instructions"] = instructions
        openai["input"] = join_list(items)
        if request.max_tokens is not None:
            openai["max_output_tokens"] = request.max_tokens
        if request.temperature is not None:
            openai["temperature"] = request.temperature
        if request.session_id:
            openai["prompt_cache_key"] = request.session_id
        body |= fields
        body |= _translate_fields(request.extra)
        openai["include"] = ["reasoning.encrypted_content"]
        openai["store"] = False
        openai["stream"] = True
        return body
