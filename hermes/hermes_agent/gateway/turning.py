"""One message, one answer: the turns that it takes, also after a restart in the middle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from hermes_agent.core.events import Event, ToolFinished, ToolStarted, TurnFinished
from hermes_agent.core.messages import Content
from hermes_agent.gateway.event_hooks import EventHooks
from hermes_agent.gateway.running import RunningTurn
from hermes_agent.gateway.showing import ProgressDisplay

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["run_chat_turn"]

NO_ANSWER = "(The model gave no answer.)"
IDLE_NOTICE = "⚠️ I stopped: nothing has happened for {minutes:g} minutes."
IDLE = "idle"


async def run_chat_turn(
    running: RunningTurn,
    talk: Conversation,
    content: Content,
    showing: ProgressDisplay,
    events: EventHooks,
    context: dict[str, Any],
    idle_s: float,
) -> str:
    """Return what is answered; empty for nothing.

    A message whose turn was begun before, in this process or a former one, goes on there (`Conversation.turn_once`).

    Args:
        context: what the gateway's hooks are told.
        idle_s: a turn in which nothing happens for so long is ended; 0 lets it run.

    Raises:
        UserError: the model could not answer.
    """
    message = running.message
    if message.notes.get("session") != talk.session_id:
        await message.save_notes(
            session=talk.session_id, before=await talk.agent.call_transcript("last_id", talk.session_id)
        )
    events.emit("agent:start", context)
    started = asyncio.get_running_loop().time()
    texts: list[str] = []
    inboxes = talk.agent.injected
    said: Content = "" if running.event.metadata.get("injected") else content
    turns = talk.turn_once(said, since=int(message.notes["before"]))
    texts.append(await _turn(running, turns, showing, events, context, idle_s))
    while not running.interrupt_reason:
        # what was said too late for the turn that ran, or by a plugin
        if not (waiting := "\n".join(inboxes.take(talk.session_id))):
            break
        texts.append(await _turn(running, talk.turn(waiting), showing, events, context, idle_s))
    text = "\n\n".join(one for one in texts if one)
    seconds = asyncio.get_running_loop().time() - started
    events.emit("agent:end", {**context, "response": text[:500], "duration_seconds": seconds})
    return text


async def _turn(
    running: RunningTurn,
    turn: AsyncGenerator[Event, None],
    showing: ProgressDisplay,
    hooks: EventHooks,
    context: dict[str, Any],
    idle_s: float,
) -> str:
    patience = _IdleTimer(running, idle_s)
    calls = 0
    try:
        async with contextlib.aclosing(turn) as events:
            async for event in events:
                patience.touch()
                showing.show_event(event)
                if isinstance(event, ToolStarted):
                    calls += 1
                elif isinstance(event, ToolFinished):
                    tools = [{"name": event.name, "result": event.result[:500], "status": event.status}]
                    step = {"iteration": calls, "tool_names": [event.name], "tools": tools}
                    hooks.emit("agent:step", {**context, **step})
                elif isinstance(event, TurnFinished):
                    return _text(event, running, showing, idle_s)
    finally:
        patience.end()
    return ""


def _text(event: TurnFinished, running: RunningTurn, showing: ProgressDisplay, idle_s: float) -> str:
    if event.reason != "interrupted":
        return event.text or NO_ANSWER
    if running.interrupt_reason == IDLE:
        return "\n\n".join(t for t in (event.text, IDLE_NOTICE.format(minutes=idle_s / 60)) if t)
    return event.text if showing.preview else ""  # what stands in the chat already must not stay half a sentence


class _IdleTimer:
    """Interrupts a turn in which nothing happens, unless somebody is asked something."""

    def __init__(self, running: RunningTurn, idle_s: float) -> None:
        self._running, self._idle_s = running, idle_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.touch()
        self._check()

    def touch(self) -> None:
        """Something happens."""
        self._last = self._loop.time()

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        if self._idle_s <= 0:
            return
        left = self._last + self._idle_s - self._loop.time()
        if left <= 0 and not self._running.is_asking:
            self._running.interrupt(IDLE)
            return
        self._timer = self._loop.call_later(left if left > 0 else self._idle_s, self._check)
