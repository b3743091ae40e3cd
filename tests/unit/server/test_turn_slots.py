"""Who runs when: one turn per session, so many at once, an end in order."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from hermes_agent.core.messages import TextDelta, ToolStarted
from unit.server.scripted_door import LIMIT_S, Gate, Running, ScriptedAgent, ScriptedTalk, serving


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


async def ask(running: Running, text: str, session: str | None = None, **more: Any) -> httpx.Response:
    headers = running.headers | ({"X-Hermes-Session-Id": session} if session else {})
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        return await http.post(f"{running.url}/v1/chat/completions", json=body(text, **more), headers=headers)


async def until(condition: Any) -> None:
    """Let the server work until `condition()` holds."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the server brings no event for each of these
            await asyncio.sleep(0)


def said(response: httpx.Response) -> str:
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


async def test_requests_for_one_session_run_one_after_another_in_their_order() -> None:
    async def run() -> tuple[list[str], int, list[str]]:
        gate = Gate()
        async with serving(gate.play) as running, asyncio.TaskGroup() as group:
            tasks = []
            for i in range(4):
                tasks.append(group.create_task(ask(running, f"q{i}", "one")))
                await until(lambda i=i: running.turns.running + running.turns.waiting == i + 1)
            gate.go.set()
            answers = [said(await task) for task in tasks]
            return answers, gate.most, running.agent.stored["one"]

    questions = ["q0", "q1", "q2", "q3"]
    assert await run() == (questions, 1, questions)


async def test_different_sessions_and_requests_without_one_run_side_by_side() -> None:
    async def run() -> int:
        gate = Gate()
        async with serving(gate.play) as running, asyncio.TaskGroup() as group:
            for session in ("a", "b", None, None):
                group.create_task(ask(running, "q", session))
            for _ in range(4):
                await asyncio.wait_for(gate.begun.get(), LIMIT_S)
            gate.go.set()
        return gate.most

    assert await run() == 4


async def test_no_more_turns_run_at_once_than_set_and_too_many_waiting_are_told_to_come_back() -> None:
    async def run() -> tuple[httpx.Response, list[int], int]:
        gate = Gate()
        async with (
            serving(gate.play, max_concurrent_turns=2, max_queued_turns=2) as running,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(ask(running, f"q{i}")) for i in range(4)]
            await until(lambda: (running.turns.running, running.turns.waiting) == (2, 2))
            refused = await ask(running, "one too many")
            gate.go.set()
            return refused, [(await task).status_code for task in tasks], gate.most

    refused, statuses, most = await run()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert int(refused.headers["retry-after"]) > 0
    assert (statuses, most) == ([200] * 4, 2)


async def test_too_many_waiting_for_one_session_are_refused_and_others_are_not() -> None:
    async def run() -> tuple[httpx.Response, int]:
        gate = Gate()
        async with serving(gate.play, max_queued_per_session=1) as running, asyncio.TaskGroup() as group:
            group.create_task(ask(running, "q0", "one"))
            group.create_task(ask(running, "q1", "one"))
            await until(lambda: (running.turns.running, running.turns.waiting) == (1, 1))
            refused = await ask(running, "q2", "one")
            other = group.create_task(ask(running, "q", "two"))
            await until(lambda: running.turns.running == 2)
            gate.go.set()
            return refused, (await other).status_code

    refused, other = await run()
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "session_busy")
    assert "retry-after" in refused.headers
    assert other == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_that_goes_away_interrupts_its_turn(stream: bool) -> None:
    async def run() -> tuple[int, list[tuple[str, str]]]:
        gate = Gate(first=[TextDelta("I am "), ToolStarted("c1", "terminal", {})])
        async with serving(gate.play) as running:
            task = asyncio.create_task(ask(running, "q", "one", stream=stream))
            await asyncio.wait_for(gate.begun.get(), LIMIT_S)
            task.cancel()
            await asyncio.wait_for(gate.interrupted.wait(), 1.0)  # promised: within a second
            await until(lambda: not running.turns.running)
            return running.turns.waiting, running.agent.closed

    assert await run() == (0, [("one", "session_boundary")])


async def test_a_caller_that_goes_away_while_it_waits_leaves_the_queue_and_no_turn_runs_for_it() -> None:
    async def run() -> list[str]:
        gate = Gate()
        async with serving(gate.play) as running, asyncio.TaskGroup() as group:
            group.create_task(ask(running, "first", "one"))
            await until(lambda: running.turns.running == 1)
            leaving = asyncio.create_task(ask(running, "left", "one"))
            await until(lambda: running.turns.waiting == 1)
            last = group.create_task(ask(running, "last", "one"))
            await until(lambda: running.turns.waiting == 2)
            leaving.cancel()
            await until(lambda: running.turns.waiting == 1)
            gate.go.set()
            await last
            return running.agent.stored["one"]

    assert await run() == ["first", "last"]


