"""From the inbox to an answer: each conversation in order, different ones side by side."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hermes_agent.core.errors import RetryLater
from hermes_agent.delivery.inbox import Conversation, InboxClaim
from hermes_agent.delivery.lanes import KeyedWorkers, NextStep
from hermes_agent.delivery.mailbox import Mailbox
from hermes_agent.delivery.ownership import LONGEST_WAIT_S
from hermes_agent.delivery.storing import MailboxClient
from hermes_agent.delivery.values import OutboundReply, StaleClaim

__all__ = ["ClaimedMessage", "Abandon", "Serve", "InboxWorker"]

logger = logging.getLogger(__name__)

MAX_ERRORS, MAX_BEGUN, POISON_AGE_S = 3, 20, 3600.0
"""Errors after which a message is given up. One that ends the process each time must not do so for ever, while one that
was only there when others ended it is no fault: begun so often, and this many seconds old, it is given up, too."""


class ClaimedMessage:
    """A message that is being served.

    Attributes:
        id: stable over restarts: the key of the turn.
        attempt: 1 the first time; more when it was begun before and not finished.
        notes: what `note` kept.
        received_at: seconds since the epoch.
    """

    def __init__(self, claim: InboxClaim, stored: MailboxClient) -> None:
        self._claim = claim
        self._stored = stored
        self.id = claim.id
        self.platform = claim.platform
        self.chat = claim.chat
        self.message_id = claim.message_id
        self.conversation = claim.conversation
        self.sender = claim.sender
        self.payload: Mapping[str, Any] = claim.payload
        self.received_at = claim.received_at
        self.attempt = claim.attempt
        self.notes: dict[str, Any] = dict(claim.notes)

    async def save_notes(self, **notes: Any) -> None:
        """Keep values with the message for a later attempt; on disk when this returns.

        Raises:
            StaleClaim: this message is not ours any more.
        """
        self.notes.update(notes)
        await self._stored.call(Mailbox.save_notes, self._claim, dict(self.notes))

    async def absorb(self, other: int) -> bool:
        """Take a later message of the conversation into this one: finished with it, or waiting again with it.

        Args:
            other: the id of its receipt.

        Returns: false when it is not the next that waits; then it is served after this one.

        Raises:
            StaleClaim: this message is not ours any more.
        """
        return await self._stored.call(Mailbox.absorb, self._claim, other)

    async def done(self) -> None:
        """End a message that `Delivery.begin` gave. Others end with what their server returns."""
        await self._stored.store_until_done(Mailbox.finish, self._claim, ())

    async def release(self) -> None:
        """Let a message that `Delivery.begin` gave be begun again."""
        await self._stored.store_until_done(Mailbox.requeue, self._claim)


Serve = Callable[[ClaimedMessage], Awaitable[Sequence[OutboundReply]]]
"""Answers a message. `RetryLater`: again later. Another error: again with backoff, and given up after `MAX_ERRORS`.
Cancelled: again at the next start."""
Abandon = Callable[[ClaimedMessage, BaseException], Awaitable[Sequence[OutboundReply]]]
"""Says what the person is told when a message is given up."""


class InboxWorker:
    """Hands messages to the servers of their platforms.

    Args:
        answered: called with the replies that were stored.
        at_once: messages that are served at once.
    """

    def __init__(
        self, stored: MailboxClient, answered: Callable[[Sequence[OutboundReply]], None], *, at_once: int
    ) -> None:
        self._stored = stored
        self._answered = answered
        self._servers: dict[str, tuple[Serve, Abandon | None]] = {}
        self._without_server: set[Conversation] = set()
        self.lanes: KeyedWorkers[Conversation] = KeyedWorkers("inbox", self._step, at_once=at_once)

    def use(self, platform: str, serve: Serve | None, give_up: Abandon | None) -> None:
        """Have `serve` answer what arrives on a platform; None lets it wait."""
        if serve is None:
            self._servers.pop(platform, None)
            return
        self._servers[platform] = (serve, give_up)
        for conversation in [one for one in self._without_server if one[0] == platform]:
            self._without_server.discard(conversation)
            self.lanes.wake(conversation)

    async def _step(self, conversation: Conversation) -> NextStep:
        found = self._servers.get(conversation[0])
        if found is None:
            self._without_server.add(conversation)
            return None
        claim = await self._stored.claim(Mailbox.claim_message, conversation)
        if claim is None or isinstance(claim, float):
            return claim
        try:
            replies, failure = await self._answer(claim, *found)
        except asyncio.CancelledError:
            await self._release(claim)
            raise
        except RetryLater as exc:
            logger.info("message %d of %s is served again in %g s: %s", claim.id, claim.platform, exc.after_s, exc)
            return await self._requeue(claim, exc.after_s)
        except Exception as exc:  # whatever a front door raises; the message waits
            logger.exception("message %d of %s failed", claim.id, claim.platform)
            return await self._requeue(claim, self._stored.backoff.after(claim.errors + 1), error=repr(exc))
        self._answered(await self._stored.store_until_done(Mailbox.finish, claim, replies, failure=failure) or ())
        await self._stored.prune_occasionally()
        return 0.0

    async def _answer(
        self, claim: InboxClaim, serve: Serve, give_up: Abandon | None
    ) -> tuple[list[OutboundReply], str]:
        """Return the replies, and why the message is given up, if it is."""
        message = ClaimedMessage(claim, self._stored)
        error: Exception
        if claim.attempt > MAX_BEGUN and self._stored.clock() - claim.received_at > POISON_AGE_S:
            error = RuntimeError(f"it was begun {MAX_BEGUN} times and never finished")
        else:
            try:
                return _check_storable(await serve(message)), ""
            except RetryLater:
                raise
            except Exception as exc:
                if claim.errors + 1 < MAX_ERRORS:
                    raise
                error = exc
        logger.error("message %d of %s is given up", claim.id, claim.platform, exc_info=error)
        try:
            return (_check_storable(await give_up(message, error)) if give_up is not None else []), repr(error)
        except Exception:  # the message must end
            logger.exception("nobody is told that message %d of %s is given up", claim.id, claim.platform)
            return [], repr(error)

    async def _requeue(self, claim: InboxClaim, wait_s: float, *, error: str = "") -> NextStep:
        wait_s = min(wait_s, LONGEST_WAIT_S)
        await self._stored.store_until_done(Mailbox.requeue, claim, wait_s=wait_s, error=error)
        return wait_s

    async def _release(self, claim: InboxClaim) -> None:
        try:
            await self._stored.call(Mailbox.requeue, claim, self._stored.clock())
        except (StaleClaim, sqlite3.OperationalError) as exc:
            logger.info("message %d waits for the next start: %s", claim.id, exc)


def _check_storable(replies: Sequence[OutboundReply]) -> list[OutboundReply]:
    """Return the replies; raise `TypeError` for one that is not JSON, while its maker can still be blamed."""
    for reply in replies:
        json.dumps(reply.parts)
    return list(replies)
