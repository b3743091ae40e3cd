"""What becomes of each field of a request: OpenAI's own client, the agent, and a model server in each wire protocol."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from hermes_agent.host import Host
from hermes_agent.server import request_fields
from peers.wires import Reply, WireModel
from unit.server.scripted_door import KEY, LIMIT_S, serving

ROOT = Path(__file__).parents[3]
CHAT, ANTHROPIC, RESPONSES = "chat_completions", "anthropic_messages", "codex_responses"
MODES = (CHAT, ANTHROPIC, RESPONSES)
ASK: dict[str, Any] = {"model": "hermes-agent", "messages": [{"role": "user", "content": "hi"}]}
LEFT_OUT = object()
"""The protocol has no field for it: it is left out with a notice."""
TOOL = {"type": "function", "function": {"name": "todo"}}

FORM: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object", "additionalProperties": False}},
}

Client = openai.AsyncOpenAI


@asynccontextmanager
async def agent_at(tmp_path: Path, server: WireModel, mode: str, **more: Any) -> AsyncIterator[Client]:
    """An agent behind its HTTP server, and OpenAI's client."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    given = {
        "provider": "custom",
        "base_url": server.url,
        "default": "m-1",
        "api_mode": mode,
        "api_key": "k-0123456789",
    }
    config = {"model": given, "compression": {"enabled": False}, **more}
    (home / "config.yaml").write_text(json.dumps(config))
    host = Host.build(home)
    try:
        async with (
            serving(host.agent, slash=host.slash) as running,  # type: ignore[arg-type]
            Client(base_url=f"{running.url}/v1", api_key=KEY, timeout=LIMIT_S * 4, max_retries=0) as client,
        ):
            yield client
    finally:
        await host.aclose()


async def run(
    tmp_path: Path, ask: Callable[[Client], Awaitable[Any]], *replies: Reply, mode: str = CHAT, **config: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """Return what the client got (an error it raised, too), and the bodies that the model was sent."""

    async def main(model: WireModel) -> Any:
        async with agent_at(tmp_path, model, mode, **config) as client:
            try:
                return await ask(client)
            except openai.APIStatusError as error:
                return error

    with WireModel(*replies) as model:
        return await main(model), model.bodies


def chat(**given: Any) -> Callable[[Client], Awaitable[Any]]:
    return lambda client: client.chat.completions.create(**{**ASK, **given})


def at(body: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        body = body.get(name) or {}
    return body


SENT: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | object, dict[str, Any] | object]] = {
    "temperature": ({"temperature": 0.25}, *({"temperature": 0.25},) * 3),
    "top_p": ({"top_p": 0.5}, *({"top_p": 0.5},) * 3),
    "max_tokens": ({"max_tokens": 77}, {"max_tokens": 77}, {"max_tokens": 77}, {"max_output_tokens": 77}),
    "max_completion_tokens": (
        {"max_completion_tokens": 77},
        {"max_tokens": 77},
        {"max_tokens": 77},
        {"max_output_tokens": 77},
    ),
    "stop": ({"stop": ["END", "\n\n"]}, {"stop": ["END", "\n\n"]}, {"stop_sequences": ["END", "\n\n"]}, LEFT_OUT),
    "seed": ({"seed": 7}, {"seed": 7}, LEFT_OUT, LEFT_OUT),
    "presence_penalty": ({"presence_penalty": 0.5}, {"presence_penalty": 0.5}, LEFT_OUT, LEFT_OUT),
    "frequency_penalty": ({"frequency_penalty": -0.5}, {"frequency_penalty": -0.5}, LEFT_OUT, LEFT_OUT),
    "logit_bias": ({"logit_bias": {"50256": -100}}, {"logit_bias": {"50256": -100}}, LEFT_OUT, LEFT_OUT),
    "reasoning_effort": (
        {"reasoning_effort": "low"},
        {"reasoning_effort": "low"},
        {"thinking": {"type": "enabled", "budget_tokens": 4096}},
        {"reasoning": {"effort": "low"}},
    ),
    "verbosity": ({"verbosity": "low"}, {"verbosity": "low"}, LEFT_OUT, {"text": {"verbosity": "low"}}),
    "tool_choice": (
        {"tool_choice": TOOL},
        {"tool_choice": TOOL},
        {"tool_choice": {"type": "tool", "name": "todo"}},
        {"tool_choice": {"type": "function", "name": "todo"}},
    ),
    "function_call": (
        {"function_call": {"name": "todo"}},
        {"tool_choice": TOOL},
        {"tool_choice": {"type": "tool", "name": "todo"}},
        {"tool_choice": {"type": "function", "name": "todo"}},
    ),
    "response_format": (
        {"response_format": FORM},
        {"response_format": FORM},
        {"output_config": {"format": {"type": "json_schema", "schema": FORM["json_schema"]["schema"]}}},
        {"text": {"format": {"type": "json_schema", **FORM["json_schema"]}}},
    ),
    "parallel_tool_calls": (
        {"parallel_tool_calls": False},
        {"parallel_tool_calls": False},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"parallel_tool_calls": False},
    ),
}


