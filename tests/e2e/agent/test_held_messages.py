"""What a conversation holds, and what a turn does, depends on what its model sees, not on how long the session is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.agent.test_compaction import SCHEMA, Model, hosted
from hermes_agent.agent.session_lifecycle import TitleWriter
from hermes_agent.agent.settings import CompressionSettings
from hermes_agent.testing import ModelFailure, call
from unit.agent.test_long_conversations import counting
from unit.agent.test_turn import Bench, events_of

CONSTANT = {"prompt_tokens": 95, "completion_tokens": 5, "total_tokens": 100}
SMALL = CompressionSettings()._replace(protect_first_n=1, protect_last_n=4)._asdict()
SAID = "word " * 200
WINDOW = 8000


def notebook(ctx: Any) -> None:
    ctx.register_tool("fetch", "test", SCHEMA, lambda args, **kw: "page " * 40)


def asked(model: Model) -> list[int]:
    """Return how many messages each request had."""
    return [len(request["messages"]) for request in model.requests]


def test_a_server_that_reports_a_constant_usage_does_not_keep_a_conversation_from_becoming_shorter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns, held = 60, []
    model = Model(*["answer"] * turns, usage=CONSTANT)
    with hosted(model, length=WINDOW, compression=SMALL) as host:
        for n in range(turns):
            host.ask(f"question {n} {SAID}")
            held.append(len(host.conversation.history))
        session = host.conversation.session_id
        transcript = host.host.open_transcript()
        assert len([m for m in transcript.messages(session) if m.role == "user"]) == turns  # all of it is in the store
        assert len(transcript.history(session)) == held[-1]
        transcript.close()
    most = max(held[: turns // 2])
    assert max(held[turns // 2 :]) <= most < turns
    assert max(asked(model)[turns // 2 :]) <= most + 1
    said = [r.message for r in caplog.records if "reported 100 tokens" in r.message]
    assert len(said) == 1


def test_a_usage_that_can_be_right_is_believed() -> None:
    """Few tokens for much text: the words are long, and the count of them is what the server says."""
    model = Model(*["answer"] * 8, usage={"prompt_tokens": 1900, "completion_tokens": 10, "total_tokens": 1910})
    with hosted(model, length=WINDOW, compression=SMALL) as host:
        for n in range(8):
            host.ask(f"question {n} " + "extraordinarily " * 40)
    assert model.summaries == []


def test_without_a_summary_a_conversation_does_not_outgrow_the_window_of_a_server_that_never_refuses() -> None:
    turns, held = 60, []
    model = Model(*["answer"] * turns, usage=CONSTANT)
    model.no_summary = ModelFailure("no", 500)
    with hosted(model, length=WINDOW, compression=SMALL) as host:
        for n in range(turns):
            host.ask(f"question {n} {SAID}")
            held.append(len(host.conversation.history))
    assert max(held) < turns
    assert max(held[turns // 2 :]) <= max(held[: turns // 2])


async def test_a_model_that_makes_conversations_fit_by_itself_is_held_no_more_than_it_can_see(tmp_path: Path) -> None:
    turns, held = 80, []
    bench = Bench(tmp_path, ["answer"] * turns)
    bench.model.fits_within = 1000

    async def work() -> list[str]:
        talk = await bench.open("s1")
        for n in range(turns):
            await events_of(talk, f"question {n} {SAID}")
            held.append(len(talk.history))
        again = await bench.open("s1")
        assert len(again.history) == held[-1]
        assert again.history[0].role == "user"
        return [m.text for m in await bench.agent.call_transcript("messages", "s1") if m.role == "user"]

    stored = await bench.run(work())
    assert [text.split(" word")[0] for text in stored] == [f"question {n}" for n in range(turns)]
    assert max(held) < 40
    assert "question 79" in bench.model.requests[-1].messages[-1].text


async def test_a_turn_that_is_longer_than_what_is_held_is_not_cut(tmp_path: Path) -> None:
    steps: list[Any] = [[call("echo", n="x" * 900)] for _ in range(12)]
    bench = Bench(tmp_path, ["old", *steps, "done"])
    bench.model.fits_within = 300

    def steer(**kwargs: Any) -> None:
        if len(bench.seen) == 3:
            bench.agent.injected.push("Be quick", "s1")

    bench.hooks.add("post_tool_call", steer, "test")

    async def work() -> None:
        talk = await bench.open("s1")
        await events_of(talk, SAID)
        await events_of(talk, "the long task")

    await bench.run(work())
    assert all(any(m.text == "the long task" for m in r.messages) for r in bench.model.requests[1:])
    assert any(m.text == "Be quick" for m in bench.model.requests[-1].messages)


async def test_every_turn_can_be_undone_also_one_in_which_older_ones_were_left_to_the_store(tmp_path: Path) -> None:
    turns, cut = 12, 0
    bench = Bench(tmp_path, ["answer"] * 2 * turns)
    bench.model.fits_within = 300

    async def work() -> None:
        nonlocal cut
        talk = await bench.open("s1")
        for n in range(turns):
            before = talk.history
            await events_of(talk, f"question {n} {SAID}")
            cut += talk.history[0] is not before[0] if before else 0
            undone = await bench.agent.call_transcript("drop_last_turn", "s1")
            assert undone.startswith(f"question {n} ")
            await talk.reload_history()
            assert not any(f"question {n} " in m.text for m in talk.history)
            await events_of(talk, f"question {n} {SAID}")

    await bench.run(work())
    assert cut > 1


async def test_a_session_keeps_its_title_when_one_message_of_it_is_held(tmp_path: Path) -> None:
    asked: list[str] = []
    begun: list[Callable[[], None]] = []
    bench = Bench(tmp_path, ["first", "second", "third"])
    bench.model.fits_within = 20

    def answer(task: str, prompt: str, limit: int) -> str:
        asked.append(prompt)
        return f"Title {len(asked)}"

    async def work() -> str:
        agent = bench.agent
        beside = SimpleNamespace(spawn=begun.append, wait_core=bench.bridge.wait_core)
        agent.titles = TitleWriter(beside, answer, lambda: True)  # type: ignore[arg-type]  # the part that is used
        talk = await bench.open("s1")
        for n in range(3):
            await events_of(talk, f"question {n} {SAID}")
            assert len(talk.history) == 2
            while begun:
                await bench.bridge.run(begun.pop())
        return str(await agent.call_transcript("title", "s1"))

    assert await bench.run(work()) == "Title 1"
    assert len(asked) == 1


def test_what_a_turn_does_stays_the_same_when_the_session_goes_on_beyond_the_window() -> None:
    """Counted in calls. Once the window is full, twice as many turns make no turn do more."""
    turns, counts = 48, []
    model = Model(*[answer for _ in range(turns) for answer in (call("fetch"), "done")], usage=CONSTANT)
    with hosted(model, notebook, length=WINDOW, compression=SMALL) as host:
        for n in range(turns):
            with counting() as counted:
                host.ask(f"question {n} {SAID}")
            counts.append(sum(counted.values()))
    half = turns // 2
    assert max(counts[half:]) <= 1.2 * max(counts[4:half])
