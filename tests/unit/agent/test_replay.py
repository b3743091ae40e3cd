"""A stored session is run again, offline, and its requests are compared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.agent.replay import ReplayResult, replay_session
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import TextDelta, ToolCall, ToolStarted
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.sessions import Transcript
from unit.agent.test_turn import ECHO, Bench, call, events_of


async def again(path: Path) -> list[ReplayResult]:
    return await replay_session(Transcript(path / "state.db"), "s1")


async def test_every_request_of_every_turn_is_the_same_again(tmp_path: Path) -> None:
    steps = [
        *([call(1), call(2, "c2")], "one"),
        *([ToolCall("c1", "echo", "{broken"), call(1, "c2", "unknown")], [call(3)], "two"),
        ModelError("refused", "no"),
        *([call(5, name="say")], "three", "four"),
        *([call(n, f"c{n}") for n in range(1)], [call(8)], "the last word"),
    ]
    bench = Bench(tmp_path, steps, max_turns=4)

    def say(args: dict[str, Any], **kwargs: Any) -> str:
        return bench.agent.injected.push("Steered.", kwargs["session_id"])

    bench.tools.register("say", "test", {**ECHO, "name": "say"}, say, owner=Owner(BUILTIN))
    bench.hooks.add("pre_llm_call", lambda user_message, **kw: f"about {user_message}", "memory")

    async def work() -> None:
        talk = await bench.open("s1")
        await events_of(talk, "first")
        await events_of(talk, "second")
        with pytest.raises(ModelError):
            await events_of(talk, "third")
        async for event in talk.turn("fourth"):
            if event == TextDelta("three"):
                bench.agent.injected.push("More.", "s1")
        await events_of(talk, "fifth")

    await bench.run(work())
    turns = await again(tmp_path)
    assert [t.requests for t in turns] == [2, 3, 1, 3, 3]
    assert [(t.differing, t.problem) for t in turns] == [((), "")] * 5
    assert [t.changed for t in turns] == [tuple((n, ("memory",)) for n in range(1, t.requests + 1)) for t in turns]


async def test_the_last_answer_of_a_spent_budget_is_the_same_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], [call(2)], "the last word"], max_turns=2)

    async def work() -> None:
        await events_of(await bench.open("s1"), "go")

    await bench.run(work())
    (turn,) = await again(tmp_path)
    assert (turn.requests, turn.differing) == (3, ())


async def test_an_interrupted_turn_is_the_same_as_far_as_it_went(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1), call(2)], "on"])

    async def work() -> None:
        talk = await bench.open("s1")
        async for event in talk.turn("go"):
            if isinstance(event, ToolStarted):
                talk.interrupt()
        await events_of(talk, "again")

    await bench.run(work())
    assert [(t.requests, t.differing) for t in await again(tmp_path)] == [(1, ()), (1, ())]


async def test_a_word_that_changed_in_the_transcript_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "one", "two"])

    async def work() -> None:
        talk = await bench.open("s1")
        await events_of(talk, "first")
        await events_of(talk, "second")

    await bench.run(work())
    with closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("UPDATE messages SET content = '{\"echo\": 2}' WHERE role = 'tool'")
    assert [(t.requests, t.differing) for t in await again(tmp_path)] == [(2, (2,)), (1, (1,))]


async def test_a_replay_leaves_the_state_as_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "one"])

    async def work() -> None:
        await events_of(await bench.open("s1"), "first")

    await bench.run(work())

    def dump() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "state.db")) as db:
            return list(db.iterdump())

    before = dump()
    await again(tmp_path)
    assert dump() == before
    assert len(bench.seen) == 1
