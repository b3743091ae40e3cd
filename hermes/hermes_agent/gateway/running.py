"""A message that the agent works on now: what came behind it, and how it is stopped."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hermes_agent.contracts.platform.messages import MessageEvent
from hermes_agent.delivery import ClaimedMessage, StaleClaim

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["RunningTurn"]


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
        return talk.agent.injected.push(text, talk.session_id) == "taken"

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
