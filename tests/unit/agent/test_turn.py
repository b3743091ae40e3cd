"""A turn from the outside: what is asked of the model, what the person sees, what is stored."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.agent import Agent, AgentSettings, ChosenModel
from hermes_agent.agent.conversation import Conversation
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import (
    Message,
    Notice,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookBus
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Transcript
from hermes_agent.tools import Dispatcher, ToolRegistry, current_scope
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import Toolsets
from unit.agent.scripted import ScriptedModel, Step

ECHO = {"name": "echo", "description": "", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}


class Bench:
    """An agent with a scripted model, an `echo` tool and a transcript in `path`."""

    def __init__(self, path: Path, steps: list[Step], **settings: Any) -> None:
        self.model = ScriptedModel(steps)
        self.bridge = Bridge()
        self.hooks = HookBus(self.bridge.wait_plugin)
        self.tools = ToolRegistry()
        self.seen: list[dict[str, Any]] = []
        dispatcher = Dispatcher(self.tools, self.hooks, self.bridge, ResultStore(path / "results"))
        self.tools.register("echo", "test", ECHO, self._echo, owner=Owner(BUILTIN))
        self.path = path
        self.agent = Agent(
            settings=AgentSettings(cwd=path, **settings),
            choose_model=lambda wish: ChosenModel(self.model, wish or "scripted"),
            tools=self.tools,
            toolsets=Toolsets(self.tools),
            prompt_builder=SystemPromptBuilder(self.tools),
            dispatcher=dispatcher,
            hooks=self.hooks,
            bridge=self.bridge,
            open_transcript=lambda: Transcript(path / "state.db"),
        )

    def _echo(self, args: dict[str, Any], **kwargs: Any) -> str:
        self.seen.append({"args": args, **kwargs})
        return json.dumps({"echo": args.get("n")})

    async def open(self, session_id: str | None = None, **options: Any) -> Conversation:
        options.setdefault("platform", "cli")
        return await self.agent.open(session_id, approver=NoApprover("in a test"), **options)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def main() -> Any:
            try:
                return await asyncio.wait_for(work, 60)
            finally:
                await self.agent.aclose()
                self.bridge.close()

        return await main()


async def events_of(talk: Conversation, text: str) -> list[TurnEvent]:
    return [event async for event in talk.turn(text)]


def call(n: int | str, call_id: str = "c1", name: str = "echo") -> ToolCall:
    return ToolCall(call_id, name, json.dumps({"n": n}))


async def test_a_tool_call_runs_and_its_result_goes_back_to_the_model(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call("7")], "It said 7."])

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open("s1"), "echo 7")

    events = await bench.run(work())
    assert [type(e) for e in events if not isinstance(e, TextDelta)] == [ToolStarted, ToolFinished, TurnFinished]
    assert events[0] == ToolStarted("c1", "echo", {"n": 7})
    finished = events[-1]
    assert isinstance(finished, TurnFinished)
    assert (finished.text, finished.reason, finished.model) == ("It said 7.", "answered", "scripted-1")
    assert finished.usage.total_tokens == 24
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It said 7."
    assert bench.seen[0]["args"] == {"n": 7}
    assert {k: bench.seen[0][k] for k in ("task_id", "session_id", "user_task")} == {
        "task_id": "s1",
        "session_id": "s1",
        "user_task": "echo 7",
    }
    roles = [m.role for m in bench.model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"]
    stored = Transcript(tmp_path / "state.db").messages("s1")
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant"]


async def test_the_next_request_begins_with_the_bytes_of_the_last_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "one", "two"])
    bench.hooks.add("pre_llm_call", lambda user_message, **kw: {"context": f"seen: {user_message}"}, "memory")

    async def work() -> None:
        talk = await bench.open()
        await events_of(talk, "first")
        await events_of(talk, "second")

    await bench.run(work())
    bodies = [[m.to_dict() for m in r.messages] for r in bench.model.requests]
    for earlier, later in itertools.pairwise(bodies):
        assert later[: len(earlier)] == earlier
    assert bodies[0][1]["content"] == "first\n\nseen: first"


async def test_injected_context_is_never_stored(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["hello"])
    bench.hooks.add("pre_llm_call", lambda **kw: "from a plugin", "memory")
    bench.hooks.add("pre_llm_call", lambda **kw: {"context": "from another"}, "rag")

    async def work() -> None:
        await events_of(await bench.open("s1"), "hi")

    await bench.run(work())
    assert bench.model.requests[0].messages[1].content == "hi\n\nfrom a plugin\n\nfrom another"
    assert b"from a plugin" not in b"".join(p.read_bytes() for p in tmp_path.glob("state.db*"))


async def test_a_session_goes_on_in_another_process_with_the_same_prompt(tmp_path: Path) -> None:
    first = Bench(tmp_path, [[call(1)], "one"])

    async def begin() -> None:
        await events_of(await first.open("s1"), "first")

    await first.run(begin())
    second = Bench(tmp_path, ["two"])

    async def go_on() -> None:
        talk = await second.open("s1", platform="api_server")
        await events_of(talk, "second")

    await second.run(go_on())
    before = [m.to_dict() for m in first.model.requests[-1].messages]
    after = [m.to_dict() for m in second.model.requests[0].messages]
    assert after[: len(before)] == before
    assert after[-1] == {"role": "user", "content": "second"}


async def test_what_was_injected_is_sent_again_by_the_next_conversation_of_the_session(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["one", "two"])
    bench.hooks.add("pre_llm_call", lambda user_message, **kw: f"about {user_message}", "memory")

    async def work() -> None:
        for text in ("first", "second"):
            talk = await bench.open("s1")
            await events_of(talk, text)
            await talk.close("session_boundary")

    await bench.run(work())
    before, after = ([m.to_dict() for m in r.messages] for r in bench.model.requests)
    assert after[: len(before)] == before
    assert after[1]["content"] == "first\n\nabout first"


async def test_arguments_that_do_not_parse_become_a_result_and_the_turn_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[ToolCall("c1", "echo", "{n: 1")], "sorry"])

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "x")

    events = await bench.run(work())
    result = next(e for e in events if isinstance(e, ToolFinished))
    assert result.status == "error"
    assert json.loads(result.result)["error"] == "Invalid tool arguments"
    assert bench.seen == []


async def test_an_unknown_tool_is_an_error_the_model_sees(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, name="nonsense_xyz")], "sorry"])

    async def work() -> None:
        await events_of(await bench.open(), "x")

    await bench.run(work())
    assert bench.model.requests[1].messages[-1].content == '{"error": "Unknown tool: nonsense_xyz"}'


async def test_the_budget_ends_with_one_answer_without_tools(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], [call(2, "c2")], "that is all"], max_turns=2)

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    assert [e.level for e in events if isinstance(e, Notice)] == ["warning"]
    assert isinstance(events[-1], TurnFinished)
    assert (events[-1].reason, events[-1].text) == ("budget", "that is all")
    assert len(bench.seen) == 2
    assert list(bench.model.requests[2].tools) == []


async def test_a_model_error_leaves_a_session_that_can_go_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [ModelError("refused", "not that"), "now it works"])
    ended: list[dict[str, Any]] = []
    bench.hooks.add("on_session_end", lambda **kw: ended.append(kw), "observer")

    async def work() -> None:
        talk = await bench.open()
        with pytest.raises(ModelError):
            await events_of(talk, "first")
        await events_of(talk, "second")

    await bench.run(work())
    assert [m.role for m in bench.model.requests[1].messages] == ["system", "user"]
    assert bench.model.requests[1].messages[1].content == "first\n\nsecond"
    assert [(e["completed"], e["interrupted"]) for e in ended] == [(False, False), (True, False)]


async def test_an_interrupt_while_the_model_writes_keeps_what_was_said(tmp_path: Path) -> None:
    never = asyncio.Event()
    bench = Bench(tmp_path, [never, "on we go"])

    async def work() -> list[TurnEvent]:
        talk = await bench.open()
        events: list[TurnEvent] = []
        async for event in talk.turn("tell me"):
            events.append(event)
            if isinstance(event, TextDelta):
                talk.interrupt()
        await events_of(talk, "and now?")
        return events

    events = await bench.run(work())
    assert isinstance(events[-1], TurnFinished)
    assert (events[-1].reason, events[-1].text) == ("interrupted", "started")
    assert [m.role for m in bench.model.requests[1].messages] == ["system", "user", "assistant", "user"]


async def test_an_interrupt_reaches_a_turn_that_has_hardly_begun(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["one", "two"])
    looking, go_on = threading.Event(), threading.Event()

    class Slow(Transcript):
        def unfinished(self, *args: Any) -> Any:
            looking.set()
            assert go_on.wait(10)
            return super().unfinished(*args)

    async def work() -> list[TurnEvent]:
        bench.agent.open_transcript = lambda: Slow(tmp_path / "state.db")
        talk = await bench.open("s1")
        await events_of(talk, "first")
        turn = asyncio.ensure_future(events_of(talk, "second"))
        await asyncio.to_thread(looking.wait, 10)
        talk.interrupt()
        go_on.set()
        return await turn

    assert (await bench.run(work()))[-1].reason == "interrupted"
    assert len(bench.model.requests) == 1


async def test_an_interrupt_reaches_a_running_tool_and_every_call_gets_a_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, "c1", "wait"), call(2, "c2")], "fine"])
    running = threading.Event()
    noticed: list[bool] = []

    def wait(args: dict[str, Any], **kwargs: Any) -> str:
        scope = current_scope.get()
        assert scope is not None
        running.set()
        noticed.append(scope.cancelled.wait(10))
        return json.dumps({"error": "stopped"})

    bench.tools.register("wait", "test", ECHO, wait, owner=Owner(BUILTIN))

    async def work() -> list[TurnEvent]:
        talk = await bench.open("s1")

        async def stop() -> None:
            await asyncio.to_thread(running.wait, 10)
            talk.interrupt()

        stopper = asyncio.ensure_future(stop())
        events = await events_of(talk, "go")
        await stopper
        await events_of(talk, "again")
        return events

    events = await bench.run(work())
    assert noticed == [True]
    assert [(e.call_id, e.status) for e in events if isinstance(e, ToolFinished)] == [
        ("c1", "cancelled"),
        ("c2", "cancelled"),
    ]
    assert bench.seen == []
    sent = bench.model.requests[1].messages
    assert [m.role for m in sent] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]


async def test_a_tool_that_needs_a_person_is_refused_where_nobody_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1, name="danger")], "I could not."])
    ran: list[int] = []

    def danger(args: dict[str, Any], **kwargs: Any) -> str:
        ran.append(1)
        return "{}"

    def ask(args: dict[str, Any]) -> ApprovalRequest:
        return ApprovalRequest("danger", "break something", "it", "danger")

    bench.tools.register("danger", "test", ECHO, danger, approval=ask, owner=Owner(BUILTIN))

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    result = next(e for e in events if isinstance(e, ToolFinished))
    assert result.status == "blocked"
    assert "no user can be asked in a test" in result.result
    assert ran == []


async def test_hooks_of_a_turn_get_the_keywords_of_the_contract(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "done"])
    seen: dict[str, dict[str, Any]] = {}
    names = ("on_session_start", "pre_llm_call", "pre_tool_call", "post_tool_call", "post_llm_call", "on_session_end")
    for name in names:
        bench.hooks.add(name, lambda _name=name, **kw: seen.__setitem__(_name, kw), "observer")

    async def work() -> None:
        await events_of(await bench.open("s1"), "hi")

    await bench.run(work())
    assert set(seen) == set(names)
    assert seen["on_session_start"].keys() >= {"session_id", "model", "platform", "telemetry_schema_version"}
    assert seen["pre_llm_call"]["is_first_turn"] is True
    assert seen["pre_llm_call"]["conversation_history"] == []
    assert seen["pre_llm_call"].keys() >= {"task_id", "turn_id", "user_message", "sender_id"}
    assert seen["pre_tool_call"]["args"] == {"n": 1}
    post = seen["post_tool_call"]
    assert (post["tool_name"], post["result"], post["status"], post["task_id"]) == ("echo", '{"echo": 1}', "ok", "s1")
    assert isinstance(post["duration_ms"], int)
    assert seen["post_llm_call"]["assistant_response"] == "done"
    assert seen["on_session_end"]["completed"] is True
    assert seen["on_session_end"]["interrupted"] is False


async def test_a_guard_that_raises_blocks_the_call_and_names_its_plugin(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[call(1)], "blocked then"])

    def guard(**kwargs: Any) -> None:
        raise ValueError("broken")

    bench.hooks.add("pre_tool_call", guard, "sentry")

    async def work() -> list[TurnEvent]:
        return await events_of(await bench.open(), "go")

    events = await bench.run(work())
    result = next(e for e in events if isinstance(e, ToolFinished))
    assert result.status == "blocked"
    assert "plugin `sentry`" in result.result
    assert bench.seen == []


async def test_a_caller_with_its_own_history_leaves_no_trace_when_told_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["again"])
    history = [Message("user", "a"), Message("assistant", "b")]

    async def work() -> None:
        talk = await bench.open(platform="api_server", history=history, instructions="Be brief.", keep=False)
        await events_of(talk, "c")

    await bench.run(work())
    sent = bench.model.requests[0].messages
    assert [m.content for m in sent[1:]] == ["a", "b", "c"]
    assert "Be brief." in sent[0].text
    assert Transcript(tmp_path / "state.db").recent() == []
