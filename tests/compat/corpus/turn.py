"""Turns with the memory plugin that is chosen: it learns in one session and is asked in the next. Without network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from compat.corpus.services import ANSWER, Service
from hermes_agent.contracts.model_client import ModelAnswer, ModelDelta, ModelRequest
from hermes_agent.core.messages import Message, ToolCall, ToolFinished, TurnFinished, Usage
from hermes_agent.host import Host
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.policy import NoApprover

__all__ = ["memory_turns", "model_turn", "service_turns"]

LIMIT_S = 40.0
TOLD = "My pet otter is called Ottilie and lives in Ulm."
NAME = "Ottilie"
ASKED = "What is the name of my pet otter in Ulm?"


class Model:
    """Says the same to everybody."""

    provider = "scripted"
    base_url = ""
    fits_within = 0

    def __init__(self, calls: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._calls = calls or {}
        """By what it is told: the tool that it calls then, with its arguments."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.requests.append(request)
        last = request.messages[-1]
        name, arguments = next((c for said, c in self._calls.items() if last.text.startswith(said)), ("", {}))
        if name and last.role == "user":
            calls = (ToolCall("c1", name, json.dumps(arguments)),)
            yield ModelAnswer(Message("assistant", "", calls), "tool_calls", Usage(10, 2), "scripted")
        else:
            yield ModelAnswer(Message("assistant", "I see."), "stop", Usage(10, 2), "scripted")

    def warm_up(self) -> None: ...

    async def aclose(self) -> None: ...


def memory_turns(host: Host) -> dict[str, Any]:
    """Return whether the provider was used, what it recalled, and what failed in a way that is ours to know."""
    model = Model()
    host.agent.choose_model = lambda wish: ChosenModel(model, "scripted")
    found: dict[str, Any] = {"used": False, "recalled": "", "failed": ""}
    try:
        asyncio.run(asyncio.wait_for(_turns(host, model, found), LIMIT_S))
    except Exception as exc:
        found["failed"] = f"a turn with the memory: {type(exc).__name__}: {exc}"
    return found


async def _turns(host: Host, model: Model, found: dict[str, Any]) -> None:
    for text in (TOLD, ASKED):
        talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
        found["used"] = host.service(MemoryManager).provider_of(talk.session_id) is not None
        async for _ in talk.turn(text):
            pass
        await talk.close("shutdown")
        await host.service(MemoryManager)._background.drain(5.0)
    sent = str(model.requests[-1].messages[-1].content)
    found["recalled"] = sent.partition("<memory-context>")[2]


def service_turns(host: Host, plan: Mapping[str, Any], service: Service | None) -> list[str]:
    """Tell a memory something in one session and ask it in the next; return what is not as it should be."""
    calls = {text: plan[name] for text, name in ((TOLD, "write"), (ASKED, "read")) if plan[name]}
    model = Model(calls)
    host.agent.choose_model = lambda wish: ChosenModel(model, "scripted")
    try:
        return asyncio.run(asyncio.wait_for(_service_turns(host, model, plan, service), LIMIT_S))
    except Exception as exc:
        return [f"a turn with the memory: {type(exc).__name__}: {exc}"]


async def _service_turns(host: Host, model: Model, plan: Mapping[str, Any], service: Service | None) -> list[str]:
    problems, results, first = [], {}, len(model.requests)
    for texts in ((TOLD,), (ASKED, ASKED)):
        talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
        if host.service(MemoryManager).provider_of(talk.session_id) is None:
            problems.append("the memory is not used")
        first = len(model.requests)
        for text in texts:
            async for event in talk.turn(text):
                if isinstance(event, ToolFinished):
                    results[text] = event
            await host.service(MemoryManager)._background.drain(10.0)
        await talk.close("shutdown")
        await host.service(MemoryManager)._background.drain(10.0)
    asked = [str(request.messages[-1].content) for request in model.requests[first:]]
    recalled = [text.partition("<memory-context>")[2] for text in asked]
    if plan["recalls"] and not any(NAME in text for text in recalled):
        problems.append(f"it recalls nothing of {TOLD!r}: {recalled}")
    for text, what in ((TOLD, "write"), (ASKED, "read")):
        if plan[what] and (text not in results or results[text].status != "ok"):
            problems.append(f"its tool {plan[what][0]}: {results.get(text)}")
    if plan["read"] and NAME not in results[ASKED].result:
        problems.append(f"its tool {plan['read'][0]} does not find it: {results[ASKED].result}")
    if service is not None and not any(NAME in text for text in service.texts):
        problems.append(f"its service was not told: {service.asked}")
    await host.aclose()
    return problems


def model_turn(host: Host, service: Service | None) -> list[str]:
    """Run a turn with the model of a provider; return what is not as it should be."""
    assert service is not None
    try:
        events = asyncio.run(asyncio.wait_for(_model_turn(host), LIMIT_S))
    except Exception as exc:
        return [f"a turn with the model: {type(exc).__name__}: {exc}: {service.asked}"]
    problems = []
    if [type(e) for e in events if isinstance(e, ToolFinished | TurnFinished)] != [ToolFinished, TurnFinished]:
        problems.append(f"the turn went otherwise: {events}")
    if getattr(events[-1], "text", "") != ANSWER:
        problems.append(f"the answer is another one: {events[-1]}")
    if service.asked.count("POST /v1/chat/completions") < 2:
        problems.append(f"the service was asked otherwise: {service.asked}")
    return problems


async def _model_turn(host: Host) -> list[Any]:
    talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
    events = [event async for event in talk.turn("Hello")]
    await talk.close("shutdown")
    await host.aclose()
    return events
