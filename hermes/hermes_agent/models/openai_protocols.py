"""OpenAI's wire protocols, chat completions and Responses, with the fields of other providers.

https://platform.openai.com/docs/api-reference/chat, https://platform.openai.com/docs/api-reference/responses

The fields of OpenAI's JSON are names of its SDK (`models.openai_types`); a literal text is a field of another provider.
Responses stores nothing at the provider (`store` is false): reasoning arrives encrypted and is sent back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, cast

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.tool_schemas import BY_NAME, OPENAI, SchemaDialect, adapt_schema
from hermes_agent.models.openai_types import (
    ChatCompletionChunk,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
    ChunkChoice,
    CompletionCreateParamsStreaming,
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
from hermes_agent.models.providers import CHAT_COMPLETIONS, ModelEndpoint, ModelProvider
from hermes_agent.models.reasoning_pieces import REASONING_FIELDS, TaggedReasoning, add_detail, delta_reasoning
from hermes_agent.models.wire_protocol import (
    AnswerBuilder,
    ErrorReplyReceived,
    WireProtocol,
    encode_json,
    encode_message_runs,
    encode_messages,
    encode_tools,
    join_list,
    parse_json,
    provider_extras,
)

CHUNK = field_names(ChatCompletionChunk)
CHOICE = field_names(ChunkChoice)
DELTA = field_names(ChoiceDelta)
CALL = field_names(ChoiceDeltaToolCall)
FUNCTION = field_names(ChoiceDeltaToolCallFunction)
ANSWER = field_names(Response)
ITEM_ADDED = field_names(ResponseOutputItemAddedEvent)
ARGUMENTS_DELTA = field_names(ResponseFunctionCallArgumentsDeltaEvent)
TOOL_CALL = field_names(ResponseFunctionToolCall)
OUTPUT_MESSAGE = field_names(ResponseOutputMessage)
INCOMPLETE = field_names(IncompleteDetails)


def _chat_tool(tool: Mapping[str, Any], dialect: SchemaDialect) -> Mapping[str, Any]:
    """Return a tool with its schema in the provider's dialect; what is no function is returned unchanged."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    schema = adapt_schema(function.get("parameters"), dialect)
    if dialect.open_api and not schema["properties"]:  # Gemini rejects an object without properties
        return {**tool, "function": {k: v for k, v in function.items() if k != "parameters"}}
    return {**tool, "function": {**function, "parameters": schema}}


def chat_message(message: Message, provider: str) -> dict[str, Any]:
    """Return a message's JSON, with the fields that its provider expects to get back."""
    value, extras = message.to_dict(), provider_extras(message, provider)
    value |= extras.get("fields") or {}
    for call in value.get("tool_calls", ()):
        call |= (extras.get("calls") or {}).get(call["id"]) or {}
    return value


