"""A turn whose hooks hang."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from hermes_agent import config
from hermes_agent.agent import Agent, AgentSettings, ChosenModel
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.core.messages import ToolCall, TurnFinished
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookBus, HookDeadlines
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Transcript
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import Toolsets
from unit.agent.scripted import ScriptedModel

LIMIT_S = 20.0
SHORT_S = 0.2
UNHURRIED_S = 600.0


class Bench:
    """An agent with a scripted model and an `echo` tool; hooks of plugin `slow` have a short deadline."""

    def __init__(self, path, steps):
        self.model = ScriptedModel(steps)
        self.bridge = Bridge()
        self.hooks = HookBus(
            self.bridge.wait_plugin,
            run_steps=self.bridge.run_steps_inline,
            deadlines=HookDeadlines(UNHURRIED_S, {"slow": SHORT_S}),
        )
        self.tools = ToolRegistry()
        schema = {"name": "echo", "description": "", "parameters": {"type": "object", "properties": {}}}
        self.calls = []
        self.tools.register(
            "echo", "test", schema, lambda args, **kw: self.calls.append(args) or "ran", owner=Owner(BUILTIN)
        )
        self.agent = Agent(
            settings=AgentSettings(cwd=path),
            choose_model=lambda wish: ChosenModel(self.model, "scripted"),
            tools=self.tools,
            toolsets=Toolsets(self.tools),
            prompt_builder=SystemPromptBuilder(self.tools),
            dispatcher=Dispatcher(self.tools, self.hooks, self.bridge, ResultStore(path / "results")),
            hooks=self.hooks,
            bridge=self.bridge,
            open_transcript=lambda: Transcript(path / "state.db"),
        )
        self.release, self.hanging = threading.Event(), threading.Event()

    def hang(self, **kwargs):
        self.hanging.set()
        self.release.wait(LIMIT_S)
        return "late"

    async def open(self):
        return await self.agent.open(platform="cli", approver=NoApprover("in a test"))

    async def run(self, work):
        async def main():
            try:
                return await asyncio.wait_for(work, LIMIT_S)
            finally:
                self.release.set()
                await self.agent.aclose()
                self.bridge.close()

        return await main()


async def end_of(talk, text):
    return [event async for event in talk.turn(text)][-1]


@pytest.mark.parametrize(
    "hook", ["on_session_start", "pre_llm_call", "transform_llm_output", "post_llm_call", "on_session_end"]
)
async def test_a_hook_that_hangs_holds_up_no_turn_and_no_other_listener(tmp_path, hook):
    bench = Bench(tmp_path, ["hello"])
    called = []
    bench.hooks.add(hook, bench.hang, "slow")
    bench.hooks.add(hook, lambda **kw: called.append(1), "other")

    async def work():
        return await end_of(await bench.open(), "hi")

    end = await bench.run(work())
    assert isinstance(end, TurnFinished)
    assert (end.text, end.reason, called) == ("hello", "answered", [1])
    assert bench.model.requests[0].messages[1].content == "hi"


@pytest.mark.parametrize("hook", ["pre_llm_call", "pre_tool_call", "transform_tool_result"])
async def test_a_turn_is_interrupted_while_a_hook_hangs(tmp_path, hook):
    bench = Bench(tmp_path, [[ToolCall("c1", "echo", "{}")], "never asked"])
    bench.hooks.add(hook, bench.hang, "unhurried")

    async def work():
        talk = await bench.open()
        turn = asyncio.ensure_future(end_of(talk, "hi"))
        await asyncio.to_thread(bench.hanging.wait, LIMIT_S)
        talk.interrupt()
        end = await turn
        assert not bench.release.is_set()
        return end, [m.role for m in talk.history]

    end, roles = await bench.run(work())
    assert end.reason == "interrupted"
    assert roles[0] == "user"
    assert roles[-1] == "assistant"
    assert len(bench.calls) == (hook == "transform_tool_result")


async def test_another_conversation_goes_on_while_a_hook_of_one_hangs(tmp_path):
    bench = Bench(tmp_path, ["answer", "answer"])
    bench.hooks.add("pre_llm_call", lambda user_message, **kw: bench.hang() if user_message == "one" else None, "p")

    async def work():
        one = asyncio.ensure_future(end_of(await bench.open(), "one"))
        await asyncio.to_thread(bench.hanging.wait, LIMIT_S)
        two = await end_of(await bench.open(), "two")
        still = one.done()
        bench.release.set()
        return two.text, still, (await one).text

    assert await bench.run(work()) == ("answer", False, "answer")


def test_the_host_hands_the_settings_in(tmp_path):
    (tmp_path / "config.yaml").write_text(
        json.dumps({"plugins": {"hook_timeout_s": 3, "entries": {"a": {"hook_timeout_s": 0.5}, "b": {}}}})
    )
    host = Host(tmp_path, config.load(tmp_path))
    host.hooks.add("h", lambda **kw: threading.current_thread().name, "b")

    assert host.hooks.deadlines == HookDeadlines(3, {"a": 0.5}, rest_s=60)
    assert [r.value for r in host.hooks.fire("h")] == ["hermes-beside"]
    host.bridge.close()
