"""Chat completions over a real server: what the official client sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ModelError, ModelErrorKind, UserError
from hermes_agent.core.messages import Content, Message, Notice, TextDelta, ToolCall, ToolStarted, TurnEvent
from hermes_agent.policy import Refusal
from unit.server.scripted_door import (
    KEY,
    LIMIT_S,
    Gate,
    Play,
    Running,
    ScriptedAgent,
    ScriptedTalk,
    calculates,
    echo,
    fails,
    finished,
    says,
    serving,
)

ASK: dict[str, Any] = {"model": "hermes-agent", "messages": [{"role": "user", "content": "What is 2 to the 16?"}]}


def client(running: Running, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{running.url}/v1", api_key=KEY, timeout=LIMIT_S, **{"max_retries": 0, **options}
    )


async def post(running: Running, body: Any, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        return await http.post(f"{running.url}/v1/chat/completions", json=body, headers=running.headers | headers)


def data_lines(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_the_official_client_gets_the_answer_the_finish_reason_and_the_usage() -> None:
    async def run() -> Any:
        async with serving(calculates) as running, client(running) as ai:
            return await ai.chat.completions.create(**ASK)

    answer = await run()
    assert answer.choices[0].message.content == "Let me see.\n\nIt is 65536."
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "hermes-agent"
    assert answer.object == "chat.completion"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (12, 3, 15)
    assert answer.usage.prompt_tokens_details.cached_tokens == 4


async def test_the_official_client_streams_text_and_no_tool_activity() -> None:
    async def run() -> list[Any]:
        async with serving(calculates) as running, client(running) as ai:
            stream = await ai.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
            return [chunk async for chunk in stream]

    chunks = await run()
    assert [c.choices[0].delta.content for c in chunks[:-1]] == ["", "Let me see.", "\n\nIt is 65536.", None]
    assert [c.choices[0].delta.role for c in chunks[:-1]] == ["assistant", None, None, None]
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None, None, None, "stop"]
    assert chunks[-1].choices == []
    assert [c.usage and c.usage.total_tokens for c in chunks] == [None, None, None, None, 15]
    assert len({c.id for c in chunks}) == 1


async def test_the_synchronous_client_works_both_ways() -> None:
    def talk(url: str) -> tuple[str | None, str]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=LIMIT_S) as ai:
            whole = ai.chat.completions.create(**ASK).choices[0].message.content
            streamed = "".join(c.choices[0].delta.content or "" for c in ai.chat.completions.create(**ASK, stream=True))
            return whole, streamed

    async def run() -> tuple[str | None, str]:
        async with serving(calculates) as running:
            return await asyncio.to_thread(talk, running.url)

    assert await run() == ("Let me see.\n\nIt is 65536.",) * 2


async def test_the_bytes_of_a_stream_are_those_of_openai() -> None:
    async def run() -> httpx.Response:
        async with serving(says("naïve ", "text")) as running:
            return await post(running, ASK | {"stream": True})

    response = await run()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    events = data_lines(response.text)
    head = {k: events[0][k] for k in ("id", "object", "created", "model")}
    assert head["object"] == "chat.completion.chunk"

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    assert events == [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "naïve "}),
        chunk({"content": "text"}),
        chunk({}, "stop"),
        "[DONE]",
    ]


async def test_a_spent_budget_is_the_finish_reason_length() -> None:
    async def run() -> Any:
        async with serving(says("so far", reason="budget")) as running, client(running) as ai:
            return await ai.chat.completions.create(**ASK)

    assert (await run()).choices[0].finish_reason == "length"


async def test_text_that_was_added_to_the_reply_at_its_end_is_streamed_too() -> None:
    async def play(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        yield TextDelta("yes")
        yield Notice("not part of the answer")
        yield finished("yes, signed")

    async def run() -> list[Any]:
        async with serving(play) as running:
            return data_lines((await post(running, ASK | {"stream": True})).text)

    events = await run()
    assert [e["choices"][0]["delta"].get("content") for e in events[:-1]] == ["", "yes", ", signed", None]


async def test_half_a_surrogate_pair_from_a_model_does_no_harm() -> None:
    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with serving(says("\ud83d", "\ude00")) as running:
            return await post(running, ASK), await post(running, ASK | {"stream": True})

    whole, streamed = await run()
    assert whole.status_code == streamed.status_code == 200
    assert "\\ud83d" in streamed.text


async def test_without_a_session_the_messages_are_the_history_and_nothing_is_stored() -> None:
    body = {
        "model": "scripted-1",
        "messages": [
            {"role": "system", "content": "Be terse."},
            {"role": "user", "content": "2+2?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            {"role": "assistant", "content": [{"type": "text", "text": "It is 4."}]},
            {"role": "developer", "content": [{"type": "text", "text": "Answer in French."}]},
            {"role": "user", "content": "And 3+3?"},
        ],
    }

    async def run() -> tuple[ScriptedAgent, httpx.Response]:
        async with serving(echo) as running:
            return running.agent, await post(running, body)

    agent, response = await run()
    (opened,) = agent.opened
    assert opened.session_id is None
    assert opened.platform == "api_server"
    assert opened.instructions == "Be terse.\n\nAnswer in French."
    assert opened.history == [
        Message("user", "2+2?"),
        Message("assistant", "", (ToolCall("c1", "calc", "{}"),)),
        Message("tool", "4", tool_call_id="c1"),
        Message("assistant", "It is 4."),
    ]
    assert agent.stored == {}
    assert response.headers["x-hermes-session-id"] == "fresh-1"
    assert response.json()["choices"][0]["message"]["content"] == "And 3+3?"
    assert agent.closed == [("fresh-1", "session_boundary")]


async def test_with_a_session_only_the_last_message_is_new() -> None:
    async def run() -> tuple[ScriptedAgent, list[httpx.Response]]:
        async with serving(echo) as running:
            first = await post(running, ASK, **{"X-Hermes-Session-Id": "my.session:1"})
            messages = [*ASK["messages"], {"role": "assistant", "content": "?"}, {"role": "user", "content": "again"}]
            second = await post(
                running, ASK | {"messages": messages, "stream": True}, **{"X-Hermes-Session-Id": "my.session:1"}
            )
            return running.agent, [first, second]

    agent, responses = await run()
    assert [(o.session_id, o.history, o.keep) for o in agent.opened] == [("my.session:1", None, True)] * 2
    assert agent.stored == {"my.session:1": ["What is 2 to the 16?", "again"]}
    assert [r.headers["x-hermes-session-id"] for r in responses] == ["my.session:1"] * 2


@pytest.mark.attack("interfaces")
@pytest.mark.parametrize("given", ["", "../x", "a b", "-x", "é", "a" * 129])
async def test_a_session_id_that_could_do_harm_is_refused(given: str) -> None:
    async def run() -> httpx.Response:
        async with serving(echo) as running, httpx.AsyncClient() as http:
            headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"x-hermes-session-id", given.encode())]
            return await http.post(f"{running.url}/v1/chat/completions", json=ASK, headers=headers)

    response = await run()
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "X-Hermes-Session-Id"


async def test_images_are_passed_on_as_parts() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    ]
    seen: list[Content] = []

    async def play(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        seen.append(content)
        yield finished("a cat")

    async def run() -> None:
        async with serving(play) as running, client(running) as ai:
            await ai.chat.completions.create(model="hermes-agent", messages=[{"role": "user", "content": parts}])

    await run()
    assert seen == [parts]


@pytest.mark.attack("interfaces")
async def test_nobody_can_be_asked_over_http() -> None:
    async def run() -> Any:
        async with serving(echo) as running:
            await post(running, ASK)
            return await running.agent.opened[0].approver.ask(ApprovalRequest("terminal", "run `ls`", "ls", "terminal"))

    assert isinstance(await run(), Refusal)


CASES: list[tuple[ModelErrorKind, int, str, str | None]] = [
    ("no_key", 503, "model_no_key", "false"),
    ("auth", 502, "model_auth_failed", "false"),
    ("payment", 502, "model_no_credit", "false"),
    ("unknown_model", 502, "model_unknown", "false"),
    ("rate_limit", 429, "rate_limit_exceeded", None),
    ("context_too_long", 400, "context_length_exceeded", None),
    ("unreachable", 503, "model_unreachable", None),
    ("overloaded", 502, "model_overloaded", None),
    ("cut_off", 502, "model_cut_off", None),
    ("empty", 502, "model_empty", None),
    ("refused", 502, "model_refused", "false"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "status", "code", "should_retry"), CASES)
async def test_a_model_that_fails_before_its_first_word_is_a_status(
    kind: ModelErrorKind, status: int, code: str, should_retry: str | None, stream: bool
) -> None:
    error = ModelError(
        kind, "the model did not answer", hint="do this", retry_after_s=6.2 if kind == "rate_limit" else None
    )

    async def run() -> httpx.Response:
        async with serving(fails(error)) as running:
            return await post(running, ASK | {"stream": stream})

    response = await run()
    assert response.status_code == status
    assert response.json()["error"] == {
        "message": "the model did not answer\ndo this",
        "type": {400: "invalid_request_error", 429: "rate_limit_error"}.get(status, "server_error"),
        "param": None,
        "code": code,
    }
    assert response.headers.get("retry-after") == ("7" if kind == "rate_limit" else None)
    assert response.headers.get("x-should-retry") == should_retry


async def test_no_model_at_all_is_an_error_with_its_ways_out() -> None:
    async def run() -> httpx.Response:
        async with serving(
            ScriptedAgent(echo, refuse=UserError("no model can be had", hint="set one", exit_status=2))
        ) as running:
            return await post(running, ASK)

    response = await run()
    assert (response.status_code, response.json()["error"]["message"]) == (503, "no model can be had\nset one")


async def test_a_failure_in_the_middle_of_a_stream_is_raised_by_the_client() -> None:
    async def run() -> tuple[list[str | None], openai.APIError]:
        texts: list[str | None] = []
        play = fails(ModelError("cut_off", "the stream was cut off"), TextDelta("It is "))
        async with serving(play) as running, client(running) as ai:
            stream = await ai.chat.completions.create(**ASK, stream=True)
            with pytest.raises(openai.APIError) as caught:
                async for chunk in stream:
                    texts.append(chunk.choices[0].delta.content)
            return texts, caught.value

    texts, error = await run()
    assert texts == ["", "It is "]
    assert (error.message, error.code) == ("the stream was cut off", "model_cut_off")


async def test_a_request_whose_tools_have_run_is_not_repeated_by_the_client() -> None:
    runs: list[str] = []
    failing = fails(ModelError("unreachable", "gone"), ToolStarted("c1", "terminal", {}))

    async def play(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        runs.append(talk.session_id)
        async for event in failing(talk, content):
            yield event

    async def run(play: Play) -> None:
        async with serving(play) as running, client(running, max_retries=2) as ai:
            with pytest.raises(openai.InternalServerError):
                await ai.chat.completions.create(**ASK)

    await run(play)
    assert len(runs) == 1


async def test_what_nobody_foresaw_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> httpx.Response:
        async with serving(fails(RuntimeError("secret detail"))) as running:
            return await post(running, ASK)

    response = await run()
    assert response.status_code == 500
    assert "secret detail" not in response.text
    assert "secret detail" in caplog.text


async def test_silence_is_filled_with_comments_that_the_client_skips() -> None:
    async def run() -> tuple[str, list[Any]]:
        gate = Gate()
        async with serving(gate.play, keepalive_s=0.01) as running, httpx.AsyncClient(timeout=LIMIT_S) as http:
            request = {"json": ASK | {"stream": True}, "headers": running.headers}
            async with http.stream("POST", f"{running.url}/v1/chat/completions", **request) as response:  # type: ignore[arg-type]
                text = ""
                async for piece in response.aiter_text():
                    text += piece
                    if text.count(": still working\n\n") >= 2:
                        gate.go.set()
            async with client(running) as ai:
                stream = await ai.chat.completions.create(**ASK, stream=True)
                return text, [c.choices[0].delta.content async for c in stream]

    text, contents = await run()
    assert data_lines(text)[0]["choices"][0]["delta"]["role"] == "assistant"
    assert text.endswith("data: [DONE]\n\n")
    assert contents == ["", "What is 2 to the 16?", None]


async def test_a_tool_that_works_begins_the_stream() -> None:
    async def run() -> str:
        gate = Gate(first=[ToolStarted("c1", "terminal", {"command": "sleep"})])
        async with serving(gate.play, keepalive_s=60.0) as running, httpx.AsyncClient(timeout=LIMIT_S) as http:
            request = {"json": ASK | {"stream": True}, "headers": running.headers}
            async with http.stream("POST", f"{running.url}/v1/chat/completions", **request) as response:  # type: ignore[arg-type]
                first = await anext(response.aiter_text())
                gate.go.set()
                return first

    first = await run()
    assert data_lines(first)[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "sleep" not in first


async def test_the_models_are_listed_and_found_by_name() -> None:
    async def run() -> tuple[list[str], str, httpx.Response]:
        async with serving(echo) as running, client(running) as ai:
            names = [model.id for model in (await ai.models.list()).data]
            one = await ai.models.retrieve("scripted-1")
            async with httpx.AsyncClient(headers=running.headers) as http:
                return names, one.id, await http.get(f"{running.url}/v1/models/nope")

    names, one, missing = await run()
    assert names == ["scripted-1", "hermes-agent"]
    assert one == "scripted-1"
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_another_model_is_not_found() -> None:
    async def run() -> openai.NotFoundError:
        async with serving(echo) as running, client(running) as ai:
            with pytest.raises(openai.NotFoundError) as caught:
                await ai.chat.completions.create(**ASK | {"model": "gpt-9"})
            return caught.value

    error = await run()
    assert (error.code, error.param) == ("model_not_found", "model")
    assert "scripted-1, hermes-agent" in error.message


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("n", 2),
        ("logprobs", True),
        ("modalities", ["text", "audio"]),
    ],
)
async def test_what_the_agent_cannot_give_is_refused(param: str, value: Any) -> None:
    async def run() -> httpx.Response:
        async with serving(echo) as running:
            return await post(running, ASK | {param: value})

    response = await run()
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", param)
