"""The running inbox and outbox: serves what arrived, delivers what was answered, and forgets nothing over a crash.

Front doors hand in callables by platform (`serve`, `deliver`) and messages (`receive`); everything else is here. For
the core loop alone.
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
"""What is left of a drain to send answers, when the turns took all of it."""


class DeliveryService:
    """The inbox and the outbox of one daemon, at work between `start` and `drain`.

    Args:
        open_mailbox: opens the store; called in the lane.
        lane: where the store is used.
        clock: seconds since the epoch.
        serving: messages that are served at once, each of another conversation.
        sending: parts that are on their way at once, each to another target.
        lasting_s: how long this process must have lasted before it repeats what may have arrived.
    """

    def __init__(
        self,
        open_mailbox: Callable[[], Mailbox],
        lane: MailboxExecutor,
        *,
        clock: Callable[[], float] = time.time,
        backoff: Backoff | None = None,
        serving: int = 16,
        sending: int = 32,
        lasting_s: float = MIN_LIFETIME_S,
    ) -> None:
        self._stored = MailboxClient(open_mailbox, lane, clock, backoff or Backoff())
        self._serving = InboxWorker(self._stored, self._answered, at_once=serving)
        self._sender = OutboxWorker(self._stored, self._one_settled, at_once=sending, lasting_s=lasting_s)
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Own the store and go on with what a former process left.

        Raises:
            UserError: `state.db` cannot be opened.
        """
        work = await self._stored.call(Mailbox.acquire)
        self._stored.is_owner = True
        await self._stored.prune_occasionally()
        self._wake(*work)

    async def refresh(self) -> None:
        """Look for what another process stored, such as `hermes send`."""
        self._wake(*await self._stored.call(Mailbox.open_work))

    async def drain(self, timeout_s: float) -> None:
        """Serve nothing more, let what runs end in time and its answers go out. The rest is for the next start."""
        until = time.monotonic() + timeout_s
        self._stored.is_owner = False
        await self._serving.lanes.drain(timeout_s)
        left_s = max(min(timeout_s, SEND_AT_LEAST_S), until - time.monotonic())
        await self._sender.lanes.drain(left_s, to_the_end=True)
        await self._stored.close()

    @property
    def serving(self) -> int:
        """How many messages are being served."""
        return len(self._serving.lanes.running)

    # -- in ------------------------------------------------------------------------------------------------------

    async def receive(self, message: InboundMessage) -> Receipt:
        """Store a message; it is on disk when this returns: acknowledge it now, never before, not after an error."""
        storing = asyncio.ensure_future(self._stored.call(Mailbox.receive, message, self._stored.clock()))
        storing.add_done_callback(partial(self._received, message))  # also when whoever brings it is cancelled now
        return await asyncio.shield(storing)

    async def begin(self, message: InboundMessage) -> ClaimedMessage | Mapping[str, Any] | None:
        """Store a message that the caller serves itself, and claim it; `ClaimedMessage.done` or `give_back` ends that.

        Returns: the notes of one that was done before; None when it is being served.

        Raises:
            Stale: another daemon has taken over.
        """
        begin = self._stored.call(Mailbox.begin, replace(message, conversation=""), self._stored.clock())
        beginning = asyncio.ensure_future(begin)
        try:
            found = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(self._release)
            raise
        return ClaimedMessage(found, self._stored) if isinstance(found, InboxClaim) else found

    def _release(self, beginning: asyncio.Future[Any]) -> None:
        """Let a message be begun again whose caller was cancelled while it was claimed."""
        if not beginning.cancelled() and beginning.exception() is None and isinstance(beginning.result(), InboxClaim):
            self._stored.store_until_done(Mailbox.requeue, beginning.result())

    def serve(self, platform: str, serve: Serve | None, *, give_up: Abandon | None = None) -> None:
        """Have `serve` answer what arrives on a platform; None lets it wait.

        Args:
            give_up: says what the person is told when a message is given up.
        """
        self._serving.use(platform, serve, give_up)

    async def waiting(self, platform: str, conversation: str) -> int:
        """Return how many messages wait behind the one that is served."""
        return await self._stored.call(Mailbox.count_waiting, (platform, conversation))

    # -- out -----------------------------------------------------------------------------------------------------

    async def send(self, reply: OutboundReply) -> str:
        """Store a reply that answers no message, and return its id. One with the id of another is dropped."""
        storing = asyncio.ensure_future(self._stored.call(Mailbox.enqueue, reply, self._stored.clock()))
        storing.add_done_callback(self._enqueued)
        return (await asyncio.shield(storing)).id

    def deliver(self, platform: str, deliver: Deliver | None, check: Check | None = None) -> None:
        """Have `deliver` send what goes to a platform; None lets it wait, and spends no attempts."""
        self._sender.use(platform, deliver, check)

    async def wait_settled(self, reply: str, timeout_s: float | None = None) -> str:
        """Wait until a reply is `sent`, `failed` or `parked`, and return which; empty when there is none of that id.

        Raises:
            TimeoutError: it is not, after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.setdefault(reply, []).append(change)
                try:
                    state = await self._stored.call(Mailbox.reply_state, reply)
                    if state != "pending":
                        return state
                    await change
                finally:
                    self._forget(reply, change)

    async def list_parked(self) -> list[ParkedTarget]:
        """Return the targets that nothing is sent to, the newest first."""
        return await self._stored.call(Mailbox.list_parked)

    async def revive(self, target: ReplyTarget) -> tuple[ReplyTarget, ...]:
        """Try a parked target again (without a thread: all of the chat); return which there were."""
        revived = await self._stored.call(Mailbox.revive, target)
        self._wake((), revived)
        return revived

    async def counts(self) -> dict[str, int]:
        """Return how many wait, are served, are on their way and are parked."""
        return await self._stored.call(Mailbox.counts)

    # -- between -------------------------------------------------------------------------------------------------

    def _wake(self, conversations: Iterable[Conversation], targets: Iterable[ReplyTarget]) -> None:
        if self._stored.is_owner:
            for conversation in conversations:
                self._serving.lanes.wake(conversation)
            for target in targets:
                self._sender.lanes.wake(target)

    def _received(self, message: InboundMessage, storing: asyncio.Future[Receipt]) -> None:
        if not storing.cancelled() and storing.exception() is None:
            self._wake([(message.platform, message.conversation)], storing.result().revived)

    def _enqueued(self, storing: asyncio.Future[OutboundReply]) -> None:
        if not storing.cancelled() and storing.exception() is None:
            self._wake((), [storing.result().target])

    def _answered(self, replies: Sequence[OutboundReply]) -> None:
        for reply in replies:
            self._sender.lanes.wake(reply.target)

    def _one_settled(self, reply: str) -> None:
        for change in self._waiters.pop(reply, ()):
            if not change.done():
                change.set_result(None)

    def _forget(self, reply: str, change: asyncio.Future[None]) -> None:
        watching = self._waiters.get(reply, [])
        if change in watching:
            watching.remove(change)
        if not watching:
            self._waiters.pop(reply, None)
