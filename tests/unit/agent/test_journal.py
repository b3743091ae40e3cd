"""The step journal: a turn that a crash cut off goes on at its step, and no call runs twice without notice."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message, Notice, ToolFinished, TurnEvent, TurnFinished
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.sessions import SessionCommit, Transcript
from unit.agent.test_turn import ECHO, Bench, call, events_of

DEAD = "1:1"
"""A process that is no more: nobody but the init process has that number, and it began otherwise."""


def snapshot(path: Path) -> None:
    """Copy the state as a crash would leave it now."""
    with closing(sqlite3.connect(path / "state.db")) as db:
        db.execute("VACUUM INTO ?", (str(path / "copy.db"),))
    with closing(sqlite3.connect(path / "copy.db")) as db, db:
        db.execute("UPDATE turns SET process = ?", (DEAD,))


def fall_back(path: Path) -> None:
    """Put the copy in the place of the state."""
    (path / "copy.db").replace(path / "state.db")
    for file in path.glob("state.db-*"):  # also those of a connection that was opened last
        file.unlink()


def register(bench: Bench, name: str, handler: Any, **details: Any) -> None:
    bench.tools.register(name, "test", {**ECHO, "name": name}, handler, owner=Owner(BUILTIN), **details)


async def crashed(path: Path, steps: list[Any], stop: Any, **details: Any) -> None:
    """Leave a session `s1` whose turn was cut off when `stop(event)` was true first."""
    bench = Bench(path, steps)
    register(bench, "slow", bench._echo, **details)

    async def work() -> None:
        talk = await bench.open("s1")
        async with aclosing(talk.turn("go")) as events:  # else it would end beside the bench, and open the state again
            async for event in events:
                if stop(event):
                    snapshot(path)
                    return

    await bench.run(work())
    fall_back(path)


async def resumed(bench: Bench) -> list[TurnEvent]:
    async def work() -> list[TurnEvent]:
        (left,) = await bench.agent.unfinished_turns()
        talk = await bench.open(left.session_id, principal=left.principal)
        return [event async for event in talk.resume_turn()]

    events: list[TurnEvent] = await bench.run(work())
    return events


def stored(path: Path) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in Transcript(path / "state.db").messages("s1")]


def states(path: Path) -> list[str]:
    with closing(sqlite3.connect(path / "state.db")) as db:
        return [row[0] for row in db.execute("SELECT state FROM turns ORDER BY started_at")]


def started(event: TurnEvent) -> bool:
    return type(event).__name__ == "ToolStarted"


def finished(event: TurnEvent) -> bool:
    return isinstance(event, ToolFinished)


async def test_a_call_of_unknown_end_is_not_run_again_and_model_and_person_are_told(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow"), call(2, "c2")], "never"], started)
    bench = Bench(tmp_path, ["I see."])
    register(bench, "slow", bench._echo)
    events = await resumed(bench)
    assert [kw["args"] for kw in bench.seen] == [{"n": 2}]  # the second one never began: it runs
    told = [e.text for e in events if isinstance(e, Notice)]
    assert told == ["The agent was restarted while slow ran. Whether it took effect is unknown; it is not run again."]
    sent = bench.model.requests[0].messages
    assert [m.role for m in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert "The end of this call is unknown" in sent[3].text
    assert sent[4].text == '{"echo": 2}'
    assert isinstance(events[-1], TurnFinished)
    assert (events[-1].text, events[-1].reason) == ("I see.", "answered")
    assert events[-1].turn_id
    assert states(tmp_path) == ["answered"]
    assert [role for role, _ in stored(tmp_path)] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_a_call_of_a_tool_that_is_declared_idempotent_is_run_again(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow")], "never"], started)
    bench = Bench(tmp_path, ["done"])
    register(bench, "slow", bench._echo, idempotent=True)
    events = await resumed(bench)
    assert not [e for e in events if isinstance(e, Notice)]
    assert [kw["args"] for kw in bench.seen] == [{"n": 1}]


async def test_a_result_that_was_there_is_not_asked_for_again(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow")], "never"], finished)
    bench = Bench(tmp_path, ["done"])
    register(bench, "slow", bench._echo)
    events = await resumed(bench)
    assert bench.seen == []
    assert [type(e).__name__ for e in events if not isinstance(e, TurnFinished)] == ["TextDelta"]
    assert bench.model.requests[0].messages[-1].text == '{"echo": 1}'


async def test_results_of_calls_that_ran_at_once_survive_each_by_itself(tmp_path: Path) -> None:
    calls = [call(1, "c1", "slow"), call(2, "c2", "slow")]
    await crashed(tmp_path, [calls, "never"], finished, parallel_safe=True)
    bench = Bench(tmp_path, ["done"])
    register(bench, "slow", bench._echo, parallel_safe=True)
    await resumed(bench)
    assert bench.seen == []
    sent = bench.model.requests[0].messages
    known = [m.text for m in sent if m.role == "tool"]
    assert len(known) == 2
    assert {'{"echo": 1}', '{"echo": 2}'} & set(known)
    assert [m.tool_call_id for m in sent if m.role == "tool"] == ["c1", "c2"]


async def test_an_answer_that_was_there_is_given_without_asking_the_model(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello"])

    def crash(**kwargs: Any) -> None:
        snapshot(tmp_path)

    bench.hooks.add("transform_llm_output", crash, "observer")

    async def work() -> None:
        await events_of(await bench.open("s1"), "hi")

    await bench.run(work())
    fall_back(tmp_path)
    again = Bench(tmp_path, [])
    (end,) = await resumed(again)
    assert isinstance(end, TurnFinished)
    assert (end.text, end.reason, end.usage.total_tokens) == ("hello", "answered", 12)
    assert again.model.requests == []
    assert stored(tmp_path) == [("user", "hi"), ("assistant", "hello")]


async def test_a_new_message_closes_the_turn_that_was_cut_off_and_tells_what_is_unknown(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow"), call(2, "c2")], "never"], started)
    bench = Bench(tmp_path, ["fine"])

    async def work() -> list[TurnEvent]:
        talk = await bench.open("s1")
        events = await events_of(talk, "never mind")
        assert [e async for e in talk.resume_turn()] == []
        return events

    events = await bench.run(work())
    assert bench.seen == []
    assert [e.text for e in events if isinstance(e, Notice)] == [
        "The agent was restarted while slow ran. Whether it took effect is unknown; it is not run again."
    ]
    sent = bench.model.requests[0].messages
    assert [m.role for m in sent] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert "end of this call is unknown" in sent[3].text
    assert "not run: the agent was restarted" in sent[4].text
    assert states(tmp_path) == ["given_up", "answered"]


async def test_a_turn_that_runs_in_another_process_is_nobody_elses_business(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow")], "never"], started)
    alive = "1:" + (Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19])
    with closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("UPDATE turns SET process = ?", (alive,))
    bench = Bench(tmp_path, [])

    async def work() -> None:
        assert await bench.agent.unfinished_turns() == []
        talk = await bench.open("s1")
        assert [e async for e in talk.resume_turn()] == []

    await bench.run(work())
    assert states(tmp_path) == ["running"]


async def test_a_message_that_is_said_again_after_an_error_goes_on_where_its_turn_stopped(tmp_path: Path) -> None:
    refused = ModelError("auth", "no")
    bench = Bench(tmp_path, [refused, [call(1)], refused, "done", "more"])

    async def said(talk: Any, text: str, since: int) -> str:
        try:
            events = [event async for event in talk.turn_once(text, since=since)]
            return events[-1].text if events else ""
        except ModelError:
            return "failed"

    async def work() -> list[str]:
        talk = await bench.open("s1")
        answers = [await said(talk, "go", 0) for _ in range(4)]
        last = await bench.agent.call_transcript("last_id", "s1")
        return [*answers, await said(talk, "go", last), await said(talk, "go", 0), await said(talk, "", last + 2)]

    assert await bench.run(work()) == ["failed", "failed", "done", "done", "more", "done\n\nmore", ""]
    assert len(bench.seen) == 1
    assert [role for role, _ in stored(tmp_path)] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert states(tmp_path) == ["answered", "answered"]


async def test_what_a_job_told_the_session_meanwhile_is_no_answer_to_a_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hi", "In Rome."])

    async def work() -> list[TurnEvent]:
        talk = await bench.open("s1")
        await events_of(talk, "hello")
        since = await bench.agent.call_transcript("last_id", "s1")
        await bench.agent.call_transcript(
            "append", "s1", [Message("user", "[a job]"), Message("assistant", "It snows.")]
        )
        return [event async for event in talk.turn_once("where?", since=since)]

    assert (await bench.run(work()))[-1].text == "In Rome."


async def test_what_plugins_add_to_the_message_is_asked_for_again(tmp_path: Path) -> None:
    await crashed(tmp_path, [[call(1, "c1", "slow")], "never"], finished)
    bench = Bench(tmp_path, ["done"])
    bench.hooks.add("pre_llm_call", lambda user_message, **kw: f"about {user_message}", "memory")
    await resumed(bench)
    assert bench.model.requests[0].messages[1].content == "go\n\nabout go"


async def test_one_commit_a_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "done"])
    commits: list[SessionCommit] = []

    class Counted(Transcript):
        def write(self, steps: Sequence[tuple[str, SessionCommit]]) -> list[Exception | None]:
            commits.extend(step for _, step in steps)
            return super().write(steps)

    bench.agent.open_transcript = lambda: Counted(tmp_path / "state.db")

    async def work() -> None:
        await events_of(await bench.open("s1"), "go")

    await bench.run(work())
    assert len(commits) == 4  # the message, the intent of the call, its result, the answer with the end


async def test_a_turn_whose_reader_went_away_is_closed_by_the_next_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "never", "on"])

    async def work() -> None:
        talk = await bench.open("s1")
        events = talk.turn("go")
        await anext(events)
        await events.aclose()
        await events_of(talk, "again")

    await bench.run(work())
    assert states(tmp_path) == ["cancelled", "answered"]


@pytest.mark.parametrize("keep", [True, False])
async def test_usage_is_written_down_with_its_turn_also_where_nothing_else_is_stored(
    tmp_path: Path, keep: bool
) -> None:
    bench = Bench(tmp_path, [[call(1)], "done"])

    async def work() -> None:
        await events_of(await bench.open("s1" if keep else None, keep=keep), "go")

    await bench.run(work())
    spent = Transcript(tmp_path / "state.db").usage()
    assert (spent.requests, spent.input_tokens, spent.output_tokens, spent.unpriced) == (2, 20, 4, 2)
