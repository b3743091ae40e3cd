"""Turns with the memory plugin that is chosen: it learns in one session and is asked in the next. Without network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hermes_agent.core.messages import Message, Usage
from hermes_agent.host import Host
from hermes_agent.models.chosen import ChosenModel
from hermes_agent.models.request import ModelAnswer, ModelDelta, ModelRequest
from hermes_agent.policy import NobodyThere

__all__ = ["memory_turns"]

LIMIT_S = 40.0
TOLD = "My pet otter is called Ottilie and lives in Ulm."
ASKED = "What is the name of my pet otter in Ulm?"


class Model:
    """Says the same to everybody."""

    provider = "scripted"
    base_url = ""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.requests.append(request)
        yield ModelAnswer(Message("assistant", "I see."), "stop", Usage(10, 2), "scripted")

    def warm_up(self) -> None: ...

    async def aclose(self) -> None: ...


def memory_turns(host: Host) -> dict[str, Any]:
    """Return whether the provider was used, what it recalled, and what failed in a way that is ours to know."""
    model = Model()
    host.agent._choose_model = lambda wish: ChosenModel(model, "scripted")
    found: dict[str, Any] = {"used": False, "recalled": "", "failed": ""}
    try:
        asyncio.run(asyncio.wait_for(_turns(host, model, found), LIMIT_S))
    except Exception as exc:
        found["failed"] = f"a turn with the memory: {type(exc).__name__}: {exc}"
    return found


async def _turns(host: Host, model: Model, found: dict[str, Any]) -> None:
    for text in (TOLD, ASKED):
        talk = await host.agent.open(None, platform="cli", approver=NobodyThere("in a test"))
        found["used"] = host.memory.of(talk.session_id) is not None
        async for _ in talk.turn(text):
            pass
        await talk.close("shutdown")
        await host.memory._background.drain(5.0)
    sent = str(model.requests[-1].messages[-1].content)
    found["recalled"] = sent.partition("<memory-context>")[2]
