"""A message that the agent works on now: what came behind it, and how it is stopped.

What a chat sees while the agent works: typing, the answer as it grows, one message with the tools that run.

All of it is beside the answer: what fails here is logged and left. Source: plugin contract §8.2.2.

One message, one answer: the turns that it takes, also after a restart in the middle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.events import MessageEvent, SendResult, call_send
from hermes_agent.adapters.sender import MessageSender
from hermes_agent.core.messages import (
    Content,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnSink,
    fold,
)
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import shorten
from hermes_agent.delivery import ClaimedMessage, StaleClaim
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import message_limit
from hermes_agent.gateway.dependencies import GatewaySettings
from hermes_agent.gateway.event_hooks import EventHooks
from hermes_agent.runtime.bridge import Bridge

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


class RunningTurn:
    """One turn in a chat. For the core loop.

    Args:
        talk: None until the session is open.
    """

    def __init__(self, message: ClaimedMessage, event: MessageEvent) -> None:
        self.message = message
        self.event = event
        self.conversation: Conversation | None = None
        self.session_id = ""
        self.since = time.time()
        self.interrupt_reason = ""
        """Why it was interrupted; empty when it was not."""
        self.queued: list[int] = []
        """Ids of the messages that came meanwhile and wait, as far as this process saw them come."""
        self.is_asking = 0
        """Questions that somebody in the chat has not answered yet."""
        self.ended = asyncio.Event()

    def interrupt(self, why: str) -> None:
        """End the turn at its next safe point."""
        self.interrupt_reason = self.interrupt_reason or why
        if self.conversation is not None:
            self.conversation.interrupt()

    async def steer(self, receipt: int, text: str) -> bool:
        """Give the turn a message that came meanwhile; false when it is served by itself."""
        talk = self.conversation
        if talk is None or self.interrupt_reason or not await self._absorb(receipt):
            return False
        # where the turn has ended meanwhile, it is taken up by the next one (`Chats.spoken_to`)
        return talk.services.injected.push(text, talk.session_id) == "taken"

    async def drop_queued(self) -> int:
        """Forget the messages that wait behind, and return how many."""
        count = 0
        for receipt in self.queued:
            count += await self._absorb(receipt)
        self.queued.clear()
        return count

    async def _absorb(self, receipt: int) -> bool:
        try:
            return await self.message.absorb(receipt)
        except StaleClaim:  # it has just ended
            return False


logger = logging.getLogger(__name__)

CALL_S = 20.0
"""Longest time for one of these calls; the platform is shown nothing more then."""
MAX_LINE_LENGTH = 80
MAX_LINES = 20
"""Tool calls that are shown; of more the last ones."""


def can_edit(adapter: Any) -> bool:
    """Say whether messages can be changed after they were sent."""
    said = getattr(adapter, "SUPPORTS_MESSAGE_EDITING", None)
    if isinstance(said, bool):
        return said
    own = getattr(type(adapter), "edit_message", None)
    return own is not None and own is not MessageSender.edit_message


class _GrowingMessage:
    """A message that is sent once and changed after that."""

    def __init__(self, keep: Callable[[str], Awaitable[None]] | None = None, message: str = "") -> None:
        self.text = ""
        self.shown = ""
        self.message = message
        self.keep = keep
        """Told the message's id when it is there."""


