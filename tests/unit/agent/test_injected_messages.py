"""What plugins say into sessions without a person in front of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_agent.agent.injected_messages import MAX_PENDING, MAX_SESSIONS, InjectedMessages
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.sessions import Transcript
from hermes_agent.tools import current_scope
from unit.agent.test_turn import Bench, call, events_of

SCHEMA = {"name": "say", "description": "", "parameters": {"type": "object", "properties": {}}}


def users(bench: Bench, request: int) -> list[str]:
    return [m.text for m in bench.model.requests[request].messages if m.role == "user"]


async def test_a_text_that_comes_in_a_running_turn_steers_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, name="say")], "Tea then."])

    def say(args: dict[str, Any], **kwargs: Any) -> str:
        scope = current_scope.get()
        assert scope is not None
        return bench.agent.injected.push("Make it tea.", scope.session_id)

    bench.tools.register("say", "test", SCHEMA, say, owner=Owner(BUILTIN))

    async def work() -> None:
        await events_of(await bench.open("s1"), "coffee")

    await bench.run(work())
    assert [m.role for m in bench.model.requests[1].messages] == ["system", "user", "assistant", "tool", "user"]
    assert users(bench, 1) == ["coffee", "Make it tea."]
    stored = Transcript(tmp_path / "state.db").messages("s1")
    assert [m.text for m in stored if m.role == "user"] == ["coffee", "Make it tea."]


async def test_a_text_that_comes_while_the_last_answer_is_given_is_answered_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["Coffee.", "Tea."])

    async def work() -> list[Any]:
        talk = await bench.open("s1")
        events = []
        async for event in talk.turn("a drink"):
            if not events:
                bench.agent.injected.push("Rather tea.", "s1")
            events.append(event)
        return events

    assert (await bench.run(work()))[-1].text == "Coffee.\n\nTea."
    assert users(bench, 1) == ["a drink", "Rather tea."]


async def test_a_text_that_comes_between_turns_goes_before_the_next_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["one", "two"])

    async def work() -> None:
        talk = await bench.open("s1")
        await events_of(talk, "first")
        await talk.close("session_boundary")
        assert bench.agent.injected.push("News!", "s1") == "taken"
        await events_of(await bench.open("s1"), "second")

    await bench.run(work())
    assert users(bench, 1) == ["first", "News!\n\nsecond"]


async def test_hooks_of_a_turn_know_their_conversation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["one"])
    seen: list[str] = []

    def note(**kwargs: Any) -> None:
        scope = current_scope.get()
        seen.append("" if scope is None else scope.session_id)

    for hook in ("on_session_start", "pre_llm_call", "post_llm_call", "on_session_end"):
        bench.hooks.add(hook, note, "p")

    async def work() -> None:
        await events_of(await bench.open("s1"), "first")
        assert current_scope.get() is None

    await bench.run(work())
    assert seen == ["s1"] * 4


async def test_a_session_that_is_not_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [])

    async def work() -> None:
        talk = await bench.open("s1", keep=False)
        assert bench.agent.injected.push("x", "s1") == "taken"
        await talk.close("session_boundary")
        assert bench.agent.injected.push("x", "s1") == "nobody"

    await bench.run(work())


def test_inboxes_are_bounded() -> None:
    inboxes = InjectedMessages()
    inboxes.open("s")
    assert [inboxes.push(str(n), "s") for n in range(MAX_PENDING)] == ["taken"] * MAX_PENDING
    assert inboxes.push("one more", "s") == "full"
    assert (len(inboxes.take("s")), inboxes.take("s"), inboxes.has_pending("s")) == (MAX_PENDING, [], False)
    for number in range(MAX_SESSIONS):
        inboxes.open(f"n{number}")
    assert (inboxes.push("x", "s"), inboxes.push("x", "n0"), inboxes.push("x", "")) == ("nobody", "taken", "nobody")
