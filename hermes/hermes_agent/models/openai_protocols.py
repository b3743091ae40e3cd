"""The chat-completions wire: the one file that knows its JSON.

https://platform.openai.com/docs/api-reference/chat, and where providers differ from it.

OpenAI's Responses wire: the one file that knows its JSON. https://platform.openai.com/docs/api-reference/responses

Nothing is kept at the provider (`store` is false): the thoughts of a model come encrypted and go back as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.tool_schemas import BY_NAME, OPENAI, SchemaDialect, adapt_schema
from hermes_agent.models.providers import CHAT_COMPLETIONS, ModelEndpoint, ModelProvider
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


def _chat_tool(tool: Mapping[str, Any], dialect: SchemaDialect) -> Mapping[str, Any]:
    """Return a tool with the schema that the provider takes; whatever is no function stays as it is."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    schema = adapt_schema(function.get("parameters"), dialect)
    if dialect.open_api and not schema["properties"]:  # Gemini takes no object of nothing
        return {**tool, "function": {k: v for k, v in function.items() if k != "parameters"}}
    return {**tool, "function": {**function, "parameters": schema}}


def chat_message(message: Message, provider: str) -> dict[str, Any]:
    """Return a message's JSON, with what the provider wants back with it."""
    value, extras = message.to_dict(), provider_extras(message, provider)
    value |= extras.get("fields") or {}
    for call in value.get("tool_calls", ()):
        call |= (extras.get("calls") or {}).get(call["id"]) or {}
    return value