def test_every_option_is_in_the_table() -> None:
    assert set(SENT) == set(request_fields.CHAT.sent)


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_caller_sets_reaches_the_model_in_its_protocol_for_that_turn_alone(
    tmp_path: Path, mode: str
) -> None:
    async def ask(client: Client) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name, (given, *_) in SENT.items():
            answers[name] = await client.chat.completions.with_raw_response.create(**{**ASK, **given})
        answers["nothing"] = await client.chat.completions.create(**ASK)
        return answers

    answers, bodies = await run(tmp_path, ask, mode=mode)
    plain = bodies.pop()
    for name, (given, *wires) in SENT.items():
        expected = wires[MODES.index(mode)]
        assert answers[name].parse().choices[0].message.content == "It is done.", name
        body = bodies.pop(0)
        notice = answers[name].headers.get("X-Hermes-Notice")
        if expected is LEFT_OUT:
            assert notice and notice.startswith(f"{name} is left out for m-1 of custom: its protocol"), name
            assert set(body) == set(plain), name
            continue
        assert notice is None, name
        assert {field: body.get(field) for field in expected} == expected, name  # type: ignore[attr-defined]
        assert set(given) - set(expected) - set(body) == set(given) - set(expected)  # type: ignore[call-overload]
        for field in set(expected) - {"max_tokens"}:  # type: ignore[call-overload]
            assert plain.get(field) != expected[field], field  # type: ignore[index]
    assert bodies == []


@pytest.mark.parametrize("mode", MODES)
async def test_responses_send_the_same_and_repeat_it_in_the_answer(tmp_path: Path, mode: str) -> None:
    given: dict[str, Any] = {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output_tokens": 77,
        "parallel_tool_calls": False,
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
    }

    async def ask(client: Client) -> Any:
        first = await client.responses.create(model="hermes-agent", input="hi", **given)
        stream = await client.responses.create(
            model="hermes-agent", input="more", previous_response_id=first.id, stream=True, **given
        )
        return first, [event async for event in stream]

    (first, events), bodies = await run(tmp_path, ask, mode=mode)
    limit = "max_output_tokens" if mode == RESPONSES else "max_tokens"
    assert [(b["temperature"], b["top_p"], b[limit]) for b in bodies] == [(0.25, 0.5, 77)] * 2
    last = events[-1].response
    assert (events[-1].type, last.status, last.previous_response_id) == ("response.completed", "completed", first.id)
    for answer in (first, events[0].response, last):
        assert {name: getattr(answer, name) for name in given} == given


@pytest.mark.parametrize(
    ("given", "param", "sent"),
    [
        ({"reasoning": {"effort": "high"}}, "reasoning_effort", "high"),
        ({"text": {"format": {"type": "text"}, "verbosity": "high"}}, "verbosity", "high"),
        ({"text": {"format": {"type": "json_schema", **FORM["json_schema"]}}}, "response_format", FORM),
        ({"tool_choice": {"type": "function", "name": "todo"}}, "tool_choice", TOOL),
    ],
)
async def test_what_stands_one_level_down_in_responses_is_sent_too(
    tmp_path: Path, given: dict[str, Any], param: str, sent: Any
) -> None:
    answer, bodies = await run(
        tmp_path, lambda client: client.responses.create(model="hermes-agent", input="hi", **given)
    )
    assert (answer.status, bodies[0][param]) == ("completed", sent)


