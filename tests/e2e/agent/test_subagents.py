"""Tasks that are handed to sub-agents."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from builtin_context import context_of
from hermes_agent.agent import Agent, AgentSettings
from hermes_agent.agent.subagents import DelegationSettings
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.builtin_tools import feature as task_tools
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.messages import Message, ToolCall, ToolFinished, TurnEvent, TurnFinished, Usage
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.policy import Choice, NoApprover, Refusal
from hermes_agent.sessions import Transcript
from hermes_agent.testing import call as scripted_call
from hermes_agent.testing import plugin_host
from hermes_agent.tools import current_scope
from hermes_agent.tools.toolsets import Toolsets
from unit.agent.test_journal import DEAD, fall_back, snapshot
from unit.agent.test_turn import ECHO, Bench, events_of

LIMIT_S = 60


def delegate(call_id: str = "d1", **args: Any) -> ToolCall:
    return ToolCall(call_id, "delegate_task", json.dumps(args))


class Model:
    """Answers by a script for each first message of a conversation; `wait` events hold an answer back."""

    provider, base_url, api_mode, url = "scripted", "", "chat_completions", ""
    fits_within = 0

    def __init__(self, **scripts: list[Any]) -> None:
        self.scripts = scripts
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.requests.append(request)
        first = next(m.text for m in request.messages if m.role == "user")
        done = sum(m.role == "assistant" for m in request.messages)
        step = self.scripts[first.split()[0]][done]
        if isinstance(step, tuple):
            event, step = step
            await event.wait()
        message = Message("assistant", "", tuple(step)) if isinstance(step, list) else Message("assistant", step)
        yield ModelAnswer(message, "stop", Usage(10, 2), "scripted-1")

    def of(self, first: str) -> list[ModelRequest]:
        return [r for r in self.requests if r.messages[1].text.split()[0] == first]

    def warm_up(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class House(Bench):
    """A bench whose model answers by conversation, with the tools of `tasks`."""

    def __init__(self, path: Path, delegation: DelegationSettings | None = None, **scripts: list[Any]) -> None:
        super().__init__(path, [])
        self.said = Model(**scripts)
        old = self.agent
        self.agent = Agent(
            settings=AgentSettings(cwd=path),
            choose_model=lambda wish: ChosenModel(self.said, wish or "scripted"),
            tools=self.tools,
            toolsets=Toolsets(self.tools),
            prompt_builder=SystemPromptBuilder(self.tools),
            dispatcher=old.dispatcher,
            hooks=self.hooks,
            bridge=self.bridge,
            open_transcript=lambda: Transcript(path / "state.db"),
            delegation=delegation or DelegationSettings(),
        )
        task_tools.register_session_tools(
            context_of(self.tools),
            self.bridge,
            subagents=self.agent.subagents,
            last_result=lambda session, tool: "",
            clarify_timeout_s=LIMIT_S,
        )


def reports(events: list[TurnEvent]) -> list[dict[str, Any]]:
    result = next(e.result for e in events if isinstance(e, ToolFinished))
    found: list[dict[str, Any]] = json.loads(result)["results"]
    return found


async def test_a_task_is_worked_on_in_a_session_of_its_own_and_only_the_summary_comes_back(tmp_path: Path) -> None:
    house = House(
        tmp_path,
        go=[[delegate(goal="count the otters", context="in the river")], "three otters"],
        count=[[ToolCall("c1", "echo", '{"n": 3}')], "There are three."],
    )
    seen: dict[str, dict[str, Any]] = {}
    for hook in ("subagent_start", "subagent_stop"):
        house.hooks.add(hook, lambda _hook=hook, **kw: seen.__setitem__(_hook, kw), "observer")

    async def work() -> list[TurnEvent]:
        return await events_of(await house.open("s1", principal="chat:1"), "go")

    events = await house.run(work())
    (report,) = reports(events)
    assert (report["status"], report["summary"], report["api_calls"]) == ("completed", "There are three.", 2)
    assert report["tokens"] == 24
    child = house.said.of("count")[0]
    assert child.messages[1].text == "count the otters\n\nContext:\nin the river"
    assert "You are a sub-agent" in child.messages[0].text
    assert {t["function"]["name"] for t in child.tools} == {"echo", "todo"}
    assert [m.role for m in house.said.of("go")[1].messages] == ["system", "user", "assistant", "tool"]
    store = Transcript(tmp_path / "state.db")
    assert [s.id for s in store.recent()] == ["s1"]  # a list of conversations does not show them
    found = store.find(report["session_id"])
    assert (found.principal, found.message_count) == ("chat:1", 4)
    start, stop = seen["subagent_start"], seen["subagent_stop"]
    assert start["parent_session_id"] == stop["parent_session_id"] == "s1"
    assert start["child_session_id"] == stop["child_session_id"] == report["session_id"]
    assert (start["child_goal"], start["child_role"]) == ("count the otters", "leaf")
    assert (stop["child_summary"], stop["child_status"]) == ("There are three.", "completed")
    assert start["parent_turn_id"]


async def test_what_sub_agents_use_is_on_the_account_of_the_session_that_handed_the_task_on(tmp_path: Path) -> None:
    house = House(tmp_path, go=[[delegate(goal="count")], "three"], count=["3"])

    async def work() -> None:
        await events_of(await house.open("s1"), "go")

    await house.run(work())
    assert Transcript(tmp_path / "state.db").usage(session_id="s1").requests == 3


async def test_several_tasks_run_at_once_and_their_reports_keep_the_order(tmp_path: Path) -> None:
    second = asyncio.Event()
    tasks = [{"goal": "one"}, {"goal": "two"}, {"goal": "three"}, {"goal": "four"}]
    house = House(
        tmp_path,
        DelegationSettings(max_concurrent_children=2),
        go=[[delegate(tasks=tasks)], "all done"],
        one=[(second, "1")],
        two=["2"],
        three=["3"],
        four=["4"],
    )
    house.hooks.add(
        "subagent_stop", lambda child_summary, **kw: loop.call_soon_threadsafe(second.set), "observer"
    )  # the first one ends after another one

    async def work() -> list[TurnEvent]:
        nonlocal loop
        loop = asyncio.get_running_loop()
        return await events_of(await house.open("s1"), "go")

    loop: Any = None
    assert [r["summary"] for r in reports(await house.run(work()))] == ["1", "2", "3", "4"]


async def test_an_interrupt_of_the_parent_reaches_its_sub_agents_and_their_tools(tmp_path: Path) -> None:
    house = House(
        tmp_path,
        go=[[delegate(goal="wait long")], "on"],
        wait=[[ToolCall("c1", "slow", "{}")], "never"],
    )
    running, told = threading.Event(), threading.Event()

    def slow(args: dict[str, Any], **kwargs: Any) -> str:
        scope = current_scope.get()
        assert scope is not None
        running.set()
        if scope.cancelled.wait(LIMIT_S):
            told.set()
        return "{}"

    house.tools.register("slow", "test", {**ECHO, "name": "slow"}, slow, owner=Owner(BUILTIN))
    stopped: list[str] = []
    house.hooks.add("subagent_stop", lambda child_status, **kw: stopped.append(child_status), "observer")

    async def work() -> list[TurnEvent]:
        talk = await house.open("s1")

        async def stop() -> None:
            await asyncio.to_thread(running.wait, LIMIT_S)
            talk.interrupt()

        stopping = asyncio.ensure_future(stop())
        events = await events_of(talk, "go")
        await stopping
        return events

    events = await house.run(work())
    assert isinstance(events[-1], TurnFinished)
    assert events[-1].reason == "interrupted"
    assert told.wait(LIMIT_S)


async def test_a_sub_agent_has_a_budget_of_its_own(tmp_path: Path) -> None:
    calls = [[ToolCall("c", "echo", json.dumps({"n": n}))] for n in range(3)]
    house = House(
        tmp_path,
        DelegationSettings(max_iterations=2, max_summary_chars=20),
        go=[[delegate(goal="count")], "fine"],
        count=[*calls[:2], "I ran out of steps and this is what I have"],
    )

    async def work() -> list[TurnEvent]:
        return await events_of(await house.open("s1"), "go")

    (report,) = reports(await house.run(work()))
    assert report["summary"] == "I ran out of steps a\n[cut: the whole is in the session]"
    assert len(house.said.of("count")) == 3


async def test_sub_agents_nest_as_deep_as_the_operator_says(tmp_path: Path) -> None:
    house = House(
        tmp_path,
        DelegationSettings(max_spawn_depth=2),
        go=[[delegate(goal="middle", role="orchestrator")], "done"],
        middle=[[delegate(goal="leaf", role="orchestrator")], "the leaf did it"],
        leaf=["I did it"],
    )

    async def work() -> list[TurnEvent]:
        return await events_of(await house.open("s1"), "go")

    assert reports(await house.run(work()))[0]["summary"] == "the leaf did it"
    names = {t["function"]["name"] for t in house.said.of("leaf")[0].tools}
    assert "delegate_task" not in names
    assert "delegate_task" in {t["function"]["name"] for t in house.said.of("middle")[0].tools}
    assert Transcript(tmp_path / "state.db").usage(session_id="s1").requests == 5


async def test_only_tools_of_the_toolsets_that_were_given(tmp_path: Path) -> None:
    house = House(
        tmp_path,
        go=[[delegate(goal="count", toolsets=["todo"]), delegate("d2", goal="count", toolsets=["nonsense"])], "done"],
        count=["1"],
    )

    async def work() -> list[TurnEvent]:
        return await events_of(await house.open("s1"), "go")

    events = await house.run(work())
    assert [t["function"]["name"] for t in house.said.of("count")[0].tools] == ["todo"]
    refused = [e.result for e in events if isinstance(e, ToolFinished)][1]
    assert "there is no toolset nonsense" in refused


class Screen:
    """The conversation `s1` in front of a person."""

    session_id = "s1"

    def __init__(self) -> None:
        self.text = ""
        self.said = asyncio.Event()

    def push(self, text: str) -> bool:
        self.text = text
        self.said.set()
        return True


async def test_in_the_background_the_report_is_said_into_the_conversation(tmp_path: Path) -> None:
    house = House(tmp_path, go=[[delegate(goal="count", background=True)], "I wait."], count=["three"])

    async def work() -> tuple[list[TurnEvent], str]:
        house.agent.injected.front_end = screen = Screen()
        events = await events_of(await house.open("s1"), "go")
        await screen.said.wait()
        return events, screen.text

    events, text = await house.run(work())
    result = json.loads(next(e.result for e in events if isinstance(e, ToolFinished)))
    assert result["status"] == "dispatched"
    assert "Task 1: count\nStatus: completed\nthree" in text
    assert result["delegation_id"] in text


async def test_background_work_ends_with_its_conversation(tmp_path: Path) -> None:
    house = House(
        tmp_path, go=[[delegate(goal="count", background=True)], "I wait."], count=[(asyncio.Event(), "three")]
    )
    began, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        for hook, event in (("on_session_start", began), ("on_session_finalize", ended)):
            house.hooks.add(
                hook,
                lambda session_id, _event=event, **kw: session_id != "s1" and loop.call_soon_threadsafe(_event.set),
                "observer",
            )
        talk = await house.open("s1")
        await events_of(talk, "go")
        await began.wait()
        await talk.close("new_session")
        await ended.wait()
        assert not house.agent.open_conversations

    await house.run(work())


async def cut_off(path: Path, **scripts: list[Any]) -> str:
    """Leave background work that a crash ended in the middle of its tool call; return its id."""
    tasks = [{"goal": "count"}, {"goal": "name"}]
    house = House(path, go=[[delegate(tasks=tasks, background=True)], "I wait."], **scripts)
    house.tools.register("slow", "test", {**ECHO, "name": "slow"}, house._echo, owner=Owner(BUILTIN))

    async def work() -> str:
        loop, both, copied = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

        def stop(tool_name: str, **kw: Any) -> None:
            if tool_name == "slow":
                loop.call_soon_threadsafe(both.release)
                copied.wait(LIMIT_S)

        house.hooks.add("post_tool_call", stop, "observer")
        house.hooks.add("subagent_stop", lambda **kw: loop.call_soon_threadsafe(both.release), "observer")
        events = await events_of(await house.open("s1", platform="chat", principal="chat:1"), "go")
        await both.acquire()
        await both.acquire()
        snapshot(path)
        copied.set()
        return str(json.loads(next(e.result for e in events if isinstance(e, ToolFinished)))["delegation_id"])

    name: str = await house.run(work())
    fall_back(path)
    return name


class Doors:
    """Tells when something is said into a session."""

    def __init__(self, house: House) -> None:
        self.house, self.said = house, asyncio.Event()
        loop = asyncio.get_running_loop()
        house.agent.injected.on_push = lambda session: loop.call_soon_threadsafe(self.said.set)


SLOW = [[ToolCall("c1", "slow", "{}")], "never"]


def dead(path: Path) -> None:
    with closing(sqlite3.connect(path / "state.db")) as db, db:
        db.execute("UPDATE delegations SET process = ?", (DEAD,))


async def test_background_work_that_a_crash_cut_off_goes_on_and_is_told_once(tmp_path: Path) -> None:
    name = await cut_off(tmp_path, count=SLOW, name=["Ottilie"])
    dead(tmp_path)
    house = House(tmp_path, count=["", "I cannot know."], go=["", "", "fine"])
    house.tools.register("slow", "test", {**ECHO, "name": "slow"}, house._echo, owner=Owner(BUILTIN))

    async def work() -> None:
        doors = Doors(house)
        recover = house.agent.subagents.recover
        await asyncio.gather(recover(), recover("s1"))  # as a daemon does, and whoever opens the session
        await doors.said.wait()
        await house.agent.subagents.recover()
        talk = await house.open("s1", platform="chat", principal="chat:1")
        (text,) = house.agent.injected.take("s1")
        assert name in text
        assert "Task 1: count\nStatus: completed\nI cannot know." in text
        assert "Task 2: name\nStatus: completed\nOttilie" in text
        await events_of(talk, text)

    await house.run(work())
    assert house.seen == []  # the call is not run again, and the model is told
    assert "end of this call is unknown" in house.said.of("count")[0].messages[-1].text
    assert [r for r in house.said.requests if r.messages[1].text == "name"] == []
    dead(tmp_path)
    third = House(tmp_path)

    async def again() -> None:
        await third.open("s1", platform="chat", principal="chat:1")
        assert third.agent.injected.take("s1") == []

    await third.run(again())


async def test_background_work_of_a_terminal_goes_on_when_its_session_is_opened(tmp_path: Path) -> None:
    held = asyncio.Event()
    house = House(tmp_path, go=[[delegate(goal="count", background=True)], "I wait."], count=[(held, "never")])

    async def work() -> None:
        began = asyncio.Event()
        loop = asyncio.get_running_loop()
        house.hooks.add("subagent_start", lambda **kw: loop.call_soon_threadsafe(began.set), "observer")
        talk = await house.open("s1")
        await events_of(talk, "go")
        await began.wait()
        await talk.close("cli_close")

    await house.run(work())
    dead(tmp_path)
    later = House(tmp_path, count=["three"])

    async def again() -> None:
        doors = Doors(later)
        await later.agent.subagents.recover()
        assert not later.agent.subagents._background
        await later.open("s1")
        await doors.said.wait()
        (text,) = later.agent.injected.take("s1")
        assert "Task 1: count\nStatus: completed\nthree" in text

    await later.run(again())
    assert len(later.said.of("count")) == 1


async def test_background_work_that_ends_every_process_is_given_up_and_told(tmp_path: Path) -> None:
    await cut_off(tmp_path, count=SLOW, name=["Ottilie"])
    with closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("UPDATE delegations SET process = ?, attempt = 3", (DEAD,))
    house = House(tmp_path)

    async def work() -> None:
        await house.open("s1", platform="chat", principal="chat:1")
        (text,) = house.agent.injected.take("s1")
        assert "restarted 3 times" in text

    await house.run(work())
    assert house.said.requests == []


async def test_a_sub_agent_asks_the_person_of_its_parent(tmp_path: Path) -> None:
    house = House(
        tmp_path, go=[[delegate(goal="break")], "done"], **{"break": [[ToolCall("c1", "danger", "{}")], "ok"]}
    )
    asked: list[str] = []

    class Person:
        async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
            asked.append(request.summary)
            return "once"

    house.tools.register(
        "danger",
        "test",
        {**ECHO, "name": "danger"},
        house._echo,
        approval=lambda args: ApprovalRequest("danger", "break something", "it", "danger"),
        owner=Owner(BUILTIN),
    )

    async def work() -> list[TurnEvent]:
        return await events_of(await house.agent.open("s1", platform="cli", approver=Person()), "go")

    assert reports(await house.run(work()))[0]["summary"] == "ok"
    assert asked == ["break something"]
    assert len(house.seen) == 1


def test_a_plugin_hands_on_a_task_for_the_agent_that_it_names() -> None:
    class Parent:
        session_id = "another"

    answers: list[str] = []

    def register(ctx: Any) -> None:
        def command(raw: str) -> str:
            answers.append(ctx.dispatch_tool("delegate_task", {"goal": "look"}, parent_agent=Parent()))
            return "done"

        ctx.register_command("ask", command)
        ctx.register_hook("subagent_start", lambda parent_session_id, **kw: answers.append(parent_session_id))

    with plugin_host(register, model=["I looked."]) as host:
        assert host.run_command("/ask") == "done"
    assert json.loads(answers[-1])["results"][0]["summary"] == "I looked."
    assert "another" in answers


async def test_clarify_asks_through_the_front_door_and_nobody_there_is_said_so(tmp_path: Path) -> None:
    asks = [ToolCall("c1", "clarify", json.dumps({"question": "Tea or coffee?", "choices": ["Tea", "Coffee"]}))]
    house = House(tmp_path, go=[asks, "as you like"])

    class Person(NoApprover):
        async def clarify(self, question: str, choices: Any = ()) -> str | Refusal:
            return f"{question} {choices[0]}"

    async def work(approver: Any, session: str) -> str:
        events = await events_of(await house.agent.open(session, platform="cli", approver=approver), "go")
        return next(e.result for e in events if isinstance(e, ToolFinished))

    async def both() -> list[str]:
        return [await work(Person("here"), "s1"), await work(NoApprover("here"), "s2")]

    answered, refused = await house.run(both())
    assert json.loads(answered)["user_response"] == "Tea or coffee? Tea"
    assert "no user can be asked here" in json.loads(refused)["error"]


def test_a_scripted_agent_shows_these_tools() -> None:
    with plugin_host(lambda ctx: None, model=[scripted_call("todo"), "ok"]) as host:
        assert host.ask("go").text == "ok"
        assert {"clarify", "delegate_task", "todo"} <= set(host.visible_tools)


async def test_a_session_that_cannot_be_opened_stays_closed_and_can_be_opened_once_the_state_is_whole(tmp_path) -> None:
    bench = Bench(tmp_path, ["one"])

    def state(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "state.db")) as db:
            db.execute(statement)
            db.commit()

    async def scenario() -> None:
        talk = await bench.open("s")
        await events_of(talk, "hello")
        await talk.close("cli_close")
        state("ALTER TABLE delegations RENAME TO away")
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="delegations"):
                await bench.open("s")
            assert not bench.agent.open_conversations
        state("ALTER TABLE away RENAME TO delegations")
        talk = await bench.open("s")
        assert [message.text for message in talk.history] == ["hello", "one"]

    await bench.run(scenario())


async def test_a_sub_agent_works_where_its_session_was_opened_whatever_a_link_makes_of_the_path(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    seen: list[Path] = []

    def moves(args: dict[str, Any], **kwargs: Any) -> str:
        work.rmdir()
        work.symlink_to(elsewhere)
        return "{}"

    house = House(
        tmp_path,
        go=[[ToolCall("c1", "moves", "{}")], [delegate(goal="look around")], "done"],
        look=["It is empty."],
    )
    house.tools.register("moves", "test", {"name": "moves", "parameters": {"type": "object"}}, moves)
    house.hooks.add("subagent_start", lambda **kw: seen.extend(t.cwd for t in house.agent.open_conversations), "seen")

    async def run() -> list[TurnEvent]:
        return await events_of(await house.open("s1", cwd=work), "go")

    await house.run(run())
    assert seen and set(seen) == {work}