async def test_a_turn_that_cannot_be_interrupted_is_cancelled() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def deaf(talk: ScriptedTalk, content: Any) -> Any:
        try:
            yield TextDelta("I do not listen")
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def run() -> int:
        async with serving(deaf, grace_s=0.05) as running:
            task = asyncio.create_task(ask(running, "q"))
            await asyncio.wait_for(begun.wait(), LIMIT_S)
            task.cancel()
            await asyncio.wait_for(cancelled.wait(), LIMIT_S)
            await until(lambda: not running.turns.running)
            return len(running.agent.closed)

    assert await run() == 1


async def test_at_the_end_running_turns_finish_and_new_ones_are_refused() -> None:
    async def run() -> tuple[list[httpx.Response], bool]:
        gate = Gate()
        async with serving(gate.play, drain_timeout_s=60.0) as running, asyncio.TaskGroup() as group:
            first = group.create_task(ask(running, "first", "one"))
            await until(lambda: running.turns.running == 1)
            waiting = group.create_task(ask(running, "second", "one"))
            await until(lambda: running.turns.waiting == 1)
            running.stop.set()
            await until(lambda: running.turns.is_closed)
            async with httpx.AsyncClient(timeout=LIMIT_S) as http:
                health, ready = await http.get(f"{running.url}/health"), await http.get(f"{running.url}/ready")
            refused = await ask(running, "new")
            early = running.ended.is_set()
            gate.go.set()
            await asyncio.wait_for(running.ended.wait(), LIMIT_S)
            return [await first, await waiting, refused, health, ready], early

    (first, waiting, refused, health, ready), early = await run()
    assert not early
    assert said(first) == "first"
    assert (waiting.status_code, refused.status_code) == (503, 503)
    assert "retry-after" in refused.headers and "retry-after" in waiting.headers
    assert (health.status_code, health.json()["status"]) == (200, "draining")
    assert (ready.status_code, ready.json()["status"]) == (503, "draining")


@pytest.mark.parametrize("hurry", [False, True])
async def test_a_turn_that_does_not_finish_in_time_is_interrupted_and_its_caller_is_told(hurry: bool) -> None:
    async def run() -> tuple[httpx.Response, str, bool]:
        gate = Gate(first=[ToolStarted("c1", "terminal", {})])
        async with (
            serving(gate.play, drain_timeout_s=60.0 if hurry else 0.0) as running,
            asyncio.TaskGroup() as group,
        ):
            whole = group.create_task(ask(running, "q"))
            stream = group.create_task(ask(running, "q", stream=True))
            await until(lambda: gate.begun.qsize() == 2)
            running.stop.set()
            if hurry:
                running.hurry.set()
            await asyncio.wait_for(running.ended.wait(), LIMIT_S)
            return await whole, (await stream).text, gate.interrupted.is_set()

    whole, stream, interrupted = await run()
    assert interrupted
    assert (whole.status_code, whole.json()["error"]["code"]) == (503, "interrupted")
    assert whole.headers["x-should-retry"] == "false"  # a tool had run
    assert '"code":"interrupted"' in stream
    assert "[DONE]" not in stream


async def test_a_stop_without_turns_is_quick_and_closes_idle_connections() -> None:
    async def run() -> tuple[bytes, bool]:
        async with serving(Gate().play, drain_timeout_s=60.0) as running:
            host, port = running.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await reader.readuntil(b"}")
            running.stop.set()
            rest = await asyncio.wait_for(reader.read(), LIMIT_S)
            await asyncio.wait_for(running.ended.wait(), LIMIT_S)
            with pytest.raises(OSError):
                await asyncio.open_connection(host, int(port))
            writer.close()
            return rest, running.ended.is_set()

    assert await run() == (b"", True)


async def test_an_agent_that_cannot_close_a_session_is_logged_and_the_answer_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unclosable(ScriptedAgent):
        async def open(self, *args: Any, **kwargs: Any) -> ScriptedTalk:
            talk = await super().open(*args, **kwargs)

            async def close(reason: str) -> None:
                raise OSError("disk full")

            talk.close = close  # type: ignore[method-assign]
            return talk

    async def run() -> httpx.Response:
        gate = Gate()
        gate.go.set()
        async with serving(Unclosable(gate.play)) as running:
            return await ask(running, "q")

    assert said(await run()) == "q"
    assert "disk full" in caplog.text
