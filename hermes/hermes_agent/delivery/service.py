"""The running inbox and outbox: messages are processed and replies delivered, also after a crash.

Front ends register callables by platform (`serve`, `deliver`) and bring messages (`receive`). Used on the core loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hermes_agent.core.backoff import Backoff
from hermes_agent.delivery.inbox import Conversation, InboxClaim
from hermes_agent.delivery.mailbox import Mailbox, MailboxClient, MailboxExecutor
from hermes_agent.delivery.messages import InboundMessage, OutboundReply, ParkedTarget, Receipt, ReplyTarget
from hermes_agent.delivery.workers import (
    MIN_LIFETIME_S,
    Abandon,
    Check,
    ClaimedMessage,
    Deliver,
    InboxWorker,
    OutboxWorker,
    Serve,
)

SEND_AT_LEAST_S = 2.0
"""Seconds of a drain that are left for replies even if the turns took all its time."""


class DeliveryService:
    """The inbox and the outbox of one daemon, from `start` to `drain`.

    Args:
        open_mailbox: opens the store; called in the executor.
        executor: the thread of the store.
        clock: returns seconds since the epoch.
        max_messages: messages that are processed in parallel, each of another conversation.
        max_parts: parts that are sent in parallel, each to another target.
        min_lifetime_s: age of this process in seconds before it repeats parts that may have arrived.
    """

    def __init__(
        self,
        open_mailbox: Callable[[], Mailbox],
        executor: MailboxExecutor,
        *,
        clock: Callable[[], float] = time.time,
        backoff: Backoff | None = None,
        max_messages: int = 16,
        max_parts: int = 32,
        min_lifetime_s: float = MIN_LIFETIME_S,
    ) -> None:
        self._mailbox = MailboxClient(open_mailbox, executor, clock, backoff or Backoff())
        self._inbox = InboxWorker(self._mailbox, self._wake_targets, max_parallel=max_messages)
        self._outbox = OutboxWorker(
            self._mailbox, self._notify_settled, max_parallel=max_parts, min_lifetime_s=min_lifetime_s
        )
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Own the store, and continue the work of a previous process.

        Raises:
            UserError: `state.db` cannot be opened.
        """
        work = await self._mailbox.call(Mailbox.acquire)
        self._mailbox.is_owner = True
        await self._mailbox.prune_occasionally()
        self._wake(*work)

    async def refresh(self) -> None:
        """Start the work that another process stored, such as `hermes send`."""
        self._wake(*await self._mailbox.call(Mailbox.open_work))

    async def drain(self, timeout_s: float) -> None:
        """Stop after running messages and their replies, or after `timeout_s`; the rest waits."""
        until = time.monotonic() + timeout_s
        self._mailbox.is_owner = False
        await self._inbox.workers.drain(timeout_s)
        left_s = max(min(timeout_s, SEND_AT_LEAST_S), until - time.monotonic())
        await self._outbox.workers.drain(left_s, finish_due=True)
        await self._mailbox.close()

    @property
    def is_running(self) -> bool:
        """Whether this process owns the store and sends what is in it."""
        return self._mailbox.is_owner

    @property
    def serving(self) -> int:
        """Number of messages that are being processed."""
        return len(self._inbox.workers.running)

    # -- in ------------------------------------------------------------------------------------------------------

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message. It is on disk when this returns; acknowledge it only then."""
        storing = asyncio.ensure_future(self._mailbox.call(Mailbox.receive, message, self._mailbox.clock()))
        storing.add_done_callback(partial(self._received, message))  # also if the caller is cancelled
        return await asyncio.shield(storing)

    async def begin(self, message: InboundMessage) -> ClaimedMessage | Mapping[str, Any] | None:
        """Store and claim a message that the caller processes; `done` or `release` ends the claim.

        Returns:
            The claimed message; the notes of a message that is done; None if it is being processed.

        Raises:
            StaleClaim: another daemon is the owner.
        """
        begin = self._mailbox.call(Mailbox.begin, replace(message, conversation=""), self._mailbox.clock())
        beginning = asyncio.ensure_future(begin)
        try:
            found = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(self._release)
            raise
        return ClaimedMessage(found, self._mailbox) if isinstance(found, InboxClaim) else found

    def _release(self, beginning: asyncio.Future[Any]) -> None:
        """Release a message if its caller was cancelled during the claim."""
        if not beginning.cancelled() and beginning.exception() is None and isinstance(beginning.result(), InboxClaim):
            self._mailbox.store_until_done(Mailbox.requeue, beginning.result())

    def serve(self, platform: str, serve: Serve | None, *, abandon: Abandon | None = None) -> None:
        """Process the messages of a platform with `serve`; None lets them wait.

        Args:
            abandon: returns the replies to a message that is abandoned.
        """
        self._inbox.use(platform, serve, abandon)

    async def waiting(self, platform: str, conversation: str) -> int:
        """Return how many messages of a conversation wait, without the claimed one."""
        return await self._mailbox.call(Mailbox.count_waiting, (platform, conversation))

    # -- out -----------------------------------------------------------------------------------------------------

    async def send(self, reply: OutboundReply) -> str:
        """Store a reply without a message, and return its id; a reply with a known id is dropped."""
        storing = asyncio.ensure_future(self._mailbox.call(Mailbox.enqueue, reply, self._mailbox.clock()))
        storing.add_done_callback(self._enqueued)
        return (await asyncio.shield(storing)).id

    def deliver(self, platform: str, deliver: Deliver | None, check: Check | None = None) -> None:
        """Send the parts to a platform with `deliver`; None lets them wait, without attempts."""
        self._outbox.use(platform, deliver, check)

    async def wait_settled(self, reply: str, timeout_s: float | None = None) -> str:
        """Wait until a reply is `sent`, `failed` or `parked`, and return that state; "" for an unknown id.

        Raises:
            TimeoutError: `timeout_s` seconds have passed.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.setdefault(reply, []).append(change)
                try:
                    state = await self._mailbox.call(Mailbox.reply_state, reply)
                    if state != "pending":
                        return state
                    await change
                finally:
                    self._forget(reply, change)

    async def list_parked(self) -> list[ParkedTarget]:
        """Return the parked targets, newest first."""
        return await self._mailbox.call(Mailbox.list_parked)

    async def revive(self, target: ReplyTarget) -> tuple[ReplyTarget, ...]:
        """Revive a parked target, or all of a chat if it has no thread; return the revived targets."""
        revived = await self._mailbox.call(Mailbox.revive, target)
        self._wake((), revived)
        return revived

    async def counts(self) -> dict[str, int]:
        """Return the number of waiting, claimed, sending and parked rows by name."""
        return await self._mailbox.call(Mailbox.counts)

    # -- waking -----------------------------------------------------------------------------------------------

    def _wake(self, conversations: Iterable[Conversation], targets: Iterable[ReplyTarget]) -> None:
        if self._mailbox.is_owner:
            for conversation in conversations:
                self._inbox.workers.wake(conversation)
            for target in targets:
                self._outbox.workers.wake(target)

    def _received(self, message: InboundMessage, storing: asyncio.Future[Receipt]) -> None:
        if not storing.cancelled() and storing.exception() is None:
            self._wake([(message.platform, message.conversation)], storing.result().revived)

    def _enqueued(self, storing: asyncio.Future[OutboundReply]) -> None:
        if not storing.cancelled() and storing.exception() is None:
            self._wake((), [storing.result().target])

    def _wake_targets(self, replies: Sequence[OutboundReply]) -> None:
        for reply in replies:
            self._outbox.workers.wake(reply.target)

    def _notify_settled(self, reply: str) -> None:
        for change in self._waiters.pop(reply, ()):
            if not change.done():
                change.set_result(None)

    def _forget(self, reply: str, change: asyncio.Future[None]) -> None:
        watching = self._waiters.get(reply, [])
        if change in watching:
            watching.remove(change)
        if not watching:
            self._waiters.pop(reply, None)