class ProgressDisplay:
    """The side show of one turn; `async with` it.

    Args:
        keep: keeps the id of the message in which the answer grows, over a restart.
        preview: that id, when it was kept by a former attempt.
    """

    def __init__(
        self,
        link: AdapterConnection,
        bridge: Bridge,
        settings: GatewaySettings,
        chat: str,
        metadata: Mapping[str, Any],
        *,
        reply_to: str = "",
        keep: Callable[[str], Awaitable[None]],
        preview: str = "",
        emoji: Callable[[str], str] = lambda tool: "",
    ) -> None:
        self._adapter, self._bridge, self._settings = link.adapter, bridge, settings
        self._chat, self._metadata = chat, dict(metadata)
        self._reply_to = reply_to if link.config.reply_to_mode != "off" else ""
        edits = can_edit(self._adapter)
        self._streams = edits and _platform_setting(link, "streaming", settings.streaming)
        self._progress = settings.progress if edits else "off"
        self._shows_typing = bool(getattr(link.config, "typing_indicator", True)) and hasattr(
            self._adapter, "_keep_typing"
        )
        self._limit = message_limit(self._adapter, link.entry.max_message_length if link.entry else 0) or 3500
        self._answer = _GrowingMessage(keep, preview)
        self._tools = _GrowingMessage()
        self._lines: list[str] = []
        self._last_tool = ""
        self._emoji = emoji
        self._changed = asyncio.Event()
        self._growing = asyncio.Lock()
        """Held while a message is on its way."""
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> ProgressDisplay:
        if self._shows_typing:
            self._tasks.append(asyncio.create_task(self._type()))
        if self._streams or self._progress != "off":
            self._tasks.append(asyncio.create_task(self._show()))
        return self

    async def __aexit__(self, *error: object) -> None:
        async with self._growing:  # what is on its way would stay in the chat, beside the answer
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def preview(self) -> str:
        """The id of the message in which the answer grew; empty when there is none."""
        return self._answer.message

    def show_text(self, delta: str) -> None:
        """Add a piece of the answer to its preview."""
        if not self._streams:
            return
        self._answer.text += delta
        if len(self._answer.text) - len(self._answer.shown) >= self._settings.edit_after:
            self._changed.set()

    def show_tool(self, event: ToolStarted) -> None:
        """Add a line for a tool call."""
        if self._progress == "off" or (self._progress == "new" and event.name == self._last_tool):
            return
        self._last_tool = event.name
        self._lines.append(_line(self._emoji(event.name), event, verbose=self._progress == "verbose"))
        self._tools.text = "\n".join(self._lines[-MAX_LINES:])[-self._limit :]
        self._changed.set()

    async def _show(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self._growing:
                if not await self._grow(self._tools, self._tools.text):
                    return
                room = self._limit - len(self._settings.cursor)
                text = self._answer.text if len(self._answer.text) <= room else ""
                if text.strip() and not await self._grow(self._answer, text + self._settings.cursor):
                    return
            await asyncio.sleep(self._settings.edit_every_s)

    async def _grow(self, grown: _GrowingMessage, text: str) -> bool:
        """Bring a message to its text; false when the platform cannot, and nothing more is to be shown."""
        if text == grown.shown or not text:
            return True
        try:
            if grown.message:
                work = self._edit(grown.message, text)
            else:
                work = call_send(self._adapter, self._chat, text, self._reply_to or None, self._metadata or None)
            result = await self._bridge.on_plugin(work, deadline_s=CALL_S)
        except Exception as exc:  # noqa: BLE001 - a plugin's code: the answer comes all the same
            result = SendResult(False, error=f"{type(exc).__name__}: {exc}")
        if not result.success or not (grown.message or result.message_id):
            logger.info("platform %s: nothing more is shown of this turn: %s", self._adapter.name, result.error)
            return False
        if not grown.message:
            grown.message = str(result.message_id)
            if grown.keep is not None:
                await grown.keep(grown.message)
        grown.shown = text
        return True

    async def _edit(self, message: str, text: str) -> SendResult:
        result: SendResult = await self._adapter.edit_message(self._chat, message, text)
        return result

    async def _type(self) -> None:
        typing = self._adapter._keep_typing(self._chat, metadata=self._metadata or None)
        with contextlib.suppress(Exception):  # `answers` has logged it
            await self._bridge.on_plugin(typing, deadline_s=None)


def _platform_setting(link: AdapterConnection, key: str, default: bool) -> bool:
    own = link.config.extra.get(key)
    return own if isinstance(own, bool) else default


def _line(emoji: str, event: ToolStarted, *, verbose: bool) -> str:
    """Return `emoji name: first argument` on one line."""
    values = [str(value) for value in event.arguments.values()]
    flat = " ".join((" ".join(values) if verbose else values[0] if values else "").split())
    limit = 4 * MAX_LINE_LENGTH if verbose else MAX_LINE_LENGTH
    flat = redactor(flat)
    short = shorten(flat, limit)
    return f"{emoji or '⚡'} {event.name}" + (f": {short}" if short else "")


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
            session=talk.session_id, before=await talk.services.call_transcript("last_id", talk.session_id)
        )
    events.emit("agent:start", context)
    started = asyncio.get_running_loop().time()
    texts: list[str] = []
    inboxes = talk.services.injected
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
    turn: AsyncGenerator[TurnEvent, None],
    showing: ProgressDisplay,
    hooks: EventHooks,
    context: dict[str, Any],
    idle_s: float,
) -> str:
    timer = _IdleTimer(running, idle_s)
    try:
        end = await fold(turn, _ChatEvents(timer, showing, hooks, context))
    finally:
        timer.end()
    return "" if end is None else _text(end, running, showing, idle_s)


class _ChatEvents(TurnSink):
    """Shows the events of a turn in its chat, and reports its tool calls to the hooks of the gateway."""

    def __init__(self, timer: _IdleTimer, display: ProgressDisplay, hooks: EventHooks, context: dict[str, Any]) -> None:
        self._timer, self._display, self._hooks, self._context = timer, display, hooks, context
        self._calls = 0

    def event(self, event: TurnEvent) -> None:
        self._timer.touch()
        super().event(event)

    def text(self, delta: str) -> None:
        self._display.show_text(delta)

    def tool_started(self, event: ToolStarted) -> None:
        self._display.show_tool(event)
        self._calls += 1

    def tool_finished(self, event: ToolFinished) -> None:
        tools = [{"name": event.name, "result": event.result[:500], "status": event.status}]
        step = {"iteration": self._calls, "tool_names": [event.name], "tools": tools}
        self._hooks.emit("agent:step", {**self._context, **step})

    def finished(self, event: TurnFinished) -> None:
        self._timer.end()


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