async def test_a_forced_tool_is_forced_once_and_no_tool_means_none(tmp_path: Path) -> None:
    calls = Reply("", "tool_calls", [("todo", {})])

    async def after_a_long_session(client: Client) -> Any:
        session = {"X-Hermes-Session-Id": "s1"}
        for n in range(5):
            said = [{"role": "user", "content": f"question {n} " + "word " * 400}]
            await chat(messages=said, extra_headers=session)(client)
        return await chat(tool_choice="required", extra_headers=session)(client)

    refused = Reply("This model's maximum context length is 3000 tokens.", status=400)
    too_long = (*[Reply()] * 5, refused, Reply(), Reply(), calls, Reply())
    answer, bodies = await run(tmp_path, chat(tool_choice="required"), calls, Reply())
    assert answer.choices[0].finish_reason == "stop"
    assert [body.get("tool_choice") for body in bodies] == ["required", None]
    _, bodies = await run(tmp_path, chat(tool_choice="none", parallel_tool_calls=False))
    assert [name for name in ("tools", "tool_choice", "parallel_tool_calls") if name in bodies[0]] == []
    _, bodies = await run(
        tmp_path, after_a_long_session, *too_long, compression={"protect_first_n": 1, "protect_last_n": 1}
    )
    of_the_turn = [body.get("tool_choice") for body in bodies if "tools" in body][-3:]
    assert of_the_turn == ["required", "required", None]
    unknown, bodies = await run(tmp_path, chat(tool_choice={"type": "function", "function": {"name": "fly"}}))
    assert (unknown.status_code, unknown.param, bodies) == (400, "tool_choice", [])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize("text", ["Half an ans", ""])
async def test_an_answer_that_is_not_whole_says_so(tmp_path: Path, mode: str, finish: str, text: str) -> None:
    async def ask(client: Client) -> Any:
        whole = await client.chat.completions.create(**ASK, max_tokens=5)
        chunks = [c async for c in await client.chat.completions.create(**ASK, max_tokens=5, stream=True)]
        response = await client.responses.create(model="hermes-agent", input="hi", max_output_tokens=5)
        events = [e async for e in await client.responses.create(model="hermes-agent", input="hi", stream=True)]
        return whole, chunks, response, events

    (whole, chunks, response, events), _ = await run(tmp_path, ask, Reply(text, finish), mode=mode)
    assert (whole.choices[0].finish_reason, whole.choices[0].message.content) == (finish, text)
    assert whole.usage.completion_tokens == 3
    assert chunks[-1].choices[0].finish_reason == finish
    reason = {"length": "max_output_tokens"}.get(finish, finish)
    for answer in (response, events[-1].response):
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", reason)
    assert events[-1].type == "response.incomplete"


async def test_calls_that_the_callers_limit_cut_are_not_run_and_end_the_turn(tmp_path: Path) -> None:
    async def ask(client: Client) -> Any:
        headers = {"X-Hermes-Session-Id": "s-1"}
        first = await client.chat.completions.create(**ASK, max_tokens=5, extra_headers=headers)
        await client.chat.completions.create(**ASK, extra_headers=headers)
        return first

    answer, bodies = await run(tmp_path, ask, Reply("", "length", [("todo", {"todos": []})]), Reply())
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("length", "")
    assert [m["role"] for m in bodies[1]["messages"]][1:] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    "config",
    [
        {"agent": {"max_turns": 2}},
        {"limits": {"session_tokens": 10}},
        {"tool_loop_guardrails": {"end_after": 2}},
    ],
    ids=["steps", "cap", "loop"],
)
async def test_a_turn_that_a_limit_ends_is_not_whole(tmp_path: Path, config: dict[str, Any]) -> None:
    again = Reply("", "tool_calls", [("todo", {})])
    headers = {"X-Hermes-Session-Id": "s-1"}
    answer, _ = await run(tmp_path, chat(extra_headers=headers), *[again] * 7, Reply("The rest is left."), **config)
    assert answer.choices[0].finish_reason == "length"


