"""`POST /v1/responses` as OpenAI's own client reads it: whole, streamed, gone on with."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hermes_agent.core.errors import ModelError
from hermes_agent.server.http_types import HttpError
from hermes_agent.server.responses_format import read_responses_request
from unit.server.scripted_door import LIMIT_S, calculates, echo, fails, says, serving


async def post(play: Any, *bodies: dict[str, Any]) -> tuple[list[httpx.Response], Any]:
    """Send one after another; a `previous_response_id` of 1 is the id of the first answer."""

    async def run() -> tuple[list[httpx.Response], Any]:
        async with serving(play) as running, httpx.AsyncClient(timeout=LIMIT_S, headers=running.headers) as http:
            answers: list[httpx.Response] = []
            for body in bodies:
                if body.get("previous_response_id") == 1:
                    body = {**body, "previous_response_id": answers[0].json()["id"]}
                answers.append(await http.post(f"{running.url}/v1/responses", json=body))
            return answers, running.agent

    return await run()


async def test_an_answer_has_openai_s_shape_and_can_be_gone_on_with() -> None:
    (first, second), agent = await post(echo, {"input": "hi"}, {"input": "more", "previous_response_id": 1})
    assert first.status_code == second.status_code == 200
    value = first.json()
    assert (value["object"], value["status"], value["store"]) == ("response", "completed", True)
    assert value["output"][0]["content"][0]["text"] == "hi"
    assert value["usage"]["total_tokens"] == value["usage"]["input_tokens"] + value["usage"]["output_tokens"]
    session = first.headers["x-hermes-session-id"]
    assert agent.stored == {session: ["hi", "more"]}
    assert value["id"].endswith(f"_{session}")


async def test_what_is_not_to_be_stored_is_not_and_cannot_be_gone_on_with() -> None:
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    bodies = ({"input": "hi", "store": False}, {"input": history}, {"input": "x", "previous_response_id": 1})
    (_, whole, refused), agent = await post(echo, *bodies)
    assert agent.stored == {}
    assert whole.json()["output"][0]["content"][0]["text"] == "c"
    assert [message.text for message in agent.opened[1].history] == ["a", "b"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "previous_response_not_found")


async def test_a_stream_is_read_by_openai_s_client() -> None:
    openai = pytest.importorskip("openai")

    async def run() -> tuple[list[Any], Any]:
        async with serving(calculates) as running:
            client = openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.headers["Authorization"][7:])
            async with client.responses.stream(model="hermes-agent", input="what?", instructions="Be brief.") as stream:
                events = [event async for event in stream]
                return events, await stream.get_final_response()

    events, final = await run()
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == list(range(len(numbers)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text
    assert final.output_text.endswith("It is 65536.")
    assert events[-1].type == "response.completed"


async def test_a_stream_says_what_went_wrong_and_a_spent_budget_is_incomplete() -> None:
    from hermes_agent.core.messages import TextDelta

    broken = fails(ModelError("cut_off", "it broke"), TextDelta("Let me"))
    (answer,), _ = await post(broken, {"input": "hi", "stream": True})
    assert "event: error\n" in answer.text
    (short,), _ = await post(says("so far", reason="budget"), {"input": "hi"})
    assert (short.json()["status"], short.json()["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "input"),
        (b'{"input": []}', "input"),
        (b'{"input": [5]}', "input[0]"),
        (b'{"input": [{"type": "computer_call"}]}', "input[0].type"),
        (b'{"input": [{"role": "robot", "content": "x"}]}', "input[0].role"),
        (b'{"input": "hi", "background": true}', "background"),
        (b'{"input": "hi", "tools": [{"type": "function"}]}', "tools[0].function.name"),
        (b'{"input": "hi", "text": {"format": {"type": "json_schema"}}}', "text.format.name"),
        (b'{"input": "hi", "previous_response_id": "resp_x"}', "previous_response_id"),
    ],
)
def test_what_cannot_be_done_is_refused_at_its_place(body: bytes, param: str) -> None:
    with pytest.raises(HttpError) as caught:
        read_responses_request(body, ["m"])
    assert caught.value.param == param
