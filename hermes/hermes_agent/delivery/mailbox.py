"""Inbox and outbox in `state.db`: each method is one transaction that is on disk when it returns.

Everything here is sync; the daemon calls it through one lane (`Delivery`). Two daemons cannot both work on it: the one
that came last owns it (`take_over`), the other's steps raise `Stale`.

The mailbox as the daemon uses it: in its lane, with the clock, and with patience when the disk is full.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hermes_agent.core.backoff import Backoff
from hermes_agent.delivery import inbox, outbox
from hermes_agent.delivery.inbox import Conversation, InboxClaim
from hermes_agent.delivery.messages import (
    InboundMessage,
    OutboundReply,
    ParkedTarget,
    Receipt,
    ReplyTarget,
    SendOutcome,
    StaleClaim,
)
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.delivery.tables import SCHEMA, OwnerEpoch
from hermes_agent.store import Database
from hermes_agent.system.process_tree import boot_id

KEEP_S = 7 * 86400.0
"""How long finished rows are kept: duplicates of a message are known that long."""
KEEP_AT_LEAST, KEEP_AT_MOST = 1_000, 100_000
"""Finished rows of each table that are kept whatever their age, and beyond which the oldest go whatever their age."""


class Mailbox:
    """One connection to inbox and outbox.

    Raises:
        UserError: `state.db` cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, (SCHEMA,))
        self._owner = OwnerEpoch()

    def acquire(self) -> tuple[list[Conversation], list[ReplyTarget]]:
        """Own what is stored from now on; return what waits, as `open_work`."""
        with self._db.write(durable=True) as db:
            self._owner.acquire(db, boot_id())
        return self.open_work()

    def open_work(self) -> tuple[list[Conversation], list[ReplyTarget]]:
        """Return the conversations with unfinished messages, and the targets of unsent replies."""
        with self._db.snapshot() as db:
            return inbox.open_conversations(db), outbox.open_targets(db)

    # -- in ------------------------------------------------------------------------------------------------------

    def receive(self, message: InboundMessage, now: float) -> Receipt:
        """Store a message, unless it is a duplicate. A parked target in the chat that it comes from is tried again."""
        with self._db.write(durable=True) as db:
            number, new = inbox.insert(db, message, now)
            return Receipt(number, new, outbox.revive(db, message.platform, message.chat) if new else ())

    def claim_message(self, conversation: Conversation, now: float) -> InboxClaim | float | None:
        """Take the next message of a conversation to serve it.

        Returns: None when there is none or one is being served; seconds when the next waits for a later attempt.

        Raises:
            Stale: another daemon owns the mailbox.
        """
        with self._db.write() as db:
            return inbox.claim(db, conversation, now, self._owner.new_token(db))

    def begin(self, message: InboundMessage, now: float) -> InboxClaim | dict[str, Any] | None:
        """Store a message that its caller serves at once, and claim it; its conversation is empty.

        Returns: the notes of a message that was finished; None when it is being served.

        Raises:
            Stale: another daemon owns the mailbox.
        """
        with self._db.write(durable=True) as db:
            return inbox.begin(db, message, now, self._owner.new_token(db))

    def finish(
        self, claim: InboxClaim, replies: Sequence[OutboundReply], now: float, *, failure: str = ""
    ) -> list[OutboundReply]:
        """End a message and store its replies, both or neither; return the replies with their ids.

        Args:
            failure: why the message was given up; empty when it was answered.

        Raises:
            Stale: the message is not with this claim any more; nothing was stored.
        """
        named = [
            reply if reply.id else replace(reply, id=f"in-{claim.id}-{number}") for number, reply in enumerate(replies)
        ]
        with self._db.write(durable=True) as db:
            self._owner.check(db)
            inbox.finish(db, claim, now, failure)
            for reply in named:
                outbox.insert(db, reply, now)
        return named

    def absorb(self, claim: InboxClaim, other: int) -> bool:
        """Let message `other` be finished, or wait again, together with the claimed one.

        Returns: false when it is not the next that waits in the conversation.
        """
        with self._db.write() as db:
            self._owner.check(db)
            return inbox.absorb(db, claim, other)

    def save_notes(self, claim: InboxClaim, notes: Mapping[str, Any]) -> None:
        """Keep `notes` with the message, in place of what was kept before."""
        with self._db.write(durable=True) as db:
            self._owner.check(db)
            inbox.save_notes(db, claim, notes)

    def requeue(self, claim: InboxClaim, now: float, wait_s: float = 0.0, *, error: str = "") -> None:
        """Let the message wait again, `wait_s` seconds at least."""
        with self._db.write() as db:
            self._owner.check(db)
            inbox.requeue(db, claim, now + wait_s, error)

    def count_waiting(self, conversation: Conversation) -> int:
        """Return how many messages of a conversation wait, without the one that is served."""
        with self._db.snapshot() as db:
            return inbox.count_waiting(db, conversation)

    # -- out -----------------------------------------------------------------------------------------------------

    def enqueue(self, reply: OutboundReply, now: float) -> OutboundReply:
        """Store a reply that answers no message, from any process; return it with its id. A second one is dropped."""
        named = reply if reply.id else replace(reply, id=f"out-{secrets.token_hex(16)}")
        with self._db.write(durable=True) as db:
            outbox.insert(db, named, now)
        return named

    def claim_part(self, target: ReplyTarget, now: float) -> OutboxClaim | float | None:
        """Take the next part for a target to send it.

        Returns: None when there is none or one is on its way; seconds when the next waits for a later attempt.

        Raises:
            Stale: another daemon owns the mailbox.
        """
        with self._db.write() as db:
            return outbox.claim(db, target, now, self._owner.new_token(db))

    def begin_sending(self, sending: OutboxClaim) -> None:
        """Note that a part may have arrived from now on: right before its first byte goes out.

        Raises:
            Stale: the part is not with this claim any more: nothing may go out.
        """
        if sending.repeat:
            with self._db.write(durable=True) as db:
                self._owner.check(db)
                outbox.mark_repeat(db, sending)
        # A repeat gets no second chance: a process that is killed between this and the first byte has spent it, so
        # nobody waits for the disk there. After a power cut one that was armed counts as begun.
        with self._db.write(durable=not sending.repeat) as db:
            self._owner.check(db)
            outbox.begin_sending(db, sending)

    def record_outcome(self, sending: OutboxClaim, outcome: SendOutcome, now: float, wait_s: float = 0.0) -> str:
        """Note what became of an attempt; return the state of the part: `sent`, `pending`, `failed` or `parked`."""
        with self._db.write(durable=True) as db:
            self._owner.check(db)
            return outbox.record_outcome(db, sending, outcome, now, wait_s)

    def reply_state(self, reply: str) -> str:
        """Return `pending`, `sent`, `failed` or `parked`; empty when there is no reply of that id."""
        with self._db.snapshot() as db:
            return outbox.reply_state(db, reply)

    # -- looking after it ----------------------------------------------------------------------------------------

    def list_parked(self) -> list[ParkedTarget]:
        """Return the parked targets, the newest first."""
        with self._db.snapshot() as db:
            return outbox.list_parked(db)

    def revive(self, target: ReplyTarget) -> tuple[ReplyTarget, ...]:
        """Let a parked target be tried again; without a thread, every one of the chat."""
        with self._db.write(durable=True) as db:
            return outbox.revive(db, target.platform, target.chat, target.thread or None)

    def counts(self) -> dict[str, int]:
        """Return how many there are of each: `inbox_pending`, `inbox_claimed`, `outbox_pending`, …, and `parked`."""
        with self._db.snapshot() as db:
            found = {name: 0 for name in _COUNTED}
            for table in ("inbox", "outbox"):
                for state, number in db.execute(
                    f"SELECT state, count(*) FROM {table} WHERE finished_at IS NULL GROUP BY state"
                ):
                    found[f"{table}_{state}"] = number
            found["parked"] = db.execute("SELECT count(*) FROM parked_targets").fetchone()[0]
            return found

    def prune(
        self, now: float, *, keep_s: float = KEEP_S, at_least: int = KEEP_AT_LEAST, at_most: int = KEEP_AT_MOST
    ) -> int:
        """Remove finished rows that are older than `keep_s`, but not the newest, or too many; return how many went."""
        with self._db.write() as db:
            db.execute(  # nobody came back for its answer
                "UPDATE inbox SET state = 'failed', finished_at = ? WHERE finished_at IS NULL AND conversation = ''"
                " AND state = 'pending' AND received_at < ?",
                (now, now - keep_s),
            )
            return sum(_prune(db, table, now - keep_s, at_least, at_most) for table in ("inbox", "outbox"))

    def close(self) -> None:
        """Close the database."""
        self._db.close()