async def test_the_operators_smaller_limit_and_a_fallbacks_hold_beside_the_callers(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        await client.chat.completions.create(**ASK, max_tokens=77)
        await client.chat.completions.create(**ASK, max_tokens=20)

    async def main(first: WireModel, second: WireModel) -> None:
        one = {"provider": "custom", "api_key": "k-0123456789"}
        wanted = {**one, "base_url": first.url, "default": "m-1", "max_tokens": 50}
        other = {**one, "base_url": second.url, "model": "m-2"}
        async with agent_at(tmp_path, first, CHAT, model=wanted, fallback_providers=[other]) as client:
            await ask(client)

    with WireModel(Reply("no such account", status=402)) as first, WireModel() as second:
        await main(first, second)
        assert [body["max_tokens"] for body in first.bodies] == [50]
        assert [(body["model"], body["max_tokens"]) for body in second.bodies] == [("m-2", 77), ("m-2", 20)]


async def test_what_the_provider_refuses_is_left_out_with_a_notice_and_from_then_on(tmp_path: Path) -> None:
    refusal = Reply("Unsupported value: 'temperature' does not support 0.25 with this model.", status=400)

    async def ask(client: Client) -> list[Any]:
        given = {**ASK, "temperature": 0.25, "top_p": 0.5}
        return [await client.chat.completions.with_raw_response.create(**given) for _ in range(2)]

    answers, bodies = await run(tmp_path, ask, refusal, Reply())
    for answer in answers:
        assert (
            answer.headers["X-Hermes-Notice"] == "temperature is left out for m-1 of custom: the provider refuses it."
        )
        assert answer.parse().choices[0].message.content == "It is done."
    assert [("temperature" in body, body["top_p"]) for body in bodies] == [(True, 0.5), (False, 0.5), (False, 0.5)]


async def test_a_refusal_that_names_no_option_stays_an_error(tmp_path: Path) -> None:
    other, _ = await run(tmp_path, chat(stop="END"), Reply("The model was stopped for maintenance.", status=400))
    assert other.status_code == 502
    refusal = Reply("Unsupported value: 'temperature' does not support 0.25 with this model.", status=400)
    unasked, _ = await run(tmp_path, chat(), refusal)
    assert unasked.status_code == 502


async def test_a_limit_is_sent_under_the_name_that_the_model_demands(tmp_path: Path) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    answer, bodies = await run(tmp_path, chat(max_tokens=77), Reply(text, status=400), Reply())
    assert answer.choices[0].message.content == "It is done."
    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies] == [(77, None), (None, 77)]


async def test_anthropic_thinks_or_is_sampled(tmp_path: Path) -> None:
    effort = {"agent": {"reasoning_effort": "high"}}
    _, bodies = await run(tmp_path, chat(temperature=0.25), mode=ANTHROPIC, **effort)
    assert ("thinking" in bodies[0], bodies[0]["temperature"]) == (False, 0.25)
    for given, param in (
        ({"temperature": 0.25, "reasoning_effort": "high"}, "temperature"),
        ({"temperature": 1.5}, "temperature"),
        ({"max_tokens": 100, "reasoning_effort": "high"}, "reasoning_effort"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ):
        raw, (body,) = await run(
            tmp_path, lambda c, g=given: c.chat.completions.with_raw_response.create(**ASK, **g), mode=ANTHROPIC
        )
        assert raw.headers["X-Hermes-Notice"].startswith(f"{param} is left out"), given
        assert ("thinking" in body) == (param == "temperature" and "reasoning_effort" in given)


async def test_notices_come_before_the_first_word_of_a_stream(tmp_path: Path) -> None:
    async def ask(client: Client) -> Any:
        make = client.chat.completions.with_streaming_response.create
        async with make(**ASK, seed=7, stream=True) as answer:
            return answer.headers.get("X-Hermes-Notice"), await answer.text()

    (notice, text), _ = await run(tmp_path, ask, mode=RESPONSES)
    assert notice == "seed is left out for m-1 of custom: its protocol (codex_responses) has no such field."
    assert "It is done." in text


WRONG: list[tuple[str, Any]] = [
    ("temperature", 3),
    ("temperature", True),
    ("temperature", "hot"),
    ("top_p", -0.1),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("stop", [""]),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("seed", 2**70),
    ("presence_penalty", 2.5),
    ("logit_bias", {"1": 101}),
    ("reasoning_effort", "huge"),
    ("tool_choice", "perhaps"),
    ("parallel_tool_calls", 0),
    ("response_format", {"type": "xml"}),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
    ("stream_options", {"include_usage": True, "more": 1}),
    ("metadata", ["a"]),
]
WANTED: list[tuple[str, Any]] = [
    ("functions", [{"name": "f"}]),
    ("n", 2),
    ("n", True),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "ash", "format": "wav"}),
    ("prediction", {"type": "content", "content": "x"}),
    ("web_search_options", {}),
    ("service_tier", "flex"),
    ("store", True),
    ("moderation", {"model": "m"}),
]
TAKEN: list[tuple[str, Any]] = [
    ("tools", []),
    ("functions", []),
    ("n", 1),
    ("logprobs", False),
    ("top_logprobs", 0),
    ("response_format", {"type": "text"}),
    ("modalities", ["text"]),
    ("service_tier", "auto"),
    ("store", False),
    ("user", "u-1"),
    ("safety_identifier", "u-1"),
    ("metadata", {"a": "b"}),
    ("prompt_cache_key", "k"),
    ("prompt_cache_retention", "24h"),
    *((name, None) for name in sorted(request_fields.CHAT.all - {"model", "messages"})),
]


