"""The wire protocol of chat completions, with the fields of other providers than OpenAI.

https://platform.openai.com/docs/api-reference/chat

The fields of OpenAI's JSON are names of its SDK (`models.openai_types`); a literal text is a field of another provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.core.text import overlap
from hermes_agent.core.tool_schemas import BY_NAME, OPENAI, SchemaDialect, adapt_schema
from hermes_agent.models.openai_types import (
    ChatCompletionChunk,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
    ChunkChoice,
    CompletionCreateParamsStreaming,
    JsonObject,
    field_names,
)
from hermes_agent.models.providers import CHAT_COMPLETIONS, ModelEndpoint, ModelProvider
from hermes_agent.models.wire_protocol import (
    AnswerBuilder,
    ErrorReplyReceived,
    WireProtocol,
    encode_json,
    encode_message_runs,
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
TAGS = {"<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>"}
"""Tags around the reasoning of models that are served without a parser of it, such as DeepSeek R1, Qwen, MiniMax."""
LONGEST = max(map(len, TAGS))


REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""Fields of a delta with reasoning."""


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


class TaggedReasoning:
    """Splits a streamed text into the reasoning between tags at its beginning, and the answer.

    Tags later in the text are text: an answer may write about them. A text without a closing tag is reasoning.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Whether all further text belongs to the answer."""
        self._held = ""
        """What may be a part of a tag, or blanks around one."""
        self._end = ""
        """The closing tag; empty before an opening one."""
        self._has_ended = False

    def split(self, text: str, *, is_last: bool = False) -> tuple[str, str]:
        """Return the reasoning and the text of the answer that are known after the next piece of text.

        Args:
            is_last: whether no further text follows, so that nothing is held back.
        """
        if self.is_over or not (text or is_last):
            return "", text
        self._held += text
        reasoning = ""
        if not self._end:
            begun = self._held.lstrip()
            tag = next((tag for tag in TAGS if begun.startswith(tag)), "")
            if not tag:
                if is_last or not any(tag.startswith(begun[:LONGEST]) for tag in TAGS):
                    self.is_over = bool(begun) or is_last
                    return "", self._take()
                return "", ""
            self._end, self._held = TAGS[tag], begun[len(tag) :]
        if not self._has_ended:
            at = self._held.find(self._end)
            if at < 0:
                kept = 0 if is_last else overlap(self._held, self._end)
                reasoning = self._held[: len(self._held) - kept]
                self._held = self._held[len(self._held) - kept :]
                return reasoning, ""
            reasoning, self._held = self._held[:at], self._held[at + len(self._end) :]
            self._has_ended = True
        self._held = self._held.lstrip()
        self.is_over = bool(self._held)
        return reasoning, self._take()

    def _take(self) -> str:
        text, self._held = self._held, ""
        return text


def delta_reasoning(delta: Mapping[str, Any]) -> str:
    """Return the readable reasoning of a chunk: a field of many servers, or of OpenRouter's details."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str):
            return str(delta[name])
    details = delta.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    return "".join(str(d.get("text") or d.get("summary") or "") for d in details if isinstance(d, dict))


def add_detail(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    """Add a piece of reasoning; pieces with the same `index` are joined."""
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
