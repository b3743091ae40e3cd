"""Runs in our interpreter: turns of one open conversation. Prints the CPU milliseconds of each turn as JSON, and how
many messages the long one held after each.

python our_turns.py text|tool TURNS SESSIONS: so many turns of one session, then the first two turns of each of so many
others, and one more of the long one beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator

from hermes_agent.agent import Agent
from hermes_agent.agent.conversation import Conversation
from hermes_agent.app.start import start_host
from hermes_agent.core.messages import TurnFinished
from hermes_agent.policy import NoApprover


async def open_session(agent: Agent) -> Conversation:
    return await agent.open(platform="cli", approver=NoApprover("in a measurement"))


async def turn(talk: Conversation, text: str) -> None:
    answered = False
    async for event in talk.turn(text):
        answered = answered or (isinstance(event, TurnFinished) and event.reason == "answered")
    assert answered


async def main(agent: Agent, kind: str, turns: int, sessions: int) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = {"turns": [], "first": [], "second": [], "late": [], "held": []}
    words = f"{kind} message: " + "words " * 20

    @contextlib.contextmanager
    def timed(what: str) -> Iterator[None]:
        began = time.process_time()
        yield
        spent[what].append((time.process_time() - began) * 1000)

    long = await open_session(agent)
    for _ in range(turns):
        with timed("turns"):
            await turn(long, words)
        spent["held"].append(len(long.history))
    for _ in range(sessions):
        with timed("first"):
            other = await open_session(agent)
            await turn(other, words)
        with timed("second"):
            await turn(other, words)
        with timed("late"):
            await turn(long, words)
    return spent


if __name__ == "__main__":
    host = start_host()
    measured = asyncio.run(main(host.agent, sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    print(json.dumps(measured), flush=True)
    os._exit(0)
