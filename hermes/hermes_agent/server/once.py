"""`Idempotency-Key`: a request that is sent again, also after a crash, is the same turn of its session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from hermes_agent.core.events import Event, FinishReason, TurnFinished
from hermes_agent.core.messages import Content, Message, Usage, assistant_text
from hermes_agent.delivery import ClaimedMessage, InboundMessage
from hermes_agent.models.request import NO_OPTIONS, RequestOptions
from hermes_agent.server.reply import HttpError
from hermes_agent.sessions import API_SERVER

__all__ = ["KEY_HEADER", "IdempotencyInbox", "IdempotentRequests", "ResumableConversation"]

KEY_HEADER = b"idempotency-key"
LONGEST_KEY = 200
BUSY_RETRY_S = 1.0


class ResumableConversation(Protocol):
    """The part of `agent.Conversation` that is used."""

    session_id: str

    def turn_once(self, content: Content, *, since: int, options: RequestOptions = ...) -> AsyncGenerator[Event, None]:
        """Say `content`, or go on with its turn."""
        ...

    def interrupt(self) -> None:
        """Stop the running turn."""
        ...

    async def close(self, reason: str) -> None:
        """End the conversation."""
        ...


class IdempotencyInbox(Protocol):
    """The part of `delivery.Delivery` that is used."""

    async def begin(self, message: InboundMessage, /) -> ClaimedMessage | Mapping[str, Any] | None:
        """Store a message and claim it."""
        ...


class IdempotentRequests:
    """Makes conversations whose next turn happens once.

    Args:
        transcript: calls a method of the transcript (`Agent.transcript`).
    """

    def __init__(self, inbox: IdempotencyInbox, transcript: Callable[..., Awaitable[Any]]) -> None:
        self._inbox = inbox
        self._transcript = transcript

    def wrap(self, talk: ResumableConversation, key: str) -> _IdempotentConversation:
        """Return `talk`, for the request with this key.

        Raises:
            HttpError: 400, the key is too long.
        """
        if len(key) > LONGEST_KEY:
            raise HttpError(400, f"the Idempotency-Key is longer than {LONGEST_KEY} characters", code="invalid_request")
        return _IdempotentConversation(talk, key, self._inbox, self._transcript)


class _IdempotentConversation:
    """A conversation; `turn` gives the events of the turn, or its answer when it has taken place."""

    def __init__(
        self, talk: ResumableConversation, key: str, inbox: IdempotencyInbox, transcript: Callable[..., Awaitable[Any]]
    ) -> None:
        self.session_id = talk.session_id
        self.interrupt = talk.interrupt
        self.close = talk.close
        self._conversation = talk
        self._key = key
        self._inbox = inbox
        self._transcript = transcript

    async def turn(self, content: Content, *, options: RequestOptions = NO_OPTIONS) -> AsyncGenerator[Event, None]:
        held = await self._inbox.begin(InboundMessage(API_SERVER, self.session_id, self._key, "", API_SERVER))
        if held is None:
            raise HttpError(
                409,
                "a request with this Idempotency-Key is being worked on",
                code="in_progress",
                retry_after_s=BUSY_RETRY_S,
            )
        if not isinstance(held, ClaimedMessage):
            finish: FinishReason = held.get("finish_reason") or "stop"
            yield TurnFinished(
                assistant_text(await self._messages_since(held)), "answered", Usage(), "", finish_reason=finish
            )
            return
        ended = False
        try:
            async for event in self._events(held, content, options):
                if isinstance(event, TurnFinished) and event.reason != "interrupted":
                    upto = await self._transcript("last_id", self.session_id)
                    await held.save_notes(upto=upto, finish_reason=event.reply_finish_reason)
                    await held.done()
                    ended = True
                yield event
        finally:
            if not ended:
                await held.release()

    async def _events(
        self, held: ClaimedMessage, content: Content, options: RequestOptions
    ) -> AsyncGenerator[Event, None]:
        if "before" not in held.notes:
            await held.save_notes(before=await self._transcript("last_id", self.session_id))
        given = {"options": options} if options.values() else {}
        async for event in self._conversation.turn_once(content, since=int(held.notes["before"]), **given):
            yield event

    async def _messages_since(self, notes: Mapping[str, Any]) -> Sequence[Message]:
        upto = int(notes.get("upto", 1 << 62))
        found: Sequence[Message] = await self._transcript(
            "messages", self.session_id, after=int(notes.get("before", 0)), upto=upto
        )
        return found