def _cache_marked(messages: Sequence[Message], provider: ModelProvider) -> dict[int, bytes]:
    """Return the system prompt and the last two texts by index, with marks for the cache of Claude."""
    out: dict[int, bytes] = {}
    at = range(len(messages) - 1, -1, -1)
    texts = (i for i in at if messages[i].role in ("user", "assistant") and messages[i].content)
    first_is_prompt = bool(messages) and messages[0].role == "system" and bool(messages[0].content)
    for place in [*([0] if first_is_prompt else ()), *islice(texts, 2)]:
        value = chat_message(messages[place], provider.name)
        content = value["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        value["content"] = [*parts[:-1], {**parts[-1], "cache_control": provider.cache_mark}]
        out[place] = encode_json(value)
    return out


class _ChatAnswerBuilder(AnswerBuilder):
    """Builder of an answer from the chunks of chat completions."""

    whole = ("choices", "error")

    def __init__(self, provider: ModelProvider, model: str) -> None:
        super().__init__(provider, model)
        self._calls = _ToolCallBuilder()
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._tagged = TaggedReasoning()

    def chunk(self, chunk: JsonObject) -> str:
        if chunk.get("error") or chunk.get(CHUNK.object) == "error":
            raise ErrorReplyReceived(self.read_error(chunk))
        self.has_begun = True
        self.model = str(chunk.get(CHUNK.model) or self.model)
        # Groq sends it one level down; some providers repeat it with growing numbers in each chunk
        if usage := chunk.get(CHUNK.usage) or (chunk.get("x_groq") or {}).get("usage"):
            self.usage = dict(usage)
        for choice in chunk.get(CHUNK.choices) or ():
            if not choice.get(CHOICE.index):
                return self._add_choice(choice)
        return ""

    def _add_choice(self, choice: JsonObject) -> str:
        if choice.get("error"):
            raise ErrorReplyReceived(self.read_error(choice))
        self.finish_reason = str(choice.get(CHOICE.finish_reason) or self.finish_reason)
        delta: JsonObject = choice.get(CHOICE.delta) or choice.get("message") or {}  # the second: not a stream
        if calls := delta.get(DELTA.tool_calls):
            self._calls.add(calls)
        if self.provider.profile.wants_reasoning and isinstance(delta.get("reasoning_content"), str):
            self._reasoning.append(delta["reasoning_content"])
        if not REASONING_FIELDS.isdisjoint(delta):
            self.reasoning += delta_reasoning(delta)
            for detail in delta.get("reasoning_details") or ():  # OpenRouter, MiniMax
                add_detail(self._details, detail)
        text = ""
        for content in (delta.get(DELTA.content), delta.get(DELTA.refusal)):
            text += content if isinstance(content, str) else _delta_text(content)
        reasoning, text = self._tagged.split(text, is_last=bool(self.finish_reason))
        self.reasoning += reasoning
        return text

    def calls(self) -> list[dict[str, str]]:
        return self._calls.calls

    def extras(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self._reasoning and calls:
            fields["reasoning_content"] = "".join(self._reasoning)
        if self._details:
            fields["reasoning_details"] = self._details
        signed = {c.id: {"extra_content": s} for c, s in zip(calls, self._calls.signatures, strict=True) if s}
        return {k: v for k, v in (("fields", fields), ("calls", signed)) if v}


class _ToolCallBuilder:
    """Builder of tool calls from their pieces.

    A piece belongs to the call of its `index`. Some providers omit the index, or give every call the same. Then a new
    id begins a new call, and so does a name after a call with complete arguments.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        """In the order of their first pieces."""
        self.signatures: list[Any] = []
        """For each call the signature that Gemini expects to get back, mostly None."""
        self._at: dict[int, dict[str, str]] = {}

    def add(self, pieces: Iterable[JsonObject]) -> None:
        """Add the pieces of one chunk."""
        for piece in pieces:
            function: JsonObject = piece.get(CALL.function) or {}
            name, given_id = str(function.get(FUNCTION.name) or ""), str(piece.get(CALL.id) or "")
            index = piece.get(CALL.index)
            call = self._at.get(index) if isinstance(index, int) else (self.calls[-1] if self.calls else None)
            if call is None or _begins_another(call, given_id, name, by_index=isinstance(index, int)):
                call = {"id": given_id, "name": "", "arguments": ""}
                self.calls.append(call)
                self.signatures.append(None)
                if isinstance(index, int):
                    self._at[index] = call
            call["id"] = call["id"] or given_id
            if name != call["name"] and not call["arguments"]:
                call["name"] += name
            arguments = function.get(FUNCTION.arguments)
            call["arguments"] += arguments if isinstance(arguments, str) else _as_text(arguments)
            if signature := piece.get("extra_content"):
                self.signatures[next(at for at, c in enumerate(self.calls) if c is call)] = signature


def _begins_another(call: dict[str, str], given_id: str, name: str, *, by_index: bool) -> bool:
    if given_id and call["id"]:
        return given_id != call["id"] and bool(name)
    return not by_index and bool(name) and parse_json(call["arguments"]) is not None


def _delta_text(content: Any) -> str:
    """Return the text of a delta's content: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"content is {type(content).__name__}")
    return content or ""


def _as_text(arguments: Any) -> str:
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


class ChatCompletionsProtocol(WireProtocol):
    """Chat completions, the protocol of most providers."""

    name = CHAT_COMPLETIONS
    builder = _ChatAnswerBuilder

    def path(self, endpoint: ModelEndpoint) -> str:
        return "/chat/completions"

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        provider = endpoint.provider
        body: dict[str, Any] = {}
        openai = cast(CompletionCreateParamsStreaming, body)  # the same dict; mypy knows its fields
        openai["model"] = request.model
        if request.tools:
            dialect = BY_NAME.get(provider.profile.schemas, OPENAI)
            openai["tools"] = encode_tools(
                request.tools, provider, lambda tools: [_chat_tool(t, dialect) for t in tools]
            )
        marks = provider.profile.marks_cache and "claude" in request.model
        marked = _cache_marked(request.messages, provider) if marks else None
        openai["messages"] = join_list(
            encode_message_runs(request.messages, provider, lambda m: chat_message(m, provider.name), marked)
        )
        if request.max_tokens is not None:
            body[provider.profile.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            openai["temperature"] = request.temperature
        body |= fields
        names = provider.profile.option_fields
        body |= {names.get(name, name): value for name, value in request.extra.items()} if names else request.extra
        openai["stream"] = True
        if not provider.profile.sends_usage_unasked:
            openai["stream_options"] = {"include_usage": True}
        return body


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
