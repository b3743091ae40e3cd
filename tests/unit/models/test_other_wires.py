"""Anthropic's messages and OpenAI's Responses: against aimock, which others wrote, and byte by byte."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, ReasoningPart, TextPart
from hermes_agent.core.errors import ContextTooLong, ModelError
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.models.api_modes import load_wire_protocol
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog
from peers.asking import answer_of, ask, client_for, failure
from peers.raw import raw_server
from peers.scripted import KEY

BOTH = pytest.mark.parametrize(
    ("provider", "api_mode"), [("anthropic", "anthropic_messages"), ("openai", "codex_responses")]
)
CALCULATE = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Evaluate an expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
CALLS = [
    {"id": "call_a", "name": "calculate", "arguments": {"expression": "2**16"}},
    {"id": "call_b", "name": "calculate", "arguments": {"expression": "3*'é'"}},
]


@BOTH
async def test_text_calls_results_and_text_again(scripted, provider: str, api_mode: str) -> None:
    script = [
        {"match": {"hasToolResult": False}, "response": {"content": "I shall see what it is.", "toolCalls": CALLS}},
        {"match": {"hasToolResult": True, "toolCallId": "call_b"}, "response": {"content": "It is 65536."}},
    ]

    async def run(base_url: str) -> tuple[list[str], ModelAnswer, ModelAnswer]:
        client = client_for(base_url, provider=provider, key=KEY, api_mode=api_mode)
        history = [Message("system", "Be brief."), Message("user", "2 to the power of 16?")]
        pieces, first = await answer_of(client, ModelRequest("m-1", history, [CALCULATE]))
        results = [Message("tool", "65536", tool_call_id=c.id, tool_name=c.name) for c in first.message.tool_calls]
        _, second = await answer_of(client, ModelRequest("m-1", [*history, first.message, *results], [CALCULATE]))
        await client.aclose()
        return pieces, first, second

    with scripted(script) as model:
        pieces, first, second = await run(model.base_url)
        seen = model.requests()
    assert len(pieces) > 1 and "".join(pieces) == first.message.content == "I shall see what it is."
    assert [(c.id, c.name, json.loads(c.arguments)) for c in first.message.tool_calls] == [
        (c["id"], c["name"], c["arguments"]) for c in CALLS
    ]
    assert (first.finish_reason, first.model) == ("tool_calls", "m-1")
    assert (second.message.content, second.finish_reason) == ("It is 65536.", "stop")
    # what the server understood, in its own words
    assert [m["role"] for m in seen[1]["body"]["messages"]][:2] == ["system", "user"]
    assert [m["content"] for m in seen[1]["body"]["messages"] if m["role"] == "tool"] == ["65536", "65536"]
    assert seen[1]["body"]["tools"] == [CALCULATE]


@BOTH
@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, {"message": "invalid x-api-key", "type": "authentication_error"}, "auth"),
        (429, {"message": "slow down", "type": "rate_limit_error"}, "rate_limit"),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, "overloaded"),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "x"}, "context_too_long"),
        (404, {"message": "model: m-1 not found", "type": "not_found_error"}, "unknown_model"),
    ],
)
def test_a_refusal_has_its_kind(
    scripted, provider: str, api_mode: str, status: int, said: dict[str, str], kind: str
) -> None:
    refusal = {"error": said, "status": status, "retryAfter": 7}
    with scripted([{"match": {}, "response": refusal}]) as model:
        error = failure(model.base_url, provider=provider, key=KEY, api_mode=api_mode)
    assert (error.kind, error.status) == (kind, status)
    assert isinstance(error, ContextTooLong) == (kind == "context_too_long")
    if kind == "rate_limit":
        assert error.retry_after_s == 7.0


@BOTH
def test_a_stream_that_breaks_is_cut_off(scripted, provider: str, api_mode: str) -> None:
    long = {"content": "This will be cut short after a few chunks of text, which it is."}
    with scripted([{"match": {}, "response": long, "latency": 10, "truncateAfterChunks": 5}]) as model:
        error = failure(model.base_url, provider=provider, key=KEY, api_mode=api_mode)
    assert error.kind == "cut_off"


# -- byte by byte ----------------------------------------------------------------------------------------------------


def events(*items: dict[str, Any]) -> bytes:
    return b"".join(f"event: {i['type']}\ndata: {json.dumps(i, ensure_ascii=False)}\n\n".encode() for i in items)


async def exchange(
    stream: bytes, request: ModelRequest, *, provider: str, api_mode: str, key: str = KEY
) -> tuple[ModelAnswer | ModelError, dict[str, Any], bytes]:
    """Ask once; return the answer or the error, and the JSON and the head of the request."""

    async def run() -> tuple[ModelAnswer | ModelError, dict[str, Any], bytes]:
        async with raw_server(stream) as server:
            client = client_for(server.base_url, provider=provider, key=key, api_mode=api_mode)
            found: ModelAnswer | ModelError
            try:
                _, found = await answer_of(client, request)
            except ModelError as exc:
                found = exc
            await client.aclose()
            head, _, body = server.requests[0].partition(b"\r\n\r\n")
            return found, json.loads(body), head

    return await run()


USAGE = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
CLAUDE = events(
    {"type": "message_start", "message": {"model": "claude-x", "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xyz"}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Grüße"}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "t1", "name": "calculate"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": '{"expre'}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": 'ssion": "1"}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
    {"type": "message_stop"},
)
CLAUDE_THOUGHTS = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "xyz"},
]


async def claude(request: ModelRequest, stream: bytes = CLAUDE) -> tuple[Any, dict[str, Any], bytes]:
    return await exchange(stream, request, provider="anthropic", api_mode="anthropic_messages")


async def test_claude_s_thoughts_usage_and_calls_are_read() -> None:
    answer, _, head = await claude(ModelRequest("claude-x", [Message("user", "hi")]))
    assert answer.message == Message("assistant", "Grüße", (ToolCall("t1", "calculate", '{"expression": "1"}'),))
    assert answer.message.extras == {"anthropic": {"thinking": CLAUDE_THOUGHTS}}
    assert (answer.finish_reason, answer.model) == ("tool_calls", "claude-x")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens) == (125, 42, 100)
    assert answer.usage.details["cache_creation_input_tokens"] == 20
    lines = head.lower().split(b"\r\n")
    assert f"x-api-key: {KEY}".encode() in lines and b"anthropic-version: 2023-06-01" in lines
    assert not any(line.startswith(b"authorization") for line in lines)


async def test_claude_is_given_back_its_thoughts_and_nobody_else_s() -> None:
    call = (ToolCall("functions.f:0", "calculate", "{broken"),)
    said = Message("assistant", "", call, extras={"anthropic": {"thinking": CLAUDE_THOUGHTS}, "openai": {"items": [1]}})
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    history = [
        Message("system", "Be kind."),
        Message("user", [{"type": "text", "text": "look"}, image, {"type": "text", "text": " "}]),
        said,
        Message("tool", "", tool_call_id="functions.f:0"),
        Message("user", "and?"),
    ]
    _, body, _ = await claude(ModelRequest("claude-3-5-haiku", history, [CALCULATE]))
    mark = {"cache_control": {"type": "ephemeral"}}
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    result = {"type": "tool_result", "tool_use_id": "functions_f_0", "content": [{"type": "text", "text": "(nothing)"}]}
    used = {"type": "tool_use", "id": "functions_f_0", "name": "calculate", "input": {"arguments": "{broken"}}
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": source, **mark}]},
        {"role": "assistant", "content": [*CLAUDE_THOUGHTS, used]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?", **mark}]},
    ]
    assert body["system"] == [{"type": "text", "text": "Be kind.", **mark}]
    assert (body["tools"][0]["cache_control"], body["max_tokens"]) == (mark["cache_control"], 8192)


async def test_the_prefix_of_claude_s_next_request_is_the_last_one_but_for_the_marks() -> None:
    def without_marks(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
        return [without_marks(v) for v in value] if isinstance(value, list) else value

    history = [Message("system", "s"), Message("user", "one")]
    answer, first, _ = await claude(ModelRequest("claude-x", history, [CALCULATE]))
    history += [answer.message, Message("tool", "1", tool_call_id="t1")]
    _, second, _ = await claude(ModelRequest("claude-x", history, [CALCULATE]))
    assert json.dumps(second["tools"]) == json.dumps(first["tools"])
    assert json.dumps(second["system"]) == json.dumps(first["system"])
    assert without_marks(second["messages"][:1]) == without_marks(first["messages"])
    # the end of the last request is marked again: the cache is found there
    assert "cache_control" in second["messages"][0]["content"][-1]
    assert "cache_control" in second["messages"][-1]["content"][-1]


@pytest.mark.parametrize(
    ("model", "extra", "expected"),
    [
        ("claude-sonnet-4-5", {"reasoning_effort": "low"}, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-opus-4-6", {"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ("claude-x", {"tool_choice": "required", "stop": "END"}, {"tool_choice": {"type": "any"}}),
        (
            "claude-x",
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"tool_choice": {"type": "tool", "name": "f"}},
        ),
        ("claude-x", {"response_format": {"type": "json_object"}, "top_k": 3}, {"top_k": 3, "response_format": None}),
    ],
)
async def test_the_words_of_chat_completions_are_said_as_claude_knows_them(
    model: str, extra: dict[str, Any], expected: dict[str, Any]
) -> None:
    request = ModelRequest(model, [Message("user", "hi")], temperature=1.5, extra=extra)
    _, body, _ = await claude(request)
    assert {key: body.get(key) for key in expected} == expected
    assert body.get("temperature") == (None if "thinking" in body else 1.0)


@pytest.mark.parametrize(
    ("kind", "begun", "expected"),
    [
        ("overloaded_error", False, "overloaded"),
        ("overloaded_error", True, "cut_off"),
        ("rate_limit_error", True, "rate_limit"),
    ],
)
async def test_claude_s_error_inside_a_stream_has_its_kind(kind: str, begun: bool, expected: str) -> None:
    start = events({"type": "message_start", "message": {"model": "m"}}) if begun else b""
    stream = start + events({"type": "error", "error": {"type": kind, "message": "Overloaded"}})
    error, _, _ = await claude(ModelRequest("claude-x", [Message("user", "hi")]), stream)
    assert isinstance(error, ModelError) and error.kind == expected


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
OUTPUT = [
    REASONING,
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße"}]},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "def", "status": None},
    {"type": "function_call", "call_id": "c1", "name": "calculate", "arguments": '{"expression": "1"}'},
]
USED = {"input_tokens": 125, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 42}
GPT = events(
    {"type": "response.created", "response": {"model": "gpt-x"}},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Grü"},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "ße"},
    *({"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(OUTPUT)),
    {"type": "response.completed", "response": {"model": "gpt-x", "output": OUTPUT, "usage": USED}},
)


async def gpt(request: ModelRequest, stream: bytes = GPT) -> tuple[Any, dict[str, Any], bytes]:
    return await exchange(stream, request, provider="openai", api_mode="codex_responses")


async def test_gpt_s_thoughts_come_back_where_they_stood() -> None:
    history = [Message("system", "Be kind."), Message("user", "hi")]
    answer, first, _ = await gpt(ModelRequest("gpt-x", history, [CALCULATE], session_id="s-1"))
    assert answer.message == Message("assistant", "Grüße", (ToolCall("c1", "calculate", '{"expression": "1"}'),))
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens) == (125, 42, 100)
    assert (first["store"], first["include"], first["instructions"], first["prompt_cache_key"]) == (
        False, ["reasoning.encrypted_content"], "Be kind.", "s-1",
    )  # fmt: skip
    result = Message("tool", "1", tool_call_id="c1")
    _, second, _ = await gpt(ModelRequest("gpt-x", [*history, answer.message, result], [CALCULATE]))
    assert second["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        REASONING,
        {"role": "assistant", "content": [{"type": "output_text", "text": "Grüße"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "def"},
        {"type": "function_call", "call_id": "c1", "name": "calculate", "arguments": '{"expression": "1"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]
    assert first["input"] == second["input"][:1]
    elsewhere = replace(answer.message, extras={"azure-foundry": answer.message.extras["openai"]})
    _, third, _ = await gpt(ModelRequest("gpt-x", [*history, elsewhere, result], [CALCULATE]))
    assert not any(item.get("type") == "reasoning" for item in third["input"])


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            "length",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}},
            "rate_limit",
        ),
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}, "cut_off"),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, "context_too_long"),
    ],
)
async def test_gpt_s_other_ends_are_told_apart(end: dict[str, Any], expected: str) -> None:
    stream = events({"type": "response.output_text.delta", "output_index": 0, "delta": "a"}, end)
    found, _, _ = await gpt(ModelRequest("gpt-x", [Message("user", "hi")]), stream)
    assert (found.kind if isinstance(found, ModelError) else found.finish_reason) == expected


async def test_gpt_is_told_the_form_of_the_answer_in_its_words() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": False}}
    extra = {"response_format": form, "reasoning_effort": "low"}
    _, body, _ = await gpt(ModelRequest("gpt-x", [Message("user", "hi")], max_tokens=9, extra=extra))
    assert body["text"] == {
        "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": False}
    }
    assert (body["reasoning"], body["max_output_tokens"]) == ({"effort": "low"}, 9)


async def test_gemini_s_signature_of_a_call_and_kimi_s_thoughts_go_back() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "sig"}}}
    call = {"index": 0, "id": "c1", "function": {"name": "calculate", "arguments": "{}"}, **signed}
    chunk = {"choices": [{"delta": {"reasoning_content": "hm", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    stream = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    for provider, kept in (("gemini", None), ("kimi", "hm")):
        request = ModelRequest("m", [Message("user", "hi")])
        answer, _, _ = await exchange(stream, request, provider=provider, api_mode="chat_completions")
        history = [*request.messages, answer.message, Message("tool", "1", tool_call_id="c1")]
        _, body, _ = await exchange(stream, ModelRequest("m", history), provider=provider, api_mode="chat_completions")
        said = body["messages"][1]
        assert said["tool_calls"][0]["extra_content"] == signed["extra_content"]
        assert said.get("reasoning_content") == kept


@pytest.mark.parametrize(
    ("provider", "model", "marked"),
    [
        ("openrouter", "anthropic/claude-x", [True, True, False, False, True]),
        ("openrouter", "openai/gpt-x", [False] * 5),
        ("groq", "claude-x", [False] * 5),
    ],
)
async def test_prefixes_of_claude_behind_openrouter_are_marked(provider: str, model: str, marked: list[bool]) -> None:
    history = [
        Message("system", "Be kind."),
        Message("user", "one"),
        Message("assistant", "", (ToolCall("c1", "calculate", "{}"),)),
        Message("tool", "1", tool_call_id="c1"),
        Message("user", [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]),
    ]
    stream = b'data: {"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    _, body, _ = await exchange(stream, ModelRequest(model, history), provider=provider, api_mode="chat_completions")
    said = [m["content"] for m in body["messages"]]
    assert [isinstance(c, list) and "cache_control" in c[-1] for c in said] == marked
    assert history[4].content == [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]


def test_a_server_that_does_not_stream_is_understood(scripted) -> None:
    whole = {"model": "gpt-x", "output": OUTPUT[:2], "usage": USED}

    async def run() -> ModelAnswer:
        async with raw_server(json.dumps(whole).encode(), content_type="application/json") as server:
            client = client_for(server.base_url, key=KEY, api_mode="codex_responses")
            _, answer = await answer_of(client, ModelRequest("m", [Message("user", "hi")]))
            await client.aclose()
            return answer

    assert asyncio.run(run()).message.content == "Grüße"
    with scripted([{"match": {}, "response": {"content": "ok"}}]) as model:
        assert ask(model.base_url, key=KEY, api_mode="codex_responses")[0] == ["ok"]


@pytest.mark.parametrize(
    ("provider", "place"),
    [
        ("openai", ("function", "parameters")),
        ("gemini", ("function", "parameters")),
        ("ollama", ("function", "parameters")),
        ("anthropic", ("input_schema",)),
        ("responses", ("parameters",)),
    ],
)
def test_each_provider_is_sent_schemas_that_it_takes_whatever_a_plugin_wrote(
    provider: str, place: tuple[str, ...]
) -> None:
    odd = {
        "anyOf": [
            {"properties": {"path": {"$ref": "#/$defs/p"}}, "required": ["path"]},
            {"properties": {"url": {"type": ["string", "null"], "pattern": "x"}}, "required": ["url"]},
        ],
        "$defs": {"p": {"type": "string"}},
    }
    bare = {"type": "function", "function": {"name": "bare", "description": "d"}}
    tools = ({"type": "function", "function": {"name": "odd", "description": "d", "parameters": odd}}, bare)
    found = ProviderCatalog().get("openai" if provider == "responses" else provider)
    assert found is not None
    wire = load_wire_protocol("codex_responses" if provider == "responses" else found.api_mode)
    request = ModelRequest(model="m", messages=(Message("user", "hi"),), tools=tools)

    sent = json.loads(wire.body(request, ModelEndpoint(found, "https://example.org/v1", "k"), {})["tools"])

    schema: Any = sent[0]
    for step in place:
        schema = schema[step]
    assert set(schema) == {"type", "properties"}
    assert schema["properties"]["path"] == {"type": "string"}
    url = {"gemini": {"type": "string", "nullable": True}, "ollama": {"type": ["string", "null"]}}
    assert schema["properties"]["url"] == url.get(provider, {"type": ["string", "null"], "pattern": "x"})
    assert ("parameters" in json.dumps(sent[1])) == (provider in ("openai", "ollama", "responses"))


@pytest.mark.parametrize(
    ("provider", "api_mode"),
    [("anthropic", "anthropic_messages"), ("openai", "codex_responses"), ("custom", "chat_completions")],
)
async def test_reasoning_is_streamed_to_a_caller_that_asks_for_it(scripted, provider: str, api_mode: str) -> None:
    said = {"reasoning": "First I count to four.", "content": "Four."}

    async def run(base_url: str) -> list[list[Any]]:
        client = client_for(base_url, provider=provider, key=KEY, api_mode=api_mode)
        request = ModelRequest("m-1", [Message("user", "2 + 2?")])
        found = [
            [item async for item in client.stream(replace(request, shows_reasoning=shows))] for shows in (True, False)
        ]
        await client.aclose()
        return found

    with scripted([{"match": {"userMessage": "2 + 2?"}, "response": said}]) as model:
        shown, hidden = await run(model.base_url)
    assert "".join(i.text for i in shown if isinstance(i, ReasoningPart)).strip() == "First I count to four."
    assert "".join(i.text for i in shown if isinstance(i, TextPart)) == "Four."
    assert [type(i) for i in shown].index(ReasoningPart) == 0
    assert not [i for i in hidden if isinstance(i, ReasoningPart)]
    assert shown[-1].message.text == hidden[-1].message.text == "Four."
