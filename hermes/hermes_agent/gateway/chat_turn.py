"""The turns of one chat message, and their display in the chat.

The display shows the typing indicator, the answer while it is written, and a message with the tool calls. Its failures
are logged and do not affect the answer. Source: plugin contract §8.2.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.config import DISPLAY_TIERS
from hermes_agent.adapters.events import MessageEvent, SendResult, call_send
from hermes_agent.adapters.sender import MessageSender, ToolPreview
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
    """The turn of a chat message, on the core loop.

    Its `conversation` is None until the session is open.
    """

    def __init__(self, message: ClaimedMessage, event: MessageEvent) -> None:
        self.message = message
        self.event = event
        self.conversation: Conversation | None = None
        self.session_id = ""
        self.since = time.time()
        self.interrupt_reason = ""
        """Reason of the interrupt; "" without one."""
        self.queued: list[int] = []
        """Ids of messages that arrived during the turn and wait for its end."""
        self.is_asking = 0
        """Number of pending questions in the chat."""
        self.ended = asyncio.Event()

    def interrupt(self, why: str) -> None:
        """Interrupt the turn at its next safe point."""
        self.interrupt_reason = self.interrupt_reason or why
        if self.conversation is not None:
            self.conversation.interrupt(why)

    async def steer(self, receipt: int, text: str) -> bool:
        """Add a message to the turn; return False if it must be processed on its own."""
        conversation = self.conversation
        if conversation is None or self.interrupt_reason or not await self._absorb(receipt):
            return False
        # if the turn has ended, the next turn gets the message (`ChatSessions.start_injected_turn`)
        return conversation.services.injected.push(text, conversation.session_id) == "taken"

    async def drop_queued(self) -> int:
        """Remove the waiting messages from the inbox and return their number."""
        count = 0
        for receipt in self.queued:
            count += await self._absorb(receipt)
        self.queued.clear()
        return count

    async def _absorb(self, receipt: int) -> bool:
        try:
            return await self.message.absorb(receipt)
        except StaleClaim:  # the turn has just ended
            return False


logger = logging.getLogger(__name__)

CALL_S = 20.0
"""Time limit of a call; after it, the display ends."""
MAX_LINE_LENGTH = 80
MAX_LINES = 20
"""Number of displayed tool calls: the last ones."""


def can_edit(adapter: Any) -> bool:
    """Return whether sent messages can be changed."""
    declared = getattr(adapter, "SUPPORTS_MESSAGE_EDITING", None)
    if isinstance(declared, bool):
        return declared
    own = getattr(type(adapter), "edit_message", None)
    return own is not None and own is not MessageSender.edit_message


class _EditedMessage:
    """A message that is sent once and then edited."""

    def __init__(self, save_id: Callable[[str], Awaitable[None]] | None = None, id: str = "") -> None:
        self.text = ""
        self.shown = ""
        self.id = id
        self.save_id = save_id
        """Called with the id of the message when it is sent."""


class ProgressDisplay:
    """Display of one turn, an async context manager.

    Args:
        keep: stores the id of the message with the answer, so that a restart finds it.
        preview: that id, stored by a previous attempt.
    """

    def __init__(
        self,
        connection: AdapterConnection,
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
        self._adapter, self._bridge, self._settings = connection.adapter, bridge, settings
        self._chat, self._metadata = chat, dict(metadata)
        self._reply_to = reply_to if connection.config.reply_to_mode != "off" else ""
        edits = can_edit(self._adapter)
        self._streams = edits and _platform_setting(connection, "streaming", settings.streaming)
        tier = str(connection.entry.display_tier) if connection.entry else ""
        self._streams = self._streams and (tier != "minimal" or connection.config.extra.get("streaming") is True)
        self._progress = (tier_progress(tier, settings.progress)) if edits else "off"
        self._shows_typing = bool(getattr(connection.config, "typing_indicator", True)) and hasattr(
            self._adapter, "_keep_typing"
        )
        self._limit = (
            message_limit(self._adapter, connection.entry.max_message_length if connection.entry else 0, chat) or 3500
        )
        self._answer = _EditedMessage(keep, preview)
        self._tools = _EditedMessage()
        self._lines: list[str] = []
        self._last_tool = ""
        self._emoji = emoji
        self._changed = asyncio.Event()
        self._sending = asyncio.Lock()
        """Held while a message is being sent."""
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> ProgressDisplay:
        if self._shows_typing:
            self._tasks.append(asyncio.create_task(self._type()))
        if self._streams or self._progress != "off":
            self._tasks.append(asyncio.create_task(self._show()))
        return self

    async def __aexit__(self, *error: object) -> None:
        async with self._sending:  # a message that is being sent would stay in the chat
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def preview(self) -> str:
        """Id of the message with the unfinished answer; "" if there is none."""
        return self._answer.id

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
        verbose = self._progress == "verbose"
        self._lines.append(_line(self._emoji(event.name), event, adapter=self._adapter, verbose=verbose))
        self._tools.text = "\n".join(self._lines[-MAX_LINES:])[-self._limit :]
        self._changed.set()

    async def _show(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self._sending:
                if not await self._update(self._tools, self._tools.text):
                    return
                room = self._limit - len(self._settings.cursor)
                text = self._answer.text if len(self._answer.text) <= room else ""
                if text.strip() and not await self._update(self._answer, text + self._settings.cursor):
                    return
            await asyncio.sleep(self._settings.edit_every_s)

    async def _update(self, message: _EditedMessage, text: str) -> bool:
        """Send or edit a message; return False if the platform cannot, which ends the display."""
        if text == message.shown or not text:
            return True
        try:
            if message.id:
                work = self._edit(message.id, text)
            else:
                work = call_send(self._adapter, self._chat, text, self._reply_to or None, self._metadata or None)
            result = await self._bridge.on_plugin(work, deadline_s=CALL_S)
        except Exception as exc:  # noqa: BLE001 - plugin code: the answer is sent anyway
            result = SendResult(False, error=f"{type(exc).__name__}: {exc}")
        if not result.success or not (message.id or result.message_id):
            logger.info("platform %s: progress display ended: %s", self._adapter.name, result.error)
            return False
        if not message.id:
            message.id = str(result.message_id)
            if message.save_id is not None:
                await message.save_id(message.id)
        message.shown = text
        return True

    async def _edit(self, message: str, text: str) -> SendResult:
        result: SendResult = await self._adapter.edit_message(self._chat, message, text)
        return result

    async def _type(self) -> None:
        typing = self._adapter._keep_typing(self._chat, metadata=self._metadata or None)
        with contextlib.suppress(Exception):  # `call_optional` logs it
            await self._bridge.on_plugin(typing, deadline_s=None)


def _platform_setting(connection: AdapterConnection, key: str, default: bool) -> bool:
    own = connection.config.extra.get(key)
    return own if isinstance(own, bool) else default


def tier_progress(tier: str, configured: str) -> str:
    """Return which tool calls a platform with this `display_tier` shows: never more than configured."""
    most = DISPLAY_TIERS.get(tier, "")
    return configured if not most or configured in ("off", most) else most


def _line(emoji: str, event: ToolStarted, *, adapter: Any, verbose: bool) -> str:
    """Return `emoji name: first argument` in one line, the argument as the adapter formats it."""
    values = [str(value) for value in event.arguments.values()]
    flat = " ".join((" ".join(values) if verbose else values[0] if values else "").split())
    limit = 4 * MAX_LINE_LENGTH if verbose else MAX_LINE_LENGTH
    flat = redactor(flat)
    short = shorten(flat, limit)
    if short and (format_preview := getattr(adapter, "format_tool_preview", None)) is not None:
        url = flat if flat.startswith(("http://", "https://")) and " " not in flat else None
        try:
            short = str(format_preview(ToolPreview(short, url)))
        except Exception as exc:  # noqa: BLE001 - plugin code: the line is shown anyway
            logger.warning("adapter: format_tool_preview failed: %r", exc)
    return f"{emoji or '⚡'} {event.name}" + (f": {short}" if short else "")


NO_ANSWER = "(The model gave no answer.)"
IDLE_NOTICE = "⚠️ The turn was stopped: no progress for {minutes:g} minutes."
IDLE = "idle"


async def run_chat_turn(
    running: RunningTurn,
    conversation: Conversation,
    content: Content,
    display: ProgressDisplay,
    events: EventHooks,
    context: dict[str, Any],
    idle_s: float,
) -> str:
    """Run the turns of a message and return the answer; "" for none.

    A turn that was started before, in this or a previous process, is resumed (`Conversation.turn_once`).

    Args:
        context: keywords of the event hooks.
        idle_s: limit of a turn without progress, in seconds; 0: no limit.

    Raises:
        UserError: the model request failed.
    """
    message = running.message
    if message.notes.get("session") != conversation.session_id:
        await message.save_notes(
            session=conversation.session_id,
            before=await conversation.services.call_transcript("last_id", conversation.session_id),
        )
    events.emit("agent:start", context)
    started = asyncio.get_running_loop().time()
    texts: list[str] = []
    injected = conversation.services.injected
    first: Content = "" if running.event.metadata.get("injected") else content
    turns = conversation.turn_once(first, since=int(message.notes["before"]))
    texts.append(await _turn(running, turns, display, events, context, idle_s))
    while not running.interrupt_reason:
        # messages that arrived too late for the turn, and messages of plugins
        if not (waiting := "\n".join(injected.take(conversation.session_id))):
            break
        texts.append(await _turn(running, conversation.turn(waiting), display, events, context, idle_s))
    text = "\n\n".join(part for part in texts if part)
    seconds = asyncio.get_running_loop().time() - started
    answered = {"response": text[:500], "duration_seconds": seconds}
    model = {"model": conversation.model_state.name, "provider": conversation.model_state.provider}
    events.emit("agent:end", {**context, **answered, **model})
    return text


async def _turn(
    running: RunningTurn,
    turn: AsyncGenerator[TurnEvent, None],
    display: ProgressDisplay,
    hooks: EventHooks,
    context: dict[str, Any],
    idle_s: float,
) -> str:
    idle_timer = _IdleTimer(running, idle_s)
    try:
        end = await fold(turn, _ChatEvents(idle_timer, display, hooks, context))
    finally:
        idle_timer.end()
    return "" if end is None else _text(end, running, display, idle_s)


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


def _text(event: TurnFinished, running: RunningTurn, display: ProgressDisplay, idle_s: float) -> str:
    if event.reason != "interrupted":
        return event.text or NO_ANSWER
    if running.interrupt_reason == IDLE:
        return "\n\n".join(t for t in (event.text, IDLE_NOTICE.format(minutes=idle_s / 60)) if t)
    return event.text if display.preview else ""  # a displayed answer must not stay incomplete


class _IdleTimer:
    """Interrupts a turn without progress, unless a question is pending."""

    def __init__(self, running: RunningTurn, idle_s: float) -> None:
        self._running, self._idle_s = running, idle_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.touch()
        self._check()

    def touch(self) -> None:
        """Record progress."""
        self._last = self._loop.time()

    def end(self) -> None:
        """Stop the timer."""
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
