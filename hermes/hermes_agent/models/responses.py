"""OpenAI's Responses wire: the one file that knows its JSON. https://platform.openai.com/docs/api-reference/responses

Nothing is kept at the provider (`store` is false): the thoughts of a model come encrypted and go back as they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.tool_schemas import OPENAI, adapt_schema
from hermes_agent.models.encoding import encode_messages, encode_tools, join_list
from hermes_agent.models.providers import ModelEndpoint, ModelProvider
from hermes_agent.models.request import ModelRequest
from hermes_agent.models.wire import AnswerBuilder, ErrorReplyReceived, WireProtocol, provider_extras

__all__ = ["ResponsesProtocol"]

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
