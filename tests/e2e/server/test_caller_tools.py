"""Tools of the caller over HTTP: OpenAI's client runs them, the agent runs its own, and the turn continues."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from e2e.server.test_options import ANTHROPIC, CHAT, MODES, agent_at
from peers.wires import Reply, WireModel

Client = openai.AsyncOpenAI

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
FLAT = {**WEATHER["function"], "type": "function", "strict": False}
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
CALLED = Reply("Let me look.", "tool_calls", (("get_weather", {"city": "Oslo"}),))
SUNNY = Reply("It is sunny in Oslo.")


async def run(
    tmp_path: Path, ask: Callable[[Client], Awaitable[Any]], *replies: Reply, mode: str = CHAT
) -> tuple[Any, list[dict[str, Any]]]:
    async def main(model: WireModel) -> Any:
        async with agent_at(tmp_path, model, mode) as client:
            return await ask(client)

    with WireModel(*replies) as model:
        return await main(model), model.bodies


def offered(body: dict[str, Any]) -> set[str]:
    return {tool.get("name") or tool["function"]["name"] for tool in body["tools"]}


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_of_the_callers_tool_comes_back_and_its_result_continues_the_turn(
    tmp_path: Path, mode: str
) -> None:
    async def ask(client: Client) -> Any:
        first = await client.chat.completions.create(model="hermes-agent", messages=ASK, tools=[WEATHER])
        message = first.choices[0].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny, 21 degrees"}
        history = [*ASK, message.model_dump(exclude_none=True), result]
        second = await client.chat.completions.create(model="hermes-agent", messages=history, tools=[WEATHER])
        return first, second

    (first, second), bodies = await run(tmp_path, ask, CALLED, SUNNY, mode=mode)
    (call,) = first.choices[0].message.tool_calls
    assert (first.choices[0].finish_reason, first.choices[0].message.content) == ("tool_calls", "Let me look.")
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
    assert (second.choices[0].finish_reason, second.choices[0].message.content) == ("stop", SUNNY.text)
    assert all({"get_weather", "read_file"} <= offered(body) for body in bodies)
    assert len(bodies) == 2 and "sunny, 21 degrees" in json.dumps(bodies[1])
    assert json.dumps(bodies[1]).count("What is the weather in Oslo?") == 1


async def test_a_stream_ends_with_the_calls(tmp_path: Path) -> None:
    calls = (("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Bergen"}))

    async def ask(client: Client) -> list[Any]:
        stream = await client.chat.completions.create(
            model="hermes-agent", messages=ASK, tools=[WEATHER], stream=True, stream_options={"include_usage": True}
        )
        return [chunk async for chunk in stream]

    chunks, _ = await run(tmp_path, ask, Reply("Both.", "tool_calls", calls))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Both."
    (listed,) = [delta.tool_calls for delta in deltas if delta.tool_calls]
    assert [(c.index, c.type, json.loads(c.function.arguments)["city"]) for c in listed] == [
        (0, "function", "Oslo"),
        (1, "function", "Bergen"),
    ]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"
    assert chunks[-1].usage.total_tokens == 10


async def test_the_agent_runs_its_own_tools_and_those_beside_a_callers_call_wait(tmp_path: Path) -> None:
    todo = ("todo", {"todos": [{"id": "1", "content": "look", "status": "pending"}]})

    async def ask(client: Client) -> Any:
        return await client.chat.completions.create(model="hermes-agent", messages=ASK, tools=[WEATHER])

    own, mixed = Reply("", "tool_calls", (todo,)), Reply("", "tool_calls", (todo, ("get_weather", {"city": "Oslo"})))
    answer, bodies = await run(tmp_path, ask, own, mixed)
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["get_weather"]
    assert len(bodies) == 2
    assert [message["role"] for message in bodies[1]["messages"][1:]] == ["user", "assistant", "tool"]


async def test_a_callers_tool_replaces_one_of_the_agent_and_can_be_forced(tmp_path: Path) -> None:
    mine = {"type": "function", "function": {"name": "todo", "description": "The caller's own."}}
    forced = {"type": "function", "function": {"name": "todo"}}

    async def ask(client: Client) -> Any:
        return await client.chat.completions.create(
            model="hermes-agent", messages=ASK, tools=[mine], tool_choice=forced, parallel_tool_calls=False
        )

    answer, (body,) = await run(tmp_path, ask, Reply("", "tool_calls", (("todo", {}),)))
    (sent,) = [tool["function"] for tool in body["tools"] if tool["function"]["name"] == "todo"]
    assert (sent["description"], body["tool_choice"]) == ("The caller's own.", forced)
    assert answer.choices[0].message.tool_calls[0].function.name == "todo"


async def test_a_session_continues_with_the_results_and_refuses_others(tmp_path: Path) -> None:
    headers = {"X-Hermes-Session-Id": "weather-1"}

    async def ask(client: Client) -> Any:
        async def send(messages: list[Any]) -> Any:
            return await client.chat.completions.create(
                model="hermes-agent", messages=messages, tools=[WEATHER], extra_headers=headers
            )

        first = (await send(ASK)).choices[0].message
        wrong = {"role": "tool", "tool_call_id": "other", "content": "rain"}
        call = {"id": "other", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        with pytest.raises(openai.BadRequestError, match="waits for the results of"):
            await send([*ASK, {"role": "assistant", "tool_calls": [call]}, wrong])
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
        second = await send([*ASK, first.model_dump(exclude_none=True), result])
        with pytest.raises(openai.BadRequestError, match="waits for no results"):
            await send([*ASK, first.model_dump(exclude_none=True), result])
        third = await send([{"role": "user", "content": "Thanks."}])
        return second, third

    (second, third), bodies = await run(tmp_path, ask, CALLED, SUNNY, Reply("Welcome."))
    assert (second.choices[0].message.content, third.choices[0].message.content) == (SUNNY.text, "Welcome.")
    roles = [message["role"] for message in bodies[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert bodies[2]["messages"][: len(bodies[1]["messages"])] == bodies[1]["messages"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_responses_return_function_calls_and_continue_from_the_answer(tmp_path: Path, is_streamed: bool) -> None:
    async def ask(client: Client) -> Any:
        async def respond(**given: Any) -> Any:
            given = {"model": "hermes-agent", "tools": [FLAT], **given}
            if not is_streamed:
                return await client.responses.create(**given)
            async with client.responses.stream(**given) as stream:
                return await stream.get_final_response()

        first = await respond(input="What is the weather in Oslo?")
        (call,) = [item for item in first.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        return call, await respond(previous_response_id=first.id, input=[output])

    (call, second), bodies = await run(tmp_path, ask, CALLED, SUNNY)
    assert (call.name, json.loads(call.arguments), call.status) == ("get_weather", {"city": "Oslo"}, "completed")
    assert second.output_text == SUNNY.text
    assert [message["role"] for message in bodies[1]["messages"]] == ["system", "user", "assistant", "tool"]


async def test_tools_that_no_caller_can_run_are_refused(tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        ([{"type": "web_search"}], "tools[0].type"),
        ([{"type": "function", "function": {"name": "no spaces"}}], "tools[0].function.name"),
        ([WEATHER, WEATHER], "tools"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], "tools[0].function.parameters"),
    ]

    async def ask(client: Client) -> None:
        for tools, param in bad:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="hermes-agent", messages=ASK, tools=tools)
            assert caught.value.param == param
        with pytest.raises(openai.BadRequestError, match="no user message"):
            await client.chat.completions.create(
                model="hermes-agent",
                messages=[
                    {"role": "assistant", "tool_calls": [{"id": "a", **WEATHER, "function": {"name": "f"}}]},
                    {"role": "tool", "tool_call_id": "a", "content": "x"},
                ],
            )

    _, bodies = await run(tmp_path, ask, mode=ANTHROPIC)
    assert bodies == []
