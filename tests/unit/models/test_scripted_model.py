"""The client against aimock, an OpenAI-compatible server that others wrote."""

from __future__ import annotations

import json

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.messages import Message
from peers.asking import answer_of, ask, client_for, failure
from peers.scripted import KEY

CALCULATE = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Evaluate an expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}


def test_text_comes_in_pieces_and_then_whole_with_its_usage(scripted) -> None:
    text = "A sentence that is long enough to come in several pieces."
    with scripted([{"match": {"userMessage": "hello"}, "response": {"content": text}}]) as model:
        pieces, answer = ask(model.base_url, key=model.key)
    assert len(pieces) > 1 and "".join(pieces) == text
    assert answer.message == Message("assistant", text)
    assert (answer.finish_reason, answer.model) == ("stop", "m-1")
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0


async def test_two_tool_calls_then_their_results_then_text(scripted) -> None:
    calls = [
        {"id": "call_a", "name": "calculate", "arguments": {"expression": "2**16"}},
        {"id": "call_b", "name": "calculate", "arguments": {"expression": "3*'é'"}},
    ]
    script = [
        {"match": {"hasToolResult": False}, "response": {"content": "I shall see.", "toolCalls": calls}},
        {"match": {"hasToolResult": True}, "response": {"content": "It is 65536."}},
    ]

    async def run(base_url: str) -> tuple[Message, str]:
        client = client_for(base_url, key=KEY)
        history = [Message("system", "Be brief."), Message("user", "2 to the power of 16?")]
        _, first = await answer_of(client, ModelRequest("m-1", history, [CALCULATE]))
        results = [Message("tool", "65536", tool_call_id=c.id, tool_name=c.name) for c in first.message.tool_calls]
        _, second = await answer_of(client, ModelRequest("m-1", [*history, first.message, *results], [CALCULATE]))
        await client.aclose()
        return first.message, second.message.text

    with scripted(script) as model:
        message, text = await run(model.base_url)
        bodies = model.bodies()
    assert message.content == "I shall see."
    assert [(c.id, c.name, json.loads(c.arguments)) for c in message.tool_calls] == [
        ("call_a", "calculate", {"expression": "2**16"}),
        ("call_b", "calculate", {"expression": "3*'é'"}),
    ]
    assert text == "It is 65536."
    assert bodies[1]["tools"] == [CALCULATE]
    assert bodies[1]["stream_options"] == {"include_usage": True}
    assert bodies[1]["messages"][: len(bodies[0]["messages"])] == bodies[0]["messages"]
    assert bodies[1]["messages"][-1] == {"role": "tool", "content": "65536", "tool_call_id": "call_b"}


def test_reasoning_is_not_part_of_the_text(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "42", "reasoning": "let me think"}}]) as model:
        pieces, answer = ask(model.base_url, key=model.key)
    assert ("".join(pieces), answer.message.content) == ("42", "42")


async def test_length_limit_and_temperature_are_sent_under_the_provider_s_names(scripted) -> None:
    async def run(base_url: str, provider: str) -> None:
        client = client_for(base_url, provider=provider, key=KEY)
        await answer_of(client, ModelRequest("m-1", [Message("user", "x")], max_tokens=7, temperature=0.5))
        await client.aclose()

    with scripted([{"match": {}, "response": {"content": "ok"}}]) as model:
        await run(model.base_url, "openai")
        await run(model.base_url, "mistral")
        first, second = model.bodies()
    assert (first["max_completion_tokens"], first["temperature"]) == (7, 0.5)
    assert "max_tokens" not in first
    assert second["max_tokens"] == 7
    assert "stream_options" not in second


def test_wrong_key_is_one_sentence_without_the_key(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "ok"}}]) as model:
        host = model.base_url.split("/")[2]
        error = failure(model.base_url, key="sk-wrong-0123456789abcdef")
    assert (error.kind, error.status, error.exit_status) == ("auth", 401, 1)
    assert error.message == f"OpenAI ({host}) did not accept the key for model 'm-1'."
    assert error.hint == "Check OPENAI_API_KEY: it may be mistyped, expired, or of another provider."


def test_server_of_one_s_own_is_asked_without_a_key_and_says_when_it_wants_one(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "ok"}}], key="") as model:
        pieces, _ = ask(model.base_url, provider="vllm")
        assert "authorization" not in {name.lower() for name in model.requests()[-1]["headers"]}
    assert pieces == ["ok"]
    with scripted([{"match": {}, "response": {"content": "ok"}}]) as model:
        assert failure(model.base_url, provider="vllm").kind == "no_key"


def test_rate_limit_says_how_long_to_wait(scripted) -> None:
    limited = {"error": {"message": "Rate limit reached", "type": "rate_limit_error"}, "status": 429, "retryAfter": 7}
    with scripted([{"match": {}, "response": limited}]) as model:
        host = model.base_url.split("/")[2]
        error = failure(model.base_url, key=model.key)
    assert (error.kind, error.status, error.retry_after_s) == ("rate_limit", 429, 7.0)
    assert error.message == f"OpenAI ({host}) limits how often model 'm-1' may be asked: wait 7 seconds."
    assert error.hint.startswith("It says: Rate limit reached. ")


def test_unknown_model_says_where_the_list_is(scripted) -> None:
    gone = {"message": "The model `m-1` does not exist", "type": "invalid_request_error", "code": "model_not_found"}
    with scripted([{"match": {}, "response": {"error": gone, "status": 404}}]) as model:
        host = model.base_url.split("/")[2]
        error = failure(model.base_url, key=model.key)
    assert (error.kind, error.status) == ("unknown_model", 404)
    assert error.message == f"OpenAI ({host}) has no model 'm-1'."
    assert f"{model.base_url}/models" in error.hint


def test_connection_that_breaks_in_the_middle_keeps_the_text_and_says_so(scripted) -> None:
    long = {"content": "This will be cut short after a few chunks of text, which it is."}
    with scripted([{"match": {}, "response": long, "latency": 30, "truncateAfterChunks": 3}]) as model:
        host = model.base_url.split("/")[2]
        error = failure(model.base_url, key=model.key)
    assert error.kind == "cut_off"
    assert error.message == (
        f"The answer of model 'm-1' from OpenAI ({host}) was cut off in the middle:"
        " the connection was closed in the middle."
    )


def test_connection_that_is_dropped_before_an_answer_is_unreachable(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "x"}, "chaos": {"disconnectRate": 1}}]) as model:
        assert failure(model.base_url, key=model.key).kind == "unreachable"


def test_answer_that_is_no_json_is_malformed_and_quoted(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "x"}, "chaos": {"malformedRate": 1}}]) as model:
        error = failure(model.base_url, key=model.key)
    assert error.kind == "cut_off"
    assert "chunk 1 is malformed: '{malformed json" in error.message


def test_slow_first_byte_is_waited_for_no_longer_than_allowed(scripted) -> None:
    slow = {"match": {}, "response": {"content": "x"}, "streamingProfile": {"ttft": 20_000}}
    with scripted([slow]) as model:
        error = failure(model.base_url, key=model.key, first_byte_s=0.2)
    assert error.kind in ("unreachable", "cut_off")
    assert "0.2 seconds" in error.message


def test_model_without_a_name_is_the_first_of_the_server_s_list(scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "ok"}}], key="") as model:
        _, answer = ask(model.base_url, provider="vllm", model="")
        assert model.bodies()[0]["model"] == answer.model == "gpt-4"
