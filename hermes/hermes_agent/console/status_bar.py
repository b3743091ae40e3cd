"""The status bar: model, context, cost and approvals mode, with a row for each background work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from hermes_agent.agent import Agent
from hermes_agent.agent.conversation import Conversation
from hermes_agent.console.dependencies import ConsoleDeps
from hermes_agent.console.overview import Status, background_lines, status_line
from hermes_agent.console.screen import Screen

BACKGROUND_S = 1.0
"""Time after which the rows of background work are drawn again."""


class StatusBar:
    """Shows on a live screen how a conversation stands."""

    def __init__(self, screen: Screen, agent: Agent, deps: ConsoleDeps) -> None:
        self._screen = screen
        self._agent = agent
        self._deps = deps
        self._has_background = False

    async def refresh(self, conversation: Conversation) -> None:
        """Show the status bar as it is now."""
        session_id = conversation.session_id
        totals = await self._agent.bridge.run(lambda: self._deps.ledger.totals(session_id=session_id))
        await self.show_background(session_id)
        usage = await conversation.context_usage()
        approvals = self._deps.settings().approvals.mode
        tokens = usage.tokens if usage.messages else 0
        status = Status(conversation.model, tokens, usage.window, totals, approvals)
        self._screen.show_status(status_line(status, self._screen.width - 1))

    async def show_background(self, session_id: str) -> None:
        """Show what works in the background."""
        works = await self._agent.bridge.run(self._deps.background, session_id)
        self._screen.show_background(background_lines(works, time.time(), self._screen.width - 1))
        self._has_background = bool(works)

    async def watch_background(self, current: Callable[[], Conversation | None], is_busy: Callable[[], bool]) -> None:
        """Show background work while a turn runs, and as long as there is some; until it is cancelled."""
        while True:
            conversation = current()
            if conversation is not None and (self._has_background or is_busy()):
                await self.show_background(conversation.session_id)
            await asyncio.sleep(BACKGROUND_S)
