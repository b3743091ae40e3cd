"""The mailbox: inbox and outbox in `state.db`; each method is one transaction.

`Mailbox` is synchronous; the daemon calls it through `MailboxClient` in one thread. Of two daemons the one that started
last owns it (`acquire`); the steps of the other raise `StaleClaim`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
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
"""Seconds for which finished rows are kept; duplicates of a message are recognised that long."""
KEEP_AT_LEAST, KEEP_AT_MOST = 1_000, 100_000
"""Finished rows of each table that are kept at any age, and the most that are kept at all."""


class Mailbox:
    """One connection to inbox and outbox.

    Args:
        read_boot_id: returns the id of the machine's current boot; "" if it is not known.

    Raises:
        UserError: `state.db` cannot be opened.
    """

    def __init__(self, path: Path, *, read_boot_id: Callable[[], str] = boot_id) -> None:
        self._db = Database(path, (SCHEMA,))
        self._owner = OwnerEpoch()
        self._read_boot_id = read_boot_id

    def acquire(self) -> tuple[list[Conversation], list[ReplyTarget]]:
        """Become the owner, and return the waiting work (`open_work`)."""
        with self._db.write(durable=True) as db:
            self._owner.acquire(db, self._read_boot_id())
        return self.open_work()

    def open_work(self) -> tuple[list[Conversation], list[ReplyTarget]]:
        """Return the conversations with unfinished messages, and the targets of unsent replies."""
        with self._db.snapshot() as db:
            return inbox.open_conversations(db), outbox.open_targets(db)

    # -- in ------------------------------------------------------------------------------------------------------

    def receive(self, message: InboundMessage, now: float) -> Receipt:
        """Store a message unless it is a duplicate, and revive the parked targets of its chat."""
        with self._db.write(durable=True) as db:
            number, new = inbox.insert(db, message, now)
            return Receipt(number, new, outbox.revive(db, message.platform, message.chat) if new else ())

    def claim_message(self, conversation: Conversation, now: float) -> InboxClaim | float | None:
        """Claim the next message of a conversation.

        Returns:
            The claim; None if no message waits or one is claimed; seconds if the next waits for a later attempt.

        Raises:
            StaleClaim: another daemon is the owner.
        """
        with self._db.write() as db:
            return inbox.claim(db, conversation, now, self._owner.new_token(db))

    def begin(self, message: InboundMessage, now: float) -> InboxClaim | dict[str, Any] | None:
        """Store and claim a message that its caller processes; its conversation is "".

        Returns:
            The claim; the notes of a message that is done; None if it is claimed.

        Raises:
            StaleClaim: another daemon is the owner.
        """
        with self._db.write(durable=True) as db:
            return inbox.begin(db, message, now, self._owner.new_token(db))

    def finish(
        self, claim: InboxClaim, replies: Sequence[OutboundReply], now: float, *, failure: str = ""
    ) -> list[OutboundReply]:
        """End a message and store its replies, both or neither; return the replies with their ids.

        Args:
            failure: why the message was abandoned; "" if it was answered.

        Raises:
            StaleClaim: the message has another claim; nothing was stored.
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
        """Let message `other` end, or wait again, together with the claimed one.

        Return False if it is not the next waiting message of the conversation.
        """
        with self._db.write() as db:
            self._owner.check(db)
            return inbox.absorb(db, claim, other)

    def save_notes(self, claim: InboxClaim, notes: Mapping[str, Any]) -> None:
        """Store notes with the message in place of the previous ones."""
        with self._db.write(durable=True) as db:
            self._owner.check(db)
            inbox.save_notes(db, claim, notes)

    def requeue(self, claim: InboxClaim, now: float, wait_s: float = 0.0, *, error: str = "") -> None:
        """Let the message wait again, for at least `wait_s` seconds."""
        with self._db.write() as db:
            self._owner.check(db)
            inbox.requeue(db, claim, now + wait_s, error)

    def count_waiting(self, conversation: Conversation) -> int:
        """Return how many messages of a conversation wait, without the claimed one."""
        with self._db.snapshot() as db:
            return inbox.count_waiting(db, conversation)

    # -- out -----------------------------------------------------------------------------------------------------

    def enqueue(self, reply: OutboundReply, now: float) -> OutboundReply:
        """Store a reply without a message, from any process; return it with its id. A known id is dropped."""
        named = reply if reply.id else replace(reply, id=f"out-{secrets.token_hex(16)}")
        with self._db.write(durable=True) as db:
            outbox.insert(db, named, now)
        return named

    def claim_part(self, target: ReplyTarget, now: float) -> OutboxClaim | float | None:
        """Claim the next part for a target.

        Returns:
            The claim; None if no part waits or one is being sent; seconds if the next waits for a later attempt.

        Raises:
            StaleClaim: another daemon is the owner.
        """
        with self._db.write() as db:
            return outbox.claim(db, target, now, self._owner.new_token(db))

    def begin_sending(self, sending: OutboxClaim) -> None:
        """Record that a part may arrive from now on; called before its first byte is sent.

        Raises:
            StaleClaim: the part has another claim; nothing may be sent.
        """
        if sending.repeat:
            with self._db.write(durable=True) as db:
                self._owner.check(db)
                outbox.mark_repeat(db, sending)
        # A repeat happens once: a process that is killed between this and the first byte has used it up. So this
        # need not be on disk; after a power cut a repeat that was about to start counts as started.
        with self._db.write(durable=not sending.repeat) as db:
            self._owner.check(db)
            outbox.begin_sending(db, sending)

    def record_outcome(self, sending: OutboxClaim, outcome: SendOutcome, now: float, wait_s: float = 0.0) -> str:
        """Record the outcome of an attempt; return the state: `sent`, `pending`, `failed` or `parked`."""
        with self._db.write(durable=True) as db:
            self._owner.check(db)
            return outbox.record_outcome(db, sending, outcome, now, wait_s)

    def reply_state(self, reply: str) -> str:
        """Return the state of a reply: `pending`, `sent`, `failed` or `parked`; "" for an unknown id."""
        with self._db.snapshot() as db:
            return outbox.reply_state(db, reply)

    # -- maintenance ---------------------------------------------------------------------------------------------

    def list_parked(self) -> list[ParkedTarget]:
        """Return the parked targets, newest first."""
        with self._db.snapshot() as db:
            return outbox.list_parked(db)

    def revive(self, target: ReplyTarget) -> tuple[ReplyTarget, ...]:
        """Revive a parked target, or all of a chat if it has no thread."""
        with self._db.write(durable=True) as db:
            return outbox.revive(db, target.platform, target.chat, target.thread or None)

    def list_dead(self, platform: str) -> list[outbox.DeadLetter]:
        """Return the parts to a platform that are not tried again by themselves, newest first."""
        with self._db.snapshot() as db:
            return outbox.list_dead(db, platform)

    def retry_dead(self, platform: str, numbers: Collection[int]) -> tuple[ReplyTarget, ...]:
        """Let such parts wait for another attempt, from any process, and return their targets."""
        with self._db.write(durable=True) as db:
            return outbox.retry_dead(db, platform, numbers)

    def counts(self) -> dict[str, int]:
        """Return the number of rows: `inbox_pending`, `inbox_claimed`, `outbox_pending`, …, and `parked`."""
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
        """Remove finished rows that are old or too many, and return their number.

        Args:
            keep_s: age in seconds from which on a row is old.
            at_least: number of the newest rows of each table that stay at any age.
            at_most: number of rows of each table that stay at all.
        """
        with self._db.write() as db:
            db.execute(  # its caller did not come back for the answer
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
    """Remove rows that are old and not among the newest, and rows beyond the limit.

    The newest rows stay so that duplicates are recognised after the clock jumps ahead.
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
    """Runs calls one after another in a thread (`runtime.workers.SerialExecutor`)."""

    def start(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Start `fn`; it runs to its end also if the caller is cancelled."""
        ...


class MailboxClient:
    """Calls methods of the mailbox in its thread; the first call opens it.

    Attributes:
        is_owner: whether this process owns the mailbox.
    """

    def __init__(
        self,
        open_mailbox: Callable[[], Mailbox],
        executor: MailboxExecutor,
        clock: Callable[[], float],
        backoff: Backoff,
    ) -> None:
        self.clock = clock
        self.backoff = backoff
        self.is_owner = False
        self._open = open_mailbox
        self._executor = executor
        self._mailbox: Mailbox | None = None
        self._storing: set[asyncio.Task[Any]] = set()
        self._finished = 0

    async def call(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call a method of the mailbox in its thread."""
        return await asyncio.shield(self._start(method, *args, **kwargs))

    def _start(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:
        def work() -> T:
            if self._mailbox is None:
                self._mailbox = self._open()
            return method(self._mailbox, *args, **kwargs)

        return self._executor.start(work)

    async def claim(self, method: Callable[..., T], key: object) -> T | None:
        """Claim the next row of `key`; return None, and log it once, if another daemon is the owner."""
        try:
            return await self.call(method, key, self.clock())
        except StaleClaim as exc:
            if self.is_owner:
                logger.critical("delivery: this daemon processes nothing more: %s", exc)
            self.is_owner = False
            return None

    def store_until_done(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> Awaitable[T | None]:
        """Store a result, and retry while the disk is full: the work is done and must not be repeated.

        The retries continue until `close` also if the caller is cancelled, because a claim must end.

        Returns:
            The result of the method, or None if the row has another claim.
        """

        def attempt() -> asyncio.Future[T]:
            return self._start(method, *args, self.clock(), **kwargs)

        # the first attempt starts here: before any later call
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
                logger.error("delivery: cannot write the state, retry in %.1f s: %s", wait_s, exc)
                await asyncio.sleep(wait_s)
            except StaleClaim as exc:
                logger.warning("delivery: result dropped: %s", exc)
                return None
            attempt, count = again(), count + 1

    async def prune_occasionally(self) -> None:
        """Remove old rows after every `PRUNE_EVERY` finished ones."""
        if self._finished % PRUNE_EVERY == 0:
            try:
                await self.call(Mailbox.prune, self.clock())
            except sqlite3.OperationalError as exc:
                logger.warning("delivery: cannot remove old rows: %s", exc)
        self._finished += 1

    async def close(self) -> None:
        """Close the mailbox; a later call, as from the control socket, opens it again."""
        for task in self._storing:
            task.cancel()  # a running write ends all the same

        def work() -> None:
            mailbox, self._mailbox = self._mailbox, None
            if mailbox is not None:
                mailbox.close()

        await self._executor.start(work)
