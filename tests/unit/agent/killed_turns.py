"""Says messages in one session, in processes that are killed at random moments: `killed_turns.py HOME KILLS SEED`.

Each process goes on where the last one was killed. A message N is answered after three calls of `count`, which writes
the token of its call into a file, so that nobody can run it twice unseen; then, in a last process, to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermes_agent.agent import Agent, AgentSettings, ChosenModel
from hermes_agent.agent.conversation import Conversation
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest, TextPart
from hermes_agent.core.messages import Message, Notice, ToolCall, Usage
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.hooks import HookBus
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Transcript
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import Toolsets

LONGEST_S = 0.4
"""Longest life of a process after its start."""
LAST = 3
"""Messages that the last process says, after what is left."""


class Model:
    """Answers by what it is told alone, so that each process has the same one."""

    provider, base_url, api_mode, url = "scripted", "", "chat_completions", ""
    fits_within = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        said = [m for m in request.messages if m.role != "system"]
        last = max(i for i, m in enumerate(said) if m.role == "user")
        number = re.findall(r"message (\d+)", said[last].text)[-1]
        done = sum(m.role == "tool" for m in said[last:])
        yield TextPart(".")
        await asyncio.sleep(0)
        if done < 3:  # two at once, then one alone
            calls = tuple(_call(number, n) for n in ((0, 1) if done == 0 else (2,)))
            yield ModelAnswer(Message("assistant", ".", calls), "tool_calls", Usage(1, 1), "m")
        else:
            yield ModelAnswer(Message("assistant", f"done {number}"), "stop", Usage(1, 1), "m")

    def warm_up(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _call(number: str, n: int) -> ToolCall:
    return ToolCall(f"c{n}", "count", f'{{"token": "{number}.{n}"}}')


async def _talk(home: Path, messages: int) -> None:
    bridge, hooks, tools = Bridge(), HookBus(lambda coroutine: None), ToolRegistry()
    file = os.open(home / "tokens", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def count(args: dict[str, Any], **kwargs: Any) -> str:
        time.sleep(random.random() / 300)
        os.write(file, f"{args['token']}\n".encode())
        time.sleep(random.random() / 300)
        return f"ran {args['token']}"

    schema = {"name": "count", "parameters": {"type": "object", "properties": {"token": {"type": "string"}}}}
    tools.register("count", "test", schema, count, parallel_safe=True, owner=Owner(BUILTIN))
    agent = Agent(
        settings=AgentSettings(cwd=home),
        choose_model=lambda wish: ChosenModel(Model(), "m"),
        tools=tools,
        toolsets=Toolsets(tools),
        prompt_builder=SystemPromptBuilder(tools),
        dispatcher=Dispatcher(tools, hooks, bridge, ResultStore(home / "results")),
        hooks=hooks,
        bridge=bridge,
        open_transcript=lambda: Transcript(home / "state.db"),
    )
    talk = await agent.open("s1", platform="cli", approver=NoApprover("here"))
    with (home / "notices").open("a") as notices:
        async for event in talk.resume_turn():
            if isinstance(event, Notice):
                print(event.text, file=notices, flush=True)
    for number in range(_next(talk), _next(talk) + messages):
        async for _ in talk.turn(f"message {number}"):
            pass
    await agent.aclose()
    bridge.close()


def _next(talk: Conversation) -> int:
    numbers = [int(n) for m in talk.history if m.role == "user" for n in re.findall(r"message (\d+)", m.text)]
    return max(numbers, default=0) + 1


def _fork(home: Path, messages: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        asyncio.run(_talk(home, messages))
        status = 0
    finally:
        os._exit(status)


def _has_spoken(home: Path) -> bool:
    with contextlib.closing(Transcript(home / "state.db")) as transcript:
        return transcript.last_id("s1") > 0


def main() -> int:
    """Kill, and finish; 0 when the last process came to its end."""
    home, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    killed = 0
    while killed < kills or not _has_spoken(home):
        pid = _fork(home, 10_000)
        # where the machine is slow, and none of them came to a word, they live longer
        time.sleep(rng.random() * LONGEST_S * (1 + killed // kills))
        killed += 1
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(os.waitpid(_fork(home, LAST), 0)[1])


if __name__ == "__main__":
    sys.exit(main())