async def test_values_that_cannot_be_sent_are_refused_by_name_and_nothing_is_asked(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        for name, value in (*WRONG, *WANTED, ("temprature", 0.5)):
            with pytest.raises(openai.BadRequestError) as caught:
                streams = {"stream": True} if name == "stream_options" else {}
                await client.chat.completions.create(**ASK, **streams, extra_body={name: value})
            assert str(caught.value.param).split(".")[0] == name, (name, value)
            code = "invalid_request" if (name, value) in WRONG and value is not True else "unsupported_parameter"
            code = "unknown_parameter" if name == "temprature" else code
            assert caught.value.code == code or (name, value) == ("temperature", True), (name, value)

    _, bodies = await run(tmp_path, ask)
    assert bodies == []


async def test_what_asks_for_nothing_is_taken_and_sent_nowhere(tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        await client.chat.completions.create(**ASK)
        for name, value in TAKEN:
            await client.chat.completions.create(**ASK, extra_body={name: value})

    _, bodies = await run(tmp_path, ask)
    assert len(bodies) == len(TAKEN) + 1
    assert all(set(body) == set(bodies[0]) for body in bodies)


async def test_storing_is_what_the_body_says_or_refused(tmp_path: Path) -> None:
    async def ask(client: Client) -> list[Any]:
        answers: list[Any] = []
        headers = {"X-Hermes-Session-Id": "s-1"}
        for store, more in ((True, {}), (False, headers), (True, headers), (False, {})):
            try:
                await client.chat.completions.create(**ASK, store=store, extra_headers=more)
                answers.append("taken")
            except openai.BadRequestError as error:
                answers.append(error.param)
        return answers

    answers, _ = await run(tmp_path, ask)
    assert answers == ["store", "store", "taken", "taken"]


def test_every_field_of_openais_client_has_a_fate(tmp_path: Path) -> None:
    from openai.types.chat import completion_create_params as of_chat
    from openai.types.responses import response_create_params as of_responses

    known = set(of_chat.CompletionCreateParamsBase.__annotations__)
    assert known - request_fields.CHAT.all == set()
    known = set(of_responses.ResponseCreateParamsBase.__annotations__)
    assert known - request_fields.RESPONSES.all == set()


@pytest.mark.parametrize(
    ("schema", "fields", "heading"),
    [
        ("ChatRequest", request_fields.CHAT, "### The request"),
        ("ResponsesRequest", request_fields.RESPONSES, "### Responses"),
    ],
)
def test_the_description_and_the_docs_name_every_field(
    schema: str, fields: request_fields.Fields, heading: str
) -> None:
    spec = json.loads((ROOT / "hermes/hermes_agent/server/openapi.json").read_text())["components"]["schemas"][schema]
    assert set(spec["properties"]) == fields.all
    assert spec["additionalProperties"] is False
    docs = (ROOT / "docs/operator/http.md").read_text()
    section = docs.split(f"{heading}\n", 1)[1].split("\n### ", 1)[0]
    assert fields.all - set(re.findall(r"`(\w+)", section)) == set()
