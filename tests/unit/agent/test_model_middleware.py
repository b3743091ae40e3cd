"""Middleware around a model request: what the model is asked, what the person sees, what is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import TextDelta, ToolCall, ToolFinished, TurnFinished
from hermes_agent.sessions import Transcript
from unit.agent.test_turn import Bench, call, events_of

KEYWORDS = {
    "task_id": "s1",
    "session_id": "s1",
    "platform": "cli",
    "model": "scripted",
    "provider": "scripted",
    "base_url": "",
    "api_mode": "chat_completions",
    "api_call_count": 1,
    "middleware_schema_version": "hermes.middleware.v1",
}


def completion(text: str | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text, **more}}]}


async def say(bench: Bench, *texts: str) -> list[Any]:
    async def work() -> list[Any]:
        talk = await bench.open("s1")
        return [event for text in texts or ("hi",) for event in await events_of(talk, text)]

    return await bench.run(work())


def streamed(events: list[Any]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


async def test_a_request_is_changed_and_the_change_is_traced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello"])
    traces: list[Any] = []

    def cooler(request: dict[str, Any], original_request: dict[str, Any], **kwargs: Any) -> Any:
        traces.append((request == original_request, kwargs))
        return {"request": {**request, "temperature": 0.5, "seed": 3, "model": "other"}, "source": "cooler"}

    bench.hooks.middleware.add("llm_request", cooler, "p")
    bench.hooks.add("pre_api_request", lambda middleware_trace, **kw: traces.append(middleware_trace), "p")
    await say(bench)

    (request,) = bench.model.requests
    assert (request.temperature, request.extra, request.model) == (0.5, {"seed": 3}, "other")
    assert [m.role for m in request.messages] == ["system", "user"]
    same, given = traces[0]
    assert same
    assert given.pop("turn_id").startswith("turn_")
    assert given.pop("api_request_id").startswith("req_")
    assert given == KEYWORDS
    assert traces[1] == [{"source": "cooler"}]


async def test_a_request_that_is_none_is_not_used_and_its_plugin_is_named(tmp_path: Path, caplog: Any) -> None:
    bench = Bench(tmp_path, ["hello"])
    bench.hooks.middleware.add("llm_request", lambda request, **kw: {"request": {**request, "messages": 3}}, "odd")

    assert (await say(bench))[-1].text == "hello"
    assert len(bench.model.requests[0].messages) == 2
    assert "llm_request middleware (odd): its request is ignored: `messages` is no list of mappings" in caplog.text


async def test_what_the_wire_leaves_out_of_a_message_survives(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "done"])
    bench.hooks.middleware.add("llm_request", lambda request, **kw: {"request": dict(request)}, "p")
    await say(bench)

    assert bench.model.requests[1].messages[-1].tool_name == "echo"


async def test_one_that_returns_what_next_call_returned_changes_nothing_and_the_text_still_streams(
    tmp_path: Path,
) -> None:
    seen: list[Any] = []

    def around(request: dict[str, Any], next_call: Any, **kwargs: Any) -> Any:
        response = next_call()
        seen.append((response.choices[0].message.content, response["usage"]["total_tokens"], response.model))
        return response

    bench = Bench(tmp_path, ["hello there you", "again"])
    bench.hooks.middleware.add("llm_execution", around, "p")
    events = await say(bench, "hi", "more")

    assert [e.text for e in events if isinstance(e, TextDelta)] == ["hello", " there", " you", "again"]
    assert seen == [("hello there you", 12, "scripted-1"), ("again", 12, "scripted-1")]
    assert [e.usage.total_tokens for e in events if isinstance(e, TurnFinished)] == [12, 12]
    assert len(bench.model.requests) == 2


async def test_the_text_is_seen_before_the_middleware_returns(tmp_path: Path) -> None:
    gate = asyncio.Event()
    bench = Bench(tmp_path, [gate])
    bench.hooks.middleware.add("llm_execution", lambda next_call, **kw: next_call(), "p")

    async def work() -> list[Any]:
        talk, events = await bench.open(), []
        async for event in talk.turn("hi"):
            events.append(event)
            gate.set()  # the model goes on when the first piece was seen
        return events

    assert streamed(await bench.run(work())) == "started"


@pytest.mark.parametrize("shape", ["dict", "objects", "text", "async"])
async def test_an_answer_of_its_own_asks_no_model(tmp_path: Path, shape: str) -> None:
    bench = Bench(tmp_path, [])
    value: Any = completion("from the cache", tool_calls=None)
    if shape == "objects":
        message = SimpleNamespace(content="from the cache", tool_calls=None)
        value = SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=None, model="cache")
    elif shape == "text":
        value = "from the cache"

    async def later(**kwargs: Any) -> Any:
        return value

    bench.hooks.middleware.add("llm_execution", later if shape == "async" else lambda **kw: value, "p")
    events = await say(bench)

    assert (streamed(events), events[-1].text, bench.model.requests) == ("from the cache", "from the cache", [])
    assert [m.text for m in Transcript(tmp_path / "state.db").messages("s1")] == ["hi", "from the cache"]


async def test_an_answer_of_its_own_may_call_tools(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["done"])
    calls = [{"function": {"name": "echo", "arguments": '{"n": 4}'}}]
    answers = [completion(None, tool_calls=calls)]

    def first(next_call: Any, **kwargs: Any) -> Any:
        return answers.pop() if answers else next_call()

    bench.hooks.middleware.add("llm_execution", first, "p")
    events = await say(bench)

    (finished,) = [e for e in events if isinstance(e, ToolFinished)]
    assert (json.loads(finished.result), events[-1].text) == ({"echo": 4}, "done")


async def test_a_changed_response_counts_also_when_it_was_changed_in_place(tmp_path: Path) -> None:
    def censor(next_call: Any, **kwargs: Any) -> Any:
        response = next_call()
        response.choices[0].message.content = "[removed]"
        return response

    bench = Bench(tmp_path, ["a secret"])
    bench.hooks.middleware.add("llm_execution", censor, "p")

    assert (await say(bench))[-1].text == "[removed]"
    assert [m.text for m in Transcript(tmp_path / "state.db").messages("s1")] == ["hi", "[removed]"]


@pytest.mark.parametrize("value", [None, 3, {}, {"choices": []}, completion(""), completion(None, tool_calls=[{}])])
async def test_an_answer_that_is_none_names_the_plugin(tmp_path: Path, value: Any) -> None:
    bench = Bench(tmp_path, [])
    bench.hooks.middleware.add("llm_execution", lambda **kw: value, "odd")

    with pytest.raises(ModelError, match="The llm_execution middleware of plugin `odd` gave back"):
        await say(bench)


async def test_a_request_that_is_none_names_the_plugin(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    bench.hooks.middleware.add("llm_execution", lambda next_call, **kw: next_call({"messages": [3]}), "odd")

    with pytest.raises(ModelError, match="plugin `odd` asked the model with a request that is none"):
        await say(bench)


async def test_next_call_may_ask_for_something_else(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello"])
    bench.hooks.middleware.add(
        "llm_execution", lambda request, next_call, **kw: next_call({**request, "top_p": 1}), "p"
    )
    await say(bench)

    assert bench.model.requests[0].extra == {"top_p": 1}


async def test_a_failure_of_the_model_goes_through_and_one_may_answer_for_it(tmp_path: Path) -> None:
    error = ModelError("refused", "not that", status=400)
    rescue: list[bool] = []

    def around(next_call: Any, **kwargs: Any) -> Any:
        try:
            return next_call()
        except ModelError:
            if not rescue:
                raise
            return "the model rests"

    bench = Bench(tmp_path, [error, error])
    bench.hooks.middleware.add("llm_execution", around, "p")

    async def work() -> Any:
        talk = await bench.open()
        with pytest.raises(ModelError) as caught:
            await events_of(talk, "one")
        rescue.append(True)
        return caught.value, (await events_of(talk, "two"))[-1].text

    assert await bench.run(work()) == (error, "the model rests")


async def test_a_turn_is_interrupted_while_the_model_streams_inside_middleware(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [asyncio.Event()])
    left: list[BaseException] = []

    def around(next_call: Any, **kwargs: Any) -> Any:
        try:
            return next_call()
        except BaseException as exc:
            left.append(exc)
            raise

    bench.hooks.middleware.add("llm_execution", around, "p")

    async def work() -> Any:
        talk, events = await bench.open(), []
        async for event in talk.turn("hi"):
            events.append(event)
            talk.interrupt()
        return events[-1], [m.text for m in talk.history]

    end, history = await bench.run(work())
    assert end.reason == "interrupted"
    assert history == ["hi", "started\n\n[interrupted by the user]"]


async def test_as_many_requests_inside_middleware_as_there_are_workers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["answer"] * 40)
    bench.hooks.middleware.add("llm_execution", lambda next_call, **kw: next_call(), "p")

    async def work() -> list[str]:
        async def one() -> str:
            return (await events_of(await bench.open(), "hi"))[-1].text

        return await asyncio.gather(*(one() for _ in range(40)))

    assert await bench.run(work()) == ["answer"] * 40


async def test_a_tool_call_bears_the_id_of_the_request_that_asked_for_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[ToolCall("c1", "echo", "{}")], "done"])
    ids: list[str] = []
    bench.hooks.middleware.add("llm_request", lambda api_request_id, **kw: ids.append(api_request_id), "p")
    bench.hooks.add("pre_tool_call", lambda api_request_id, **kw: ids.append(api_request_id), "p")
    await say(bench)

    assert len(ids) == 3
    assert ids[0] == ids[1] != ids[2]
