"""What no server can be made to send: bytes written by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, ReasoningPart, TextPart
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, ToolCall
from peers.asking import answer_of, client_for
from peers.raw import RawServer, raw_server

QUESTION = ModelRequest("m-1", [Message("user", "hello")])
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, **choice}]}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks)


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(pieces)})


async def asked(
    *pieces: bytes, request: ModelRequest = QUESTION, **server: Any
) -> tuple[list[str], ModelAnswer, RawServer]:
    async def run() -> tuple[list[str], ModelAnswer, RawServer]:
        async with raw_server(*pieces, **server) as raw:
            client = client_for(raw.base_url, provider="custom")
            try:
                async with asyncio.timeout(5):
                    texts, answer = await answer_of(client, request)
            finally:
                await client.aclose()
            return texts, answer, raw

    return await run()


async def failed(*pieces: bytes, **server: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await asked(*pieces, **server)
    return caught.value


async def tool_calls(*chunks: dict[str, Any]) -> tuple[ToolCall, ...]:
    return (await asked(sse(*chunks, chunk(finish_reason="tool_calls")), DONE))[1].message.tool_calls


async def test_line_ends_of_windows_and_characters_cut_in_half() -> None:
    stream = (
        sse(chunk({"content": "ä"})).replace(b"\\u00e4", "ä€😀".encode()).replace(b"\n", b"\r\n") + sse(STOP) + DONE
    )
    texts, answer, _ = await asked(*(stream[i : i + 1] for i in range(len(stream))))
    assert (texts, answer.message.content) == (["ä€😀"], "ä€😀")


async def test_data_without_a_space_comments_and_no_done_at_the_end() -> None:
    stream = b": PROCESSING\n\n" + sse(chunk({"content": "a"}), STOP).replace(b"data: ", b"data:").rstrip(b"\n")
    assert (await asked(stream))[0] == ["a"]


async def test_calls_without_an_index_are_told_apart_by_id() -> None:
    assert await tool_calls(
        calls({"id": "a", "function": {"name": "f", "arguments": '{"x"'}}),
        calls({"function": {"arguments": ": 1}"}}),
        calls({"id": "b", "function": {"name": "g", "arguments": "{}"}}),
    ) == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", "{}"))


async def test_calls_that_all_have_index_0_are_told_apart_by_id() -> None:
    assert await tool_calls(
        calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}),
        calls({"index": 0, "id": "b", "function": {"name": "f", "arguments": '{"x": 2}'}}),
    ) == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "f", '{"x": 2}'))


async def test_id_and_name_that_are_repeated_in_each_piece_count_once() -> None:
    piece = {"index": 0, "id": "a", "function": {"name": "f"}}
    assert await tool_calls(
        calls({**piece, "function": {"name": "f", "arguments": '{"x"'}}),
        calls({**piece, "function": {"name": "f", "arguments": ":1}"}}),
    ) == (ToolCall("a", "f", '{"x":1}'),)


async def test_calls_without_index_and_id_are_told_apart_by_whole_arguments_and_get_ids() -> None:
    first, second = await tool_calls(
        calls({"function": {"name": "f", "arguments": '{"x": 1}'}}),
        calls({"function": {"name": "f", "arguments": {"x": "ß"}}}),
    )
    assert (first.arguments, second.arguments) == ('{"x": 1}', '{"x": "ß"}')
    assert first.id.startswith("call_") and second.id.startswith("call_") and first.id != second.id


async def test_call_without_arguments_has_an_empty_object_and_broken_ones_stay_as_they_are() -> None:
    assert await tool_calls(calls({"index": 0, "id": "a", "function": {"name": "f"}})) == (ToolCall("a", "f", "{}"),)
    broken = calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": '}})
    assert (await tool_calls(broken))[0].arguments == '{"x":'


async def test_parallel_calls_whose_pieces_are_mixed() -> None:
    assert await tool_calls(
        calls(
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
            {"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}},
        ),
        calls({"index": 1, "function": {"arguments": '{"y":'}}),
        calls({"index": 0, "function": {"arguments": "[1]"}}),
        calls({"index": 1, "function": {"arguments": "2}"}}),
    ) == (ToolCall("a", "f", "[1]"), ToolCall("b", "g", '{"y":2}'))


async def test_call_without_a_name_is_malformed() -> None:
    error = await failed(sse(calls({"index": 0, "id": "a"}), chunk(finish_reason="tool_calls")))
    assert (error.kind, "without a name" in error.message) == ("cut_off", True)


async def test_reasoning_between_tags_is_shown_as_reasoning_and_is_no_part_of_the_answer() -> None:
    stream = sse(*(chunk({"content": piece}) for piece in ("<thi", "nk>I count", ".</think>", "\n\nFo", "ur.")), STOP)
    async with raw_server(stream, DONE) as raw:
        client = client_for(raw.base_url, provider="custom")
        async with asyncio.timeout(5):
            items = [item async for item in client.stream(replace(QUESTION, shows_reasoning=True))]
        await client.aclose()
    shown = [item for item in items if isinstance(item, ReasoningPart | TextPart)]
    assert shown == [ReasoningPart("I count"), ReasoningPart("."), TextPart("Fo"), TextPart("ur.")]
    assert items[-1].message.content == "Four."

    texts, answer, _ = await asked(sse(chunk({"content": "<th"}), STOP), DONE)
    assert (texts, answer.message.content) == (["<th"], "<th"), "what may have become a tag is text at the end"
    whole = {"choices": [{"message": {"content": "<think>hm</think>4"}, "finish_reason": "stop"}]}
    assert (await asked(json.dumps(whole).encode(), content_type="application/json"))[1].message.content == "4"


async def test_content_in_parts_refusal_and_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "no"}]}, {"type": "text", "text": "yes"}]
    stream = sse(
        chunk({"reasoning_content": "no"}), chunk({"content": parts}), chunk({"refusal": " but no"}), chunk(None), STOP
    )
    assert (await asked(stream))[0] == ["yes", " but no"]


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, 4),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 5}, 5),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, 0),
    ],
)
async def test_usage_and_cached_tokens(usage: dict[str, Any], cached: int) -> None:
    stream = sse(chunk({"content": "a"}), STOP, {"choices": [], "usage": usage, "model": "m-1-0925"})
    _, answer, _ = await asked(stream, DONE)
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens) == (9, 2, cached)
    assert answer.usage.details == usage
    assert answer.model == "m-1-0925"


async def test_usage_of_groq_and_usage_that_grows() -> None:
    groq = sse(chunk({"content": "a"}), {**STOP, "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}})
    assert (await asked(groq, DONE))[1].usage.total_tokens == 4
    grows = [{**chunk({"content": "a"}), "usage": {"prompt_tokens": 3, "completion_tokens": n}} for n in (1, 2)]
    assert (await asked(sse(*grows, STOP), DONE))[1].usage.total_tokens == 5


async def test_answer_is_given_at_done_even_if_the_connection_stays_open() -> None:
    assert (await asked(sse(chunk({"content": "a"}), STOP), DONE, hold=True))[1].message.content == "a"


async def test_break_after_the_finish_reason_costs_nothing_but_the_usage() -> None:
    _, answer, _ = await asked(sse(chunk({"content": "a"}), STOP), cut=True)
    assert (answer.message.content, answer.usage.total_tokens) == ("a", 0)


async def test_break_before_the_finish_reason_is_cut_off() -> None:
    assert (await failed(sse(chunk({"content": "a"})), cut=True)).kind == "cut_off"


async def test_server_that_does_not_stream_is_understood() -> None:
    body = {
        "model": "m-9",
        "choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
    texts, answer, _ = await asked(json.dumps(body).encode(), content_type="application/json; charset=utf-8")
    assert (texts, answer.model, answer.usage.total_tokens) == (["whole"], "m-9", 2)


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([sse(chunk({"content": "a"}))], "the stream ended without a finish reason"),
        ([sse(chunk({"content": "a"})), DONE], "the stream ended without a finish reason"),
        ([], "the stream ended before a word"),
        ([DONE], "the stream ended before a word"),
        (
            [sse(chunk({"content": "a"})), b'data: {"choices": [{"del\n\n'],
            'chunk 2 is malformed: \'{"choices": [{"del\'',
        ),
        ([b"data: [1, 2]\n\n"], "chunk 1 is malformed: '[1, 2]'"),
        ([b'data: {"choices": "x"}\n\n'], "chunk 1 is malformed"),
        ([b'data: {"choices": [{"delta": {"content": 7}}]}\n\n'], "chunk 1 is malformed"),
        ([b"data: \xff\xfe\n\n"], "chunk 1 is malformed"),
    ],
)
async def test_what_is_no_whole_answer_is_cut_off(pieces: list[bytes], why: str) -> None:
    error = await failed(*pieces)
    assert error.kind == "cut_off"
    assert f"was cut off in the middle: {why}" in error.message


@pytest.mark.parametrize(
    ("error_object", "kind", "says"),
    [
        ({"error": {"message": "Overloaded", "code": 503}}, "cut_off", "cut off in the middle: Overloaded."),
        ({"error": "out of memory"}, "cut_off", "cut off in the middle: out of memory."),
        ({"error": {"message": "slow down", "code": 429}}, "rate_limit", "it does not say how long to wait."),
        ({"object": "error", "message": "maximum context length is 10"}, "context_too_long", "too long"),
        (chunk(error={"message": "upstream died"}, finish_reason="error"), "cut_off", "upstream died"),
        ({"error": {"message": "Provider error", "metadata": {"raw": "quota"}}}, "cut_off", "Provider error: quota."),
    ],
)
async def test_error_inside_a_stream(error_object: dict[str, Any], kind: str, says: str) -> None:
    error = await failed(sse(chunk({"content": "a"}), error_object), DONE)
    assert (error.kind, says in error.message) == (kind, True), error.message


async def test_error_event_with_another_shape() -> None:
    error = await failed(sse(chunk({"content": "a"})), b'event: error\ndata: {"message": "it died"}\n\n')
    assert (error.kind, "it died" in error.message) == ("cut_off", True)


async def test_answer_with_nothing_in_it_is_refused() -> None:
    assert "answered with nothing, and gave 'stop' as the reason" in (await failed(sse(STOP))).message
    assert "content filter" in (await failed(sse(chunk(finish_reason="content_filter")))).message
    spent = await failed(sse(chunk({}, finish_reason="length")))
    assert (spent.kind, "limit of tokens was spent before the first word" in spent.message) == ("refused", True)


@pytest.mark.parametrize(
    ("body", "content_type", "status", "what"),
    [
        (b"<html>hello</html>", "text/html", "200 OK", "a web page"),
        (b'{"hello": "world"}', "application/json", "200 OK", "JSON that is no completion"),
        (b"<html>gone</html>", "text/html", "404 Not Found", "status 404"),
        (b'{"detail": "Not Found"}', "application/json", "404 Not Found", "status 404"),
    ],
)
async def test_address_that_is_no_api_is_told(body: bytes, content_type: str, status: str, what: str) -> None:
    error = await failed(body, content_type=content_type, status=status)
    assert error.kind == "refused"
    assert f"it answered with {what}" in error.message
    assert "ends in `/v1`" in error.hint


async def test_error_with_status_200() -> None:
    body = b'{"error": {"message": "No credit", "code": 402}}'
    error = await failed(body, content_type="application/json")
    assert (error.kind, error.status) == ("payment", 402)


async def test_message_of_a_provider_is_cut_and_on_one_line() -> None:
    body = json.dumps({"error": {"message": "line one\nline two \x1b[31m" + "x" * 1000}}).encode()
    error = await failed(body, content_type="application/json", status="400 Bad Request")
    assert error.kind == "refused"
    assert ": line one line two [31mxxx" in error.message
    assert error.message.count("x") < 300 and "\n" not in error.message and "\x1b" not in error.message


async def test_half_a_surrogate_pair_is_sent_as_a_question_mark() -> None:
    history = [Message("user", "file \udcff.txt"), Message("assistant", "", (ToolCall("a", "f", '"\udcfe"'),))]
    *_, raw = await asked(sse(chunk({"content": "a"}), STOP), request=ModelRequest("m-1", history))
    sent = json.loads(raw.requests[0].partition(b"\r\n\r\n")[2])
    assert sent["messages"][0]["content"] == "file ?.txt"
    assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == '"?"'


async def test_requests_share_one_connection() -> None:
    async def run() -> int:
        async with raw_server(sse(chunk({"content": "a"}), STOP), DONE) as raw:
            client = client_for(raw.base_url, provider="custom")
            for _ in range(3):
                await answer_of(client, QUESTION)
            await client.aclose()
            return raw.connections

    assert await run() == 1


async def test_same_client_works_in_one_loop_after_another() -> None:
    client = client_for("http://127.0.0.1:1/v1", provider="custom")

    async def run() -> str:
        with contextlib.suppress(ModelError):
            await answer_of(client, QUESTION)
        return "asked"

    assert [await run(), await run()] == ["asked", "asked"]


async def test_cancelled_request_closes_its_connection() -> None:
    async with raw_server(sse(chunk({"content": "a"})), hold=True) as raw:
        client = client_for(raw.base_url, provider="custom")
        began = asyncio.Event()

        async def consume() -> None:
            async for item in client.stream(QUESTION):
                assert isinstance(item, TextPart)
                began.set()

        task = asyncio.create_task(consume())
        async with asyncio.timeout(5):
            await began.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await raw.left.wait()
        await client.aclose()


async def test_closed_iterator_closes_its_connection() -> None:
    async with raw_server(sse(chunk({"content": "a"})), hold=True) as raw:
        client = client_for(raw.base_url, provider="custom")
        async with asyncio.timeout(5):
            async with contextlib.aclosing(client.stream(QUESTION)) as stream:
                assert await anext(stream) == TextPart("a")
            await raw.left.wait()
        await client.aclose()


async def test_organisation_of_the_environment_is_not_told_to_another_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    *_, raw = await asked(sse(chunk({"content": "a"}), STOP))
    assert b"org-of-mine" not in raw.requests[0]


async def test_further_fields_reach_the_server_and_the_answer_is_streamed_all_the_same() -> None:
    extra = {"response_format": {"type": "json_object"}, "stream": False, "top_p": 0.5}
    request = ModelRequest("m-1", [Message("user", "hello")], temperature=0.1, extra=extra)
    *_, raw = await asked(sse(chunk({"content": "a"}), STOP), request=request)
    body = json.loads(raw.requests[0].partition(b"\r\n\r\n")[2])
    assert body["response_format"] == {"type": "json_object"}
    assert (body["top_p"], body["temperature"], body["stream"]) == (0.5, 0.1, True)
