"""Anthropic's wire protocol `messages`; no other module knows its JSON.

https://docs.anthropic.com/en/api/messages

A request has tools, system prompt and messages in this order. The ends of these three are marked, so that the next
request finds its prefix in the cache of the provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import ModelRequest, RequestOptions
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.core.tool_schemas import ANTHROPIC, adapt_schema
from hermes_agent.models.errors import ErrorReply
from hermes_agent.models.providers import ModelEndpoint, ModelProvider
from hermes_agent.models.wire_protocol import (
    AnswerBuilder,
    ErrorReplyReceived,
    WireProtocol,
    encode_json,
    encode_messages,
    encode_tools,
    first_given,
    join_list,
    parse_error_reply,
    parse_json,
    provider_extras,
)

VERSION = "2023-06-01"
MAX_TOKENS = 16_384
"""Longest answer in tokens if no limit is set: the protocol requires a number."""

_STOP = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_STATUS = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "billing_error": 402,
}
"""HTTP status that corresponds to an error inside a stream."""
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 32_768}
"""Tokens of reasoning by effort, for models that take a number."""
_ADAPTIVE = re.compile(r"claude-\D*?(?:4[-.][6-9]\b|[5-9]\b)")
"""Models that take an effort instead."""
_NO_SAMPLING = re.compile(r"claude-\D*?(?:4[-.][7-9]\b|[5-9]\b)")
"""Models that take no sampling options, and an effort of `xhigh`."""
_ONE_SAMPLING = re.compile(r"claude-\D*?4[-.][1-6]\b")
"""Models that take a temperature or `top_p`, and not both."""
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
_DATA = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def _translate_fields(request: ModelRequest, max_tokens: int) -> dict[str, Any]:
    """Return the additional fields of a request under their names in this protocol."""
    extra = dict(request.extra)
    # the prompt of the agent's own requests asks for the same format
    form = extra.pop("response_format", None) if "response_format" in request.options.extra else None
    extra.pop("response_format", None)
    if isinstance(form, dict) and form.get("type") == "json_schema":
        extra["output_config"] = {"format": {"type": "json_schema", "schema": form["json_schema"]["schema"]}}
    if isinstance(stop := extra.pop("stop", None), str | list):
        extra["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if longest := extra.pop("max_completion_tokens", None):
        extra["max_tokens"] = longest
    choice = _tool_choice(extra.get("tool_choice"), parallel=extra.pop("parallel_tool_calls", None))
    if choice is not None:
        extra["tool_choice"] = choice
    effort = extra.pop("reasoning_effort", None)
    if _excludes_thinking(request):
        return extra
    if effort in _BUDGETS and _ADAPTIVE.search(request.model):
        level = {"minimal": "low"}.get(effort, effort)
        if level == "xhigh" and not _NO_SAMPLING.search(request.model):
            level = "max"
        extra |= {
            "thinking": {"type": "adaptive"},
            "output_config": {**extra.get("output_config", {}), "effort": level},
        }
    elif effort in _BUDGETS and (budget := min(_BUDGETS[effort], max_tokens - 1024)) >= 1024:
        extra["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return extra


def _tool_choice(choice: Any, *, parallel: bool | None) -> Any:
    """Return a choice of tools in this protocol, with the rule on parallel calls as a part of it."""
    if isinstance(choice, str):
        choice = {"type": {"required": "any"}.get(choice, choice)}
    elif isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        choice = {"type": "tool", "name": choice["function"].get("name")}
    if parallel is False:
        choice = {**(choice if isinstance(choice, dict) else {"type": "auto"}), "disable_parallel_tool_use": True}
    return choice


def _excludes_thinking(request: ModelRequest) -> bool:
    """Return whether the caller sets an option that the provider rejects together with reasoning."""
    options = request.options
    forced = request.extra.get("tool_choice") not in (None, "auto", "none")
    asks = options.temperature is not None or "top_p" in options.extra
    return asks or (forced and options.tool_choice is not None)


def _tools(tools: Sequence[Mapping[str, Any]], mark: dict[str, str]) -> list[dict[str, Any]]:
    return [*map(_tool, tools[:-1]), {**_tool(tools[-1]), "cache_control": mark}]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or tool
    schema = adapt_schema(function.get("parameters"), ANTHROPIC)
    return {"name": function["name"], "description": function.get("description") or "", "input_schema": schema}


@lazy_dataclass(slots=True)
class _Turn:
    """A message of this protocol: consecutive messages of one role."""

    role: str
    blocks: list[bytes]
    """Encoded."""
    last: Message
    """The message of the last block."""


def _conversation(messages: Sequence[Message], provider: ModelProvider) -> tuple[str, list[_Turn]]:
    """Return the system prompt, and messages with alternating roles that begin with the user."""
    system: list[str] = []
    out: list[_Turn] = []
    for message, texts in zip(
        messages, encode_messages(messages, provider, lambda m: _blocks(m, provider.name)), strict=True
    ):
        if message.role == "system" and not out:
            system.append(message.text)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not texts:
            continue
        if not out and role == "assistant":
            empty = Message("user", "…")
            out.append(_Turn("user", [encode_json(block) for block in _blocks(empty, provider.name)], empty))
        if out and out[-1].role == role:
            out[-1].blocks.extend(texts)
            out[-1].last = message
        else:
            out.append(_Turn(role, list(texts), message))
    return "\n\n".join(filter(None, system)), out


def _blocks(message: Message, provider: str) -> list[dict[str, Any]]:
    if message.role == "tool":
        content = _parts(message.content) or [{"type": "text", "text": "(nothing)"}]
        return [{"type": "tool_result", "tool_use_id": _id(message.tool_call_id), "content": content}]
    blocks = _parts(message.content)
    if message.role == "assistant":
        blocks = [*(provider_extras(message, provider).get("thinking") or ()), *blocks]
        blocks += [
            {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _input(call.arguments)}
            for call in message.tool_calls
        ]
    return blocks


def _parts(content: Content) -> list[dict[str, Any]]:
    """Return a content as blocks, without blank texts, which the provider rejects."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return list(filter(None, map(_part, content)))


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind in ("text", "input_text"):
        text = str(part.get("text") or "")
        return {"type": "text", "text": text} if text.strip() else {}
    if kind != "image_url":
        return dict(part)  # a block of this protocol, such as a document
    image = part.get("image_url")
    url = str(image.get("url") if isinstance(image, Mapping) else image)
    data = _DATA.fullmatch(url)
    source = {"type": "base64", "media_type": data[1], "data": data[2]} if data else {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _input(arguments: str) -> dict[str, Any]:
    value = parse_json(arguments)
    return value if isinstance(value, dict) else {"arguments": arguments}


def _id(call_id: str) -> str:
    """Return the id of a call without the characters that this provider rejects."""
    return _NOT_IN_ID.sub("_", call_id) or "call"


class _AnthropicAnswerBuilder(AnswerBuilder):
    """Builder of an answer from the events of its stream."""

    whole = ("content", "error")

    def __init__(self, provider: ModelProvider, model: str) -> None:
        super().__init__(provider, model)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}

    def read_error(self, value: Any) -> ErrorReply:
        error = parse_error_reply(value)
        return replace(error, status=first_given(error.status, _STATUS.get(error.code)))

    def chunk(self, chunk: dict[str, Any]) -> str:
        kind = chunk.get("type")
        if kind == "error" or (kind is None and chunk.get("error")):
            raise ErrorReplyReceived(self.read_error(chunk))
        if kind == "ping":
            return ""
        self.has_begun = True
        if kind == "message_start":
            self._take_message(chunk["message"])
        elif kind == "content_block_start":
            return self._start(chunk["index"], chunk["content_block"])
        elif kind == "content_block_delta":
            return self._delta(chunk["index"], chunk["delta"])
        elif kind == "message_delta":
            self._take_message({**chunk["delta"], "usage": chunk.get("usage")})
        elif kind == "message_stop":
            self.is_done = True
        elif kind == "message":  # not a stream
            self._take_message(chunk)
            return "".join([self._start(index, block) for index, block in enumerate(chunk["content"])])
        return ""

    def _take_message(self, message: dict[str, Any]) -> None:
        self.model = str(message.get("model") or self.model)
        self.usage |= {k: v for k, v in (message.get("usage") or {}).items() if v is not None}
        if reason := message.get("stop_reason"):
            self.finish_reason = _STOP.get(reason, str(reason))

    def _start(self, index: int, block: dict[str, Any]) -> str:
        self._blocks[index] = dict(block)
        return str(block.get("text") or "") if block.get("type") == "text" else ""

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        kind, block = delta.get("type"), self._blocks.setdefault(index, {"type": "text"})
        if kind == "text_delta":
            return str(delta["text"])
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            self.reasoning += str(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        return ""

    def extras(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        reasoning = [
            b for b in blocks if b["type"] == "redacted_thinking" or (b["type"] == "thinking" and _is_signed(b))
        ]
        return {"thinking": reasoning} if reasoning else {}

    def calls(self) -> Iterable[dict[str, str]]:
        for index in sorted(self._blocks):
            block = self._blocks[index]
            if block["type"] == "tool_use":
                given = "".join(self._inputs.get(index, ())) or json.dumps(block.get("input") or {}, ensure_ascii=False)
                yield {"id": str(block.get("id") or ""), "name": str(block.get("name") or ""), "arguments": given}


def _is_signed(block: Mapping[str, Any]) -> bool:
    """Return whether a piece of reasoning may be sent back: the provider rejects it without its signature."""
    return bool(block.get("signature"))


class AnthropicMessagesProtocol(WireProtocol):
    """Anthropic's protocol `messages`."""

    name = "anthropic_messages"
    builder = _AnthropicAnswerBuilder
    unsupported_options = frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias", "verbosity"})

    def unsupported(self, model: str, options: RequestOptions) -> tuple[str, str] | None:
        if options.temperature is not None and options.temperature > 1:
            return "temperature", "its protocol takes 0 to 1"
        if (options.extra.get("response_format") or {}).get("type") == "json_object":
            return "response_format", "its protocol has JSON of a schema (json_schema) only"
        effort = options.extra.get("reasoning_effort")
        if sampling := [name for name in ("temperature", "top_p") if name in options.values()]:
            if _NO_SAMPLING.search(model):
                return sampling[0], "the model takes no sampling options"
            if effort not in (None, "none"):
                return sampling[0], "a model that reasons (reasoning_effort) takes no sampling options there"
            if len(sampling) > 1 and _ONE_SAMPLING.search(model):
                return "top_p", "the model takes a temperature or top_p, not both"
        few = options.max_tokens is not None and options.max_tokens < 2048
        if few and effort not in (None, "none") and not _ADAPTIVE.search(model):
            return "reasoning_effort", "reasoning of this model needs max_tokens of 2048 or more"
        return super().unsupported(model, options)

    def path(self, endpoint: ModelEndpoint) -> str:
        return "/messages" if endpoint.base_url.endswith("/v1") else "/v1/messages"

    def headers(self, endpoint: ModelEndpoint) -> dict[str, str]:
        key = {"x-api-key": endpoint.key} if endpoint.key else {}
        return {**key, "anthropic-version": VERSION}

    def body(self, request: ModelRequest, endpoint: ModelEndpoint, fields: Mapping[str, Any]) -> dict[str, Any]:
        mark = endpoint.provider.cache_mark
        system, messages = _conversation(request.messages, endpoint.provider)
        body: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens or MAX_TOKENS}
        if request.tools:
            body["tools"] = encode_tools(request.tools, endpoint.provider, lambda tools: _tools(tools, mark))
        if system:
            body["system"] = [{"type": "text", "text": system, "cache_control": mark}]
        # the last message, and the end that the previous request marked
        for turn in [t for t in messages if t.role == "user"][-2:]:
            turn.blocks[-1] = encode_json({**_blocks(turn.last, endpoint.provider.name)[-1], "cache_control": mark})
        body["messages"] = join_list(
            b'{"role":"%s","content":%s}' % (t.role.encode(), encode_json(join_list(t.blocks))) for t in messages
        )
        if request.temperature is not None:
            body["temperature"] = min(request.temperature, 1.0)
        body |= fields
        body |= _translate_fields(request, body["max_tokens"])
        if "thinking" in body:
            body.pop("temperature", None)  # the two exclude each other
        body["stream"] = True
        return body
