"""A second implementation of the server's `AgentDoor`, in memory: what a turn does is a function of the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_client import NO_OPTIONS, RequestOptions
from hermes_agent.core.messages import (
    Content,
    Message,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    Usage,
    text_content,
)
from hermes_agent.policy import Approver
from hermes_agent.server import HttpSettings, build, serve

KEY = "key-of-this-test-0123456789"
USAGE = Usage(12, 3, 4)
LIMIT_S = 5.0

Play = Callable[["ScriptedTalk", Content], AsyncIterator[TurnEvent]]


@dataclass
class Opened:
    """What `open` was called with."""

    session_id: str | None
    platform: str
    approver: Approver
    history: list[Message] | None
    instructions: str
    keep: bool


class ScriptedAgent:
    """Opens conversations whose turns are played by `play`; keeps the transcript of kept sessions."""

    def __init__(self, play: Play, *, refuse: Exception | None = None) -> None:
        self.play = play
        self.refuse = refuse
        self.opened: list[Opened] = []
        self.options: list[RequestOptions] = []
        self.closed: list[tuple[str, str]] = []
        self.stored: dict[str, list[str]] = {}

    async def open(
        self,
        session_id: str | None = None,
        *,
        platform: str,
        approver: Approver,
        history: Sequence[Message] | None = None,
        instructions: str = "",
        model: str | None = None,
        cwd: Path | None = None,
        keep: bool = True,
        principal: str = "",
    ) -> ScriptedTalk:
        if self.refuse is not None:
            raise self.refuse
        given = None if history is None else list(history)
        self.opened.append(Opened(session_id, platform, approver, given, instructions, keep))
        return ScriptedTalk(self, session_id or f"fresh-{len(self.opened)}", keep)

    async def load_if_allowed(self, session_id: str, principal: str) -> None:
        """Every session is everybody's here."""


class ScriptedTalk:
    """One conversation; `stopped` is set by `interrupt`, which does nothing before the turn has begun."""

    def __init__(self, agent: ScriptedAgent, session_id: str, keep: bool) -> None:
        self.agent = agent
        self.session_id = session_id
        self.stopped = asyncio.Event()
        self._keep = keep
        self._playing = False

    async def turn(self, content: Content, *, options: RequestOptions = NO_OPTIONS) -> AsyncIterator[TurnEvent]:
        self.agent.options.append(options)
        self._playing = True
        if self._keep:
            self.agent.stored.setdefault(self.session_id, []).append(text_content(content))
        async for event in self.agent.play(self, content):
            yield event

    def interrupt(self) -> None:
        if self._playing:
            self.stopped.set()

    async def close(self, reason: str) -> None:
        self.agent.closed.append((self.session_id, reason))


def finished(text: str, reason: Any = "answered") -> TurnFinished:
    return TurnFinished(text, reason, USAGE, "scripted-1")


def says(*pieces: str, reason: Any = "answered") -> Play:
    """A turn that says the pieces."""

    async def play(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        for piece in pieces:
            yield TextDelta(piece)
        yield finished("".join(pieces), reason)

    return play


async def echo(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
    """A turn that says what it was asked."""
    yield TextDelta(text_content(content))
    yield finished(text_content(content))


async def calculates(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
    """Text, a tool call, text."""
    yield TextDelta("Let me see.")
    yield ToolStarted("c1", "calculate", {"expression": "2**16"})
    yield ToolFinished("c1", "calculate", '{"result": 65536}', "ok", 3)
    yield TextDelta("\n\nIt is 65536.")
    yield finished("Let me see.\n\nIt is 65536.")


def fails(error: Exception, *first: TurnEvent) -> Play:
    """A turn that yields `first` and raises."""

    async def play(talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        for event in first:
            yield event
        raise error

    return play


@dataclass
class Gate:
    """Turns that begin, wait until the test lets them go on or they are interrupted, and answer with the question."""

    first: Sequence[TurnEvent] = ()
    begun: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """What was asked, in the order in which turns began."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    now: int = 0
    most: int = 0
    """How many turns ran at once at most."""

    async def play(self, talk: ScriptedTalk, content: Content) -> AsyncIterator[TurnEvent]:
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.put_nowait(text_content(content))
        try:
            for event in self.first:
                yield event
            async with asyncio.TaskGroup() as group:
                waits = [group.create_task(self.go.wait()), group.create_task(talk.stopped.wait())]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
            if talk.stopped.is_set():
                self.interrupted.set()
                yield finished("", "interrupted")
                return
            yield TextDelta(text_content(content))
            yield finished(text_content(content))
        finally:
            self.now -= 1


@dataclass
class Running:
    """A server that listens."""

    address: str
    agent: ScriptedAgent
    app: Any
    stop: asyncio.Event
    hurry: asyncio.Event
    ended: asyncio.Event

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {KEY}"}

    @property
    def turns(self) -> Any:
        return self.app.turns


@contextlib.asynccontextmanager
async def serving(
    agent: ScriptedAgent | Play,
    slash: Any = None,
    webhooks: Any = None,
    service: Any = None,
    pages: Any = (),
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run a real server on a free port of 127.0.0.1; it is stopped at the end."""
    door = agent if hasattr(agent, "open") else ScriptedAgent(agent)
    given = HttpSettings(**{"port": 0, "key": KEY, "drain_timeout_s": LIMIT_S, **settings})
    counts = {"plugins": 1, "tools": 2}
    kept = {"slash": slash, "webhooks": webhooks, "service": service, "pages": pages}
    app = build(door, given, models=["scripted-1"], counts=lambda: counts, **kept)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = Running("", door, app, asyncio.Event(), asyncio.Event(), asyncio.Event())

    async def run() -> None:
        await serve(app, given, on_ready=ready.set_result, stop=running.stop, hurry=running.hurry)
        running.ended.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        running.address = await asyncio.wait_for(ready, LIMIT_S)
        try:
            yield running
        finally:
            running.stop.set()
