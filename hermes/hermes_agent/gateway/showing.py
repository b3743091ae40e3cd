"""What a chat sees while the agent works: typing, the answer as it grows, one message with the tools that run.

All of it is beside the answer: what fails here is logged and left. Source: plugin contract §8.2.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hermes_agent.contracts.platform.calling import call_send
from hermes_agent.contracts.platform.outlet import MessageSender
from hermes_agent.contracts.platform.results import SendResult
from hermes_agent.core.events import Event, TextDelta, ToolStarted
from hermes_agent.core.redact import redactor
from hermes_agent.gateway.link import AdapterConnection
from hermes_agent.gateway.parts import message_limit
from hermes_agent.gateway.works import GatewaySettings
from hermes_agent.io.bridge import Bridge

__all__ = ["ProgressDisplay", "can_edit"]

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

    def show_event(self, event: Event) -> None:
        """Show what happens in the turn."""
        if isinstance(event, TextDelta) and self._streams:
            self._answer.text += event.text
            if len(self._answer.text) - len(self._answer.shown) >= self._settings.edit_after:
                self._changed.set()
        elif isinstance(event, ToolStarted) and self._progress != "off":
            if self._progress == "new" and event.name == self._last_tool:
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
    short = flat if len(flat) <= limit else flat[: limit - 1] + "…"
    return f"{emoji or '⚡'} {event.name}" + (f": {short}" if short else "")