def _cache_marked(messages: Sequence[Message], provider: ModelProvider) -> dict[int, bytes]:
    """Return by place the system prompt and the last two texts, with marks for the cache of Claude at their ends."""
    out: dict[int, bytes] = {}
    at = range(len(messages) - 1, -1, -1)
    said = (i for i in at if messages[i].role in ("user", "assistant") and messages[i].content)
    first_is_prompt = bool(messages) and messages[0].role == "system" and bool(messages[0].content)
    for place in [*([0] if first_is_prompt else ()), *islice(said, 2)]:
        value = chat_message(messages[place], provider.name)
        content = value["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        value["content"] = [*parts[:-1], {**parts[-1], "cache_control": provider.cache_mark}]
        out[place] = encode_json(value)
    return out


class _ChatAnswerBuilder(AnswerBuilder):
    """Puts the chunks of one answer together."""

    whole = ("choices", "error")

    def __init__(self, provider: ModelProvider, model: str) -> None:
        super().__init__(provider, model)
        self._calls = _ToolCallBuilder()
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []

    def chunk(self, chunk: dict[str, Any]) -> str:
        if chunk.get("error") or chunk.get("object") == "error":
            raise ErrorReplyReceived(self.read_error(chunk))
        self.has_begun = True
        self.model = str(chunk.get("model") or self.model)
        # Groq has it one level down; some repeat it, growing, in each chunk
        if usage := chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage"):
            self.usage = dict(usage)
        choice = next((c for c in chunk.get("choices") or () if not c.get("index")), None)
        if choice is None:
            return ""
        if choice.get("error"):
            raise ErrorReplyReceived(self.read_error(choice))
        self.finish_reason = str(choice.get("finish_reason") or self.finish_reason)
        delta = choice.get("delta") or choice.get("message") or {}
        self._calls.add(delta.get("tool_calls") or ())
        if self.provider.profile.wants_reasoning and isinstance(delta.get("reasoning_content"), str):
            self._reasoning.append(delta["reasoning_content"])
        for detail in delta.get("reasoning_details") or ():  # OpenRouter, MiniMax
            _add_detail(self._details, detail)
        return _delta_text(delta.get("content")) + _delta_text(delta.get("refusal"))

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
    """Puts tool calls together from their pieces.

    A piece belongs to the call of its `index`. Where a provider leaves that out, or gives every call the same
    one, a new id begins a new call, and so does a name after a call whose arguments are whole.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        """In the order in which they began."""
        self.signatures: list[Any] = []
        """Of each call: what Gemini wants back with it; None for most."""
        self._at: dict[int, dict[str, str]] = {}

    def add(self, pieces: Iterable[dict[str, Any]]) -> None:
        """Add the pieces of one chunk."""
        for piece in pieces:
            function = piece.get("function") or {}
            name, given_id = str(function.get("name") or ""), str(piece.get("id") or "")
            index = piece.get("index")
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
            arguments = function.get("arguments")
            call["arguments"] += arguments if isinstance(arguments, str) else _as_text(arguments)
            if signature := piece.get("extra_content"):
                self.signatures[next(at for at, c in enumerate(self.calls) if c is call)] = signature


def _begins_another(call: dict[str, str], given_id: str, name: str, *, by_index: bool) -> bool:
    if given_id and call["id"]:
        return given_id != call["id"] and bool(name)
    return not by_index and bool(name) and parse_json(call["arguments"]) is not None


def _add_detail(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    """Add a piece of reasoning; the pieces of one `index` are one, their texts joined."""
    index = detail.get("index")
    known = next((d for d in details if index is not None and d.get("index") == index), None)
    if known is None:
        details.append(dict(detail))
        return
    for key, value in detail.items():
        joined = key in ("text", "summary", "data") and isinstance(known.get(key), str) and isinstance(value, str)
        if joined:
            known[key] += value
        elif value is not None:
            known[key] = value


def _delta_text(content: Any) -> str:
    """The text of a delta's content: a string, or parts of which those that are text count."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"content is {type(content).__name__}")
    return content or ""


def _as_text(arguments: Any) -> str:
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


class ChatCompletionsProtocol(WireProtocol):
    """OpenAI's protocol of 2023, which most providers speak."""

    name = CHAT_COMPLETIONS
    builder = _ChatAnswerBuilder

    def path(self, endpoint: ModelEndpoint) -> str:
        return "/chat/completions"

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        provider = endpoint.provider
        body: dict[str, Any] = {"model": request.model}
        if request.tools:
            dialect = BY_NAME.get(provider.profile.schemas, OPENAI)
            body["tools"] = encode_tools(request.tools, provider, lambda tools: [_chat_tool(t, dialect) for t in tools])
        marks = provider.profile.marks_cache and "claude" in request.model
        marked = _cache_marked(request.messages, provider) if marks else None
        body["messages"] = join_list(
            encode_message_runs(request.messages, provider, lambda m: chat_message(m, provider.name), marked)
        )
        if request.max_tokens is not None:
            body[provider.profile.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        body |= fields
        body |= request.extra
        body["stream"] = True
        if not provider.profile.sends_usage_unasked:
            body["stream_options"] = {"include_usage": True}
        return body


_REASON = {"max_output_tokens": "length", "content_filter": "content_filter"}


def _translate_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further fields of a request; those in the words of chat completions as this protocol says them."""
    extra = dict(given)
    if effort := extra.pop("reasoning_effort", None):
        extra["reasoning"] = {"effort": effort}
    if longest := extra.pop("max_completion_tokens", None):
        extra["max_output_tokens"] = longest
    form, verbosity = extra.pop("response_format", None), extra.pop("verbosity", None)
    if isinstance(form, dict):
        extra["text"] = {"format": {"type": form.get("type"), **(form.get("json_schema") or {})}}
    if verbosity:
        extra["text"] = {**(extra.get("text") or {}), "verbosity": verbosity}
    choice = extra.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        extra["tool_choice"] = {"type": "function", "name": choice["function"].get("name")}
    return extra


def _responses_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or tool
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": adapt_schema(function.get("parameters"), OPENAI),
        "strict": False,
    }


def _conversation(messages: Sequence[Message], provider: ModelProvider) -> tuple[str, list[bytes]]:
    """Return the instructions and the items, encoded."""
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
    if message.role == "tool":
        output = message.content if isinstance(message.content, str) else _parts(message.content, "input")
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]
    if message.role == "assistant":
        return _assistant_items(message, provider)
    return [{"role": message.role, "content": _parts(message.content, "input")}]


def _assistant_items(message: Message, provider: str) -> list[dict[str, Any]]:
    """Return an assistant message as items, each thought before what it was about."""
    text = [{"role": "assistant", "content": _parts(message.content, "output")}] if message.content else []
    calls = {
        call.id: {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    }
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
        out.pop()  # a thought about nothing is refused
    return [*out, *text, *calls.values()]


def _parts(content: Content, way: str) -> list[dict[str, Any]]:
    """Return a content as parts of the `input` or the `output`."""
    if isinstance(content, str):
        return [{"type": f"{way}_text", "text": content}]
    return [_part(part, way) for part in content]


def _part(part: Mapping[str, Any], way: str) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("text", "input_text"):
        return {"type": f"{way}_text", "text": str(part.get("text") or "")}
    if kind != "image_url":
        return dict(part)  # in this protocol's own words: a file
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    detail = image.get("detail") if isinstance(image, Mapping) else None
    return {"type": "input_image", "image_url": url, **({"detail": detail} if detail else {})}


class _ResponsesAnswerBuilder(AnswerBuilder):
    """Puts the events of one answer together."""

    whole = ("output", "error")

    def __init__(self, provider: ModelProvider, model: str) -> None:
        super().__init__(provider, model)
        self._items: dict[int, dict[str, Any]] = {}

    def chunk(self, chunk: dict[str, Any]) -> str:
        kind = str(chunk.get("type") or "")
        if kind == "error" or (not kind and chunk.get("error")):
            raise ErrorReplyReceived(self.read_error(chunk))
        if kind == "response.failed":
            raise ErrorReplyReceived(self.read_error({"error": chunk["response"].get("error") or {}}))
        if not kind and isinstance(chunk.get("output"), list):  # not a stream
            return self._end(chunk)
        self.has_begun = True
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(chunk["delta"])
        if kind == "response.output_item.added":
            self._items[chunk["output_index"]] = dict(chunk["item"])
        elif kind == "response.output_item.done":
            self._items[chunk["output_index"]] = chunk["item"]
        elif kind == "response.function_call_arguments.delta":
            item = self._items[chunk["output_index"]]
            item["arguments"] = (item.get("arguments") or "") + chunk["delta"]
        elif kind == "response.created":
            self.model = str(chunk["response"].get("model") or self.model)
        elif kind in ("response.completed", "response.incomplete"):
            self.is_done = True
            return self._end(chunk["response"])
        return ""

    def _end(self, response: dict[str, Any]) -> str:
        """Take the whole response; return what of its text was not told before."""
        self.has_begun = True
        if error := response.get("error"):
            raise ErrorReplyReceived(self.read_error({"error": error}))
        self.model = str(response.get("model") or self.model)
        self.usage = dict(response.get("usage") or {})
        for index, item in enumerate(response.get("output") or ()):
            self._items[index] = item
        why = (response.get("incomplete_details") or {}).get("reason")
        self.finish_reason = _REASON.get(why, str(why)) if why else "tool_calls" if self.calls() else "stop"
        return "" if self.text else "".join(map(_item_text, self._items.values()))

    def calls(self) -> list[dict[str, str]]:
        return [
            {"id": str(i.get("call_id") or ""), "name": str(i.get("name") or ""), "arguments": i.get("arguments") or ""}
            for i in self._in_order()
            if i.get("type") == "function_call"
        ]

    def extras(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        items = self._in_order()
        thinks = any(item.get("type") == "reasoning" for item in items)
        return {"items": list(map(_reasoning_item, items))} if thinks else {}

    def _in_order(self) -> list[dict[str, Any]]:
        return [self._items[index] for index in sorted(self._items)]


def _reasoning_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return a thought as it came, without its state; of everything else where it stood."""
    if item.get("type") == "reasoning":
        return {k: v for k, v in item.items() if k != "status" and v is not None}
    return {k: item[k] for k in ("type", "call_id") if k in item}


def _item_text(item: Mapping[str, Any]) -> str:
    parts = item.get("content") if item.get("type") == "message" else None
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts or ())


class ResponsesProtocol(WireProtocol):
    """OpenAI's protocol of 2025."""

    name = "codex_responses"
    builder = _ResponsesAnswerBuilder
    unsupported_options = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias"})

    def path(self, endpoint: ModelEndpoint) -> str:
        return "/responses"

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        instructions, items = _conversation(request.messages, endpoint.provider)
        body: dict[str, Any] = {"model": request.model}
        if request.tools:
            body["tools"] = encode_tools(
                request.tools, endpoint.provider, lambda tools: [_responses_tool(t) for t in tools]
            )
        if instructions:
            body["instructions"] = instructions
        body["input"] = join_list(items)
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.session_id:
            body["prompt_cache_key"] = request.session_id
        body |= fields
        body |= _translate_fields(request.extra)
        return {**body, "include": ["reasoning.encrypted_content"], "store": False, "stream": True}
