"""The calls of one answer: at once where that is safe, repetition, budgets, questions of a turn that was stopped."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.messages import Notice, ToolCall, ToolFinished, ToolStarted, TurnEvent, TurnFinished
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.policy import Choice, Refusal
from hermes_agent.tools.call_scope import may_run_in_parallel
from unit.agent.test_turn import ECHO, Bench, call, events_of

LIMIT_S = 10


def register(bench: Bench, name: str, handler: Any, owner: str = BUILTIN, **details: Any) -> None:
    bench.tools.register(name, "test", {**ECHO, "name": name}, handler, owner=Owner(owner), **details)


def results(bench: Bench, request: int) -> list[str]:
    return [m.text for m in bench.model.requests[request].messages if m.role == "tool"]


def together(bench: Bench, *calls: tuple[str, dict[str, Any]], cwd: Path = Path("/w")) -> bool:
    return may_run_in_parallel(bench.tools, calls, cwd)


async def test_calls_of_readers_run_at_once_and_their_results_keep_the_order_of_the_calls(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, "a", "read_file"), call(2, "b", "read_file")], "read"])
    second_done = threading.Event()

    def read(args: dict[str, Any], **kwargs: Any) -> str:
        if args["n"] == 1:
            assert second_done.wait(LIMIT_S)  # the first one ends after the second
        return json.dumps({"n": args["n"]})

    register(bench, "read_file", read)

    async def work() -> list[TurnEvent]:
        events = []
        async for event in (await bench.open()).turn("read both"):
            events.append(event)
            if isinstance(event, ToolFinished) and event.call_id == "b":
                second_done.set()
        return events

    events = await bench.run(work())
    order = [(type(e), e.call_id) for e in events if isinstance(e, ToolStarted | ToolFinished)]
    assert order == [(ToolStarted, "a"), (ToolStarted, "b"), (ToolFinished, "b"), (ToolFinished, "a")]
    assert results(bench, 1) == ['{"n": 1}', '{"n": 2}']


def test_only_readers_different_files_and_declared_tools_run_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])
    for name in ("read_file", "write_file", "terminal"):
        register(bench, name, bench._echo)
    register(bench, "web_search", bench._echo, "a_plugin")
    register(bench, "declared", bench._echo, "a_plugin", parallel_safe=True)
    register(bench, "per_file", bench._echo, "a_plugin", parallel_safe=lambda args: args["path"])
    read, write = ("read_file", {"path": "a"}), ("write_file", {"path": "a"})
    assert not together(bench, read)
    assert together(bench, read, read)
    assert together(bench, read, ("write_file", {"path": "b"}), write)
    assert not together(bench, write, ("write_file", {"path": "../w/./a"}))
    assert not together(bench, read, ("terminal", {}))
    assert not together(bench, read, ("web_search", {}))  # a plugin's, that said nothing
    assert together(bench, read, ("declared", {}))
    assert not together(bench, ("per_file", {"path": "a"}), write)
    assert not together(bench, read, ("per_file", {}))  # its function fails
    assert not together(bench, read, ("unknown", {}))


async def test_calls_that_run_at_once_are_told_to_stop_when_their_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_CONCURRENT_TOOL_TIMEOUT_S", "1")
    bench = Bench(tmp_path, [[call(1, "a", "quick"), call(2, "b", "slow")], "well"])
    told, over = threading.Event(), threading.Event()

    def slow(args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.tools import current_scope

        scope = current_scope.get()
        assert scope is not None
        if scope.cancelled.wait(LIMIT_S):
            told.set()
            over.wait(LIMIT_S)
        return "{}"

    register(bench, "quick", bench._echo, parallel_safe=True)
    register(bench, "slow", slow, parallel_safe=True)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    assert [(e.call_id, e.status) for e in events if isinstance(e, ToolFinished)] == [("a", "ok"), ("b", "timeout")]
    assert results(bench, 1)[0] == '{"echo": 1}'
    assert "did not end within 1 s" in results(bench, 1)[1]
    assert told.wait(LIMIT_S)
    over.set()


async def test_an_interrupt_reaches_all_calls_that_run_at_once_and_keeps_what_is_done(tmp_path: Path) -> None:
    calls = [call(1, "a", "quick"), call(2, "b", "slow"), call(3, "c", "slow")]
    bench = Bench(tmp_path, [calls, "on"])

    def slow(args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.tools import current_scope

        scope = current_scope.get()
        assert scope is not None
        return json.dumps({"error": "stopped"}) if scope.cancelled.wait(LIMIT_S) else "{}"

    register(bench, "quick", bench._echo, parallel_safe=True)
    register(bench, "slow", slow, parallel_safe=True)

    async def work() -> list[TurnEvent]:
        talk = await bench.open()
        events = []
        async for event in talk.turn("go"):
            events.append(event)
            if isinstance(event, ToolFinished) and event.call_id == "a":
                talk.interrupt()
        await events_of(talk, "again")
        return events

    events = await bench.run(work())
    ended = {e.call_id: e.status for e in events if isinstance(e, ToolFinished)}
    assert ended == {"a": "ok", "b": "cancelled", "c": "cancelled"}
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].reason == "interrupted"
    sent = bench.model.requests[1].messages
    assert [(m.role, m.tool_call_id) for m in sent[2:6]] == [
        ("assistant", ""),
        ("tool", "a"),
        ("tool", "b"),
        ("tool", "c"),
    ]


async def test_three_identical_calls_bring_a_notice_and_the_fifth_ends_the_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [*([call(1, f"c{n}")] for n in range(1, 6)), "never asked"])

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    assert len(bench.seen) == 4
    noticed = ["Notice: this is call" in text for text in results(bench, 4)]
    assert noticed == [False, False, True, True]
    end = events[-1]
    assert isinstance(end, TurnFinished)
    assert (end.reason, end.text) == (
        "stopped",
        "I stopped: I was about to call echo with the same arguments for the 5th time in a row.",
    )
    assert len(bench.model.requests) == 5


async def test_a_call_with_other_arguments_between_them_starts_the_count_anew(tmp_path: Path) -> None:
    steps = [[call(1, "a")], [call(1, "b")], [call(2, "c")], [call(1, "d"), call(1, "e")], "fine"]
    bench = Bench(tmp_path, steps)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    assert (await bench.run(work()))[-1].reason == "answered"
    assert not any("Notice" in text for text in results(bench, 4))


async def test_five_identical_calls_in_one_answer_are_counted_like_those_of_five(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, f"c{n}") for n in range(7)], "on we go"])

    async def work() -> list[TurnEvent]:
        talk = await bench.open()
        events = await events_of(talk, "go")
        await events_of(talk, "and?")
        return events

    events = await bench.run(work())
    assert len(bench.seen) == 4
    assert [e.status for e in events if isinstance(e, ToolFinished)] == [*["ok"] * 4, *["cancelled"] * 3]
    assert len(results(bench, 1)) == 7


async def test_repetition_can_be_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [*([call(1, f"c{n}")] for n in range(7)), "done"], notice_after=0, end_after=0)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    assert (await bench.run(work()))[-1].reason == "answered"
    assert len(bench.seen) == 7
    assert set(results(bench, 7)) == {'{"echo": 1}'}


async def test_the_tokens_of_a_turn_are_a_budget_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], [call(2)], "that is all"], max_turn_tokens=24)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    assert [e.text for e in events if isinstance(e, Notice)] == [
        "The limit of 24 tokens for a turn is reached; asking for a last answer."
    ]
    assert (events[-1].reason, events[-1].text) == ("budget", "that is all")
    assert list(bench.model.requests[2].tools) == []


async def test_what_is_said_while_the_budget_runs_out_reaches_the_last_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, name="say")], "tea"], max_turns=1)

    def say(args: dict[str, Any], **kwargs: Any) -> str:
        return str(bench.agent.injected.push("Tea, please.", kwargs["session_id"]))

    register(bench, "say", say)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open("s1"), "coffee")

    await bench.run(work())
    assert "Tea, please." in bench.model.requests[1].messages[-1].text


async def test_the_questions_of_an_interrupted_turn_are_closed_at_once(tmp_path: Path) -> None:
    calls = [call(1, "a", "danger"), call(2, "b", "danger")]
    bench = Bench(tmp_path, [calls, "fine"], approval_timeout_s=3600)
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    bench.hooks.add("post_approval_response", lambda choice, **kw: told.put(choice), "observer")

    class Person:
        def __init__(self) -> None:
            self.asked, self.gone = asyncio.Event(), asyncio.Event()

        async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
            self.asked.set()
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                self.gone.set()

    def ask(args: dict[str, Any]) -> ApprovalRequest:
        return ApprovalRequest("danger", "break something", "it", "danger")

    register(bench, "danger", bench._echo, approval=ask, parallel_safe=True)

    async def work() -> list[TurnEvent]:
        person = Person()
        talk = await bench.agent.open(platform="cli", approver=person)
        events: list[TurnEvent] = []

        async def turn() -> None:
            async for event in talk.turn("go"):
                events.append(event)

        running = asyncio.ensure_future(turn())
        await asyncio.wait_for(person.asked.wait(), LIMIT_S)
        talk.interrupt()
        await asyncio.wait_for(person.gone.wait(), LIMIT_S)
        await running
        return events

    events = await bench.run(work())
    assert events[-1].reason == "interrupted"
    assert bench.seen == []
    assert told.get(timeout=LIMIT_S) == "deny"


async def test_nobody_is_asked_for_a_turn_that_was_interrupted_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, "a", "danger")], "fine"], approval_timeout_s=3600)
    guarding, go_on, given_up = threading.Event(), threading.Event(), threading.Event()
    asked: list[ApprovalRequest] = []

    class Person:
        async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
            asked.append(request)
            return "once"

    def ask(args: dict[str, Any]) -> ApprovalRequest:
        guarding.set()
        assert go_on.wait(LIMIT_S)
        given_up.set()
        return ApprovalRequest("danger", "break something", "it", "danger")

    register(bench, "danger", bench._echo, approval=ask)

    async def work() -> list[TurnEvent]:
        talk = await bench.agent.open(platform="cli", approver=Person())
        turn = asyncio.ensure_future(events_of(talk, "go"))
        await asyncio.to_thread(guarding.wait, LIMIT_S)
        talk.interrupt()
        events = await turn
        go_on.set()
        await asyncio.to_thread(given_up.wait, LIMIT_S)
        await events_of(talk, "and now?")
        return events

    assert (await bench.run(work()))[-1].reason == "interrupted"
    assert (asked, bench.seen) == ([], [])


async def test_arguments_that_do_not_parse_are_repetition_when_they_are_the_same(tmp_path: Path) -> None:
    steps = [[ToolCall(f"c{n}", "echo", "{n: 1")] for n in range(5)]
    bench = Bench(tmp_path, [*steps, "never"])

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    assert (await bench.run(work()))[-1].reason == "stopped"