_COUNTED = ("inbox_pending", "inbox_claimed", "outbox_pending", "outbox_sending", "outbox_parked", "parked")


def _prune(db: sqlite3.Connection, table: str, before: float, at_least: int, at_most: int) -> int:
    """Remove what is both old and beyond the newest ones, and what is beyond the limit.

    The count protects what is known about duplicates when the clock jumps ahead.
    """
    newest = f"SELECT finished_at FROM {table} WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1 OFFSET ?"
    removed = 0
    for offset, limit in ((at_least, before), (at_most, None)):
        row = db.execute(newest, (offset - 1,)).fetchone()
        if row is not None:
            until = row[0] if limit is None else min(row[0], limit)
            removed += db.execute(f"DELETE FROM {table} WHERE finished_at < ?", (until,)).rowcount
    return removed


logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_STORE_RETRY_S = 30.0
PRUNE_EVERY = 1_000
"""Messages and parts after which old rows are removed."""


class MailboxExecutor(Protocol):
    """Runs sync calls one after another away from the loop (`io.workers.Lane`)."""

    def start(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Hand `fn` in; it is finished whatever becomes of the side that waits."""
        ...


class MailboxClient:
    """Calls methods of the mailbox, which is opened by the first.

    Attributes:
        owned: whether this process works on the mailbox.
    """

    def __init__(
        self, open_mailbox: Callable[[], Mailbox], lane: MailboxExecutor, clock: Callable[[], float], backoff: Backoff
    ) -> None:
        self.clock = clock
        self.backoff = backoff
        self.is_owner = False
        self._open = open_mailbox
        self._lane = lane
        self._mailbox: Mailbox | None = None
        self._storing: set[asyncio.Task[Any]] = set()
        self._finished = 0

    async def call(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call a method of the mailbox in its lane."""
        return await asyncio.shield(self._start(method, *args, **kwargs))

    def _start(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:
        def work() -> T:
            if self._mailbox is None:
                self._mailbox = self._open()
            return method(self._mailbox, *args, **kwargs)

        return self._lane.start(work)

    async def claim(self, method: Callable[..., T], key: object) -> T | None:
        """Claim what is next of `key`; None when another daemon has taken over, which is told once."""
        try:
            return await self.call(method, key, self.clock())
        except StaleClaim as exc:
            if self.is_owner:
                logger.critical("this daemon serves and delivers no more: %s", exc)
            self.is_owner = False
            return None

    def store_until_done(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> Awaitable[T | None]:
        """Store what became of something, however long the disk is full: it is done, and must not be done again.

        That goes on until `close` when the waiting side is cancelled: a claim that nobody ends would stay for ever.

        Returns: None when the claim was somebody else's already.
        """

        def attempt() -> asyncio.Future[T]:
            return self._start(method, *args, self.clock(), **kwargs)

        # the first at once: before whatever is asked for after this
        storing = self._until_stored(attempt(), attempt)
        task = asyncio.create_task(storing)
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        return asyncio.shield(task)

    async def _until_stored(self, first: asyncio.Future[T], again: Callable[[], asyncio.Future[T]]) -> T | None:
        attempt, count = first, 1
        while True:
            try:
                return await asyncio.shield(attempt)
            except sqlite3.DatabaseError as exc:
                wait_s = min(self.backoff.after(count), MAX_STORE_RETRY_S)
                logger.error("cannot write the state: %s; again in %.1f s", exc, wait_s)
                await asyncio.sleep(wait_s)
            except StaleClaim as exc:
                logger.warning("thrown away: %s", exc)
                return None
            attempt, count = again(), count + 1

    async def prune_occasionally(self) -> None:
        """Remove old rows, now and then."""
        if self._finished % PRUNE_EVERY == 0:
            try:
                await self.call(Mailbox.prune, self.clock())
            except sqlite3.OperationalError as exc:
                logger.warning("cannot remove old messages: %s", exc)
        self._finished += 1

    async def close(self) -> None:
        """Close the mailbox; who calls it later (an adapter, the control socket) opens it again."""
        for task in self._storing:
            task.cancel()  # what is being written is written all the same

        def work() -> None:
            mailbox, self._mailbox = self._mailbox, None
            if mailbox is not None:
                mailbox.close()

        await self._lane.start(work)
