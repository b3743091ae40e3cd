"""Work on many lines of waiting at once, one thing at a time in each. Asleep when nothing waits.

From the inbox to an answer: each conversation in order, different ones side by side.

From the outbox to the platforms: each target in order, different ones side by side.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from hermes_agent.core.errors import RetryLater
from hermes_agent.delivery.inbox import Conversation, InboxClaim
from hermes_agent.delivery.mailbox import Mailbox, MailboxClient
from hermes_agent.delivery.messages import DeliveryCheck, OutboundReply, ReplyTarget, SendOutcome, StaleClaim
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.delivery.tables import LONGEST_WAIT_S

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

MAX_SLEEP_S = 60.0
"""How long a wait goes on before the clock, which somebody may have set, is looked at again."""
BROKEN_RETRY_S = 5.0
"""How long a line waits after a step that failed for a reason of ours, such as a full disk."""
CANCEL_AGAIN_S = 5.0
"""How long the end waits for a step that was cancelled and goes on."""

NextStep = float | None
"""What a step says: None that nothing waits any more; else the seconds until the next step."""


class KeyedWorkers(Generic[K]):
    """Runs `step(key)` for each key that was poked, until it says that nothing waits.

    Args:
        step: does the next thing of a key.
        at_once: how many steps may run at once.
    """

    def __init__(self, name: str, step: Callable[[K], Awaitable[NextStep]], *, at_once: int) -> None:
        self._name = name
        self._step = step
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._wakes: dict[K, asyncio.Event] = {}
        self._sleeping: set[K] = set()
        self._closed = self._is_draining_all = False
        self.running: set[K] = set()
        """Whose step runs now."""

    def wake(self, key: K) -> None:
        """Say that something may be there to do."""
        if self._closed:
            return
        if key in self._tasks:
            self._wakes[key].set()
            return
        self._wakes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._work(key), name=f"{self._name} {key}")

    async def drain(self, timeout_s: float, *, to_the_end: bool = False) -> None:
        """Begin no further step; cancel those that have not ended in time.

        Args:
            to_the_end: first do everything that need not wait.
        """
        self._closed, self._is_draining_all = True, to_the_end
        for key, task in self._tasks.items():
            if key in self._sleeping or not (to_the_end or key in self.running):
                task.cancel()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CANCEL_AGAIN_S)

    @property
    def _open(self) -> bool:
        return not self._closed or self._is_draining_all

    async def _work(self, key: K) -> None:
        poke = self._wakes[key]
        try:
            while self._open:
                poke.clear()
                wait_s = await self._one_step(key)
                if (wait_s is None and not poke.is_set()) or (wait_s and self._closed):
                    return
                if wait_s:
                    self._sleeping.add(key)
                    try:
                        await _wait_event(poke, min(wait_s, MAX_SLEEP_S))
                    finally:
                        self._sleeping.discard(key)
        finally:
            del self._tasks[key], self._wakes[key]

    async def _one_step(self, key: K) -> NextStep:
        async with self._slots:
            if not self._open:
                return None
            self.running.add(key)
            try:
                return await self._step(key)
            except Exception:  # the line must go on; what it worked on is still stored
                logger.exception("%s: a step of %s failed; the next one in %g s", self._name, key, BROKEN_RETRY_S)
                return BROKEN_RETRY_S
            finally:
                self.running.discard(key)


async def _wait_event(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return


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


ATTEMPT_LIMIT_S = 300.0
"""Longest life of one attempt; afterwards it is unknown whether it arrived."""
MIN_LIFETIME_S = 3.0
"""How long a process must have lasted before it repeats anything: one that ends again and again at its start would
spend the only repeat of a message in vain."""

Begin = Callable[[], Coroutine[Any, Any, None]]
"""Notes that a part may have arrived from now on; for any loop. An error means that nothing may go out."""
Deliver = Callable[[OutboxClaim, Begin], Awaitable[SendOutcome]]
"""Sends one part, and awaits `Begin` right before its first byte goes out. An error means that it may have arrived,
unless it was raised before that."""
Check = Callable[[OutboxClaim], Awaitable[DeliveryCheck]]
"""Says whether a part that may have arrived is there."""


class OutboxWorker:
    """Hands parts to the deliverers of their platforms.

    Args:
        settled: called with the id of a reply when one of its parts needs no further attempt.
        at_once: parts that are on their way at once.
        lasting_s: seconds from now before anything is repeated.
    """

    def __init__(
        self, stored: MailboxClient, settled: Callable[[str], None], *, at_once: int, lasting_s: float = MIN_LIFETIME_S
    ) -> None:
        self._stored = stored
        self._settled = settled
        self._repeats_from = time.monotonic() + lasting_s
        self._deliverers: dict[str, tuple[Deliver, Check | None]] = {}
        self._without_deliverer: set[ReplyTarget] = set()
        self.lanes: KeyedWorkers[ReplyTarget] = KeyedWorkers("outbox", self._step, at_once=at_once)

    def use(self, platform: str, deliver: Deliver | None, check: Check | None) -> None:
        """Have `deliver` send what goes to a platform; None lets it wait."""
        if deliver is None:
            self._deliverers.pop(platform, None)
            return
        self._deliverers[platform] = (deliver, check)
        for target in [one for one in self._without_deliverer if one.platform == platform]:
            self._without_deliverer.discard(target)
            self.lanes.wake(target)

    async def _step(self, target: ReplyTarget) -> NextStep:
        found = self._deliverers.get(target.platform)
        if found is None:
            self._without_deliverer.add(target)
            return None
        part = await self._stored.claim(Mailbox.claim_part, target)
        if part is None or isinstance(part, float):
            return part
        outcome = await self._attempt(part, *found)
        wait_s = self._stored.backoff.after(part.attempt) if outcome.after_s is None else outcome.after_s
        wait_s = min(wait_s, LONGEST_WAIT_S)
        state = await self._stored.store_until_done(Mailbox.record_outcome, part, outcome, wait_s=wait_s)
        if state != "sent":
            level = logging.INFO if outcome.kind == "held" else logging.WARNING
            logger.log(level, "part %s to %s is %s: %s: %s", part.key, target, state, outcome.kind, outcome.reason)
        if state == "pending":
            return wait_s
        self._settled(part.reply)
        await self._stored.prune_occasionally()
        return 0.0

    async def _attempt(self, part: OutboxClaim, deliver: Deliver, check: Check | None) -> SendOutcome:
        beginning = _AttemptStart(self._stored, part)
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                instead = await self._resolve_unknown(beginning, check)
                outcome = instead or await deliver(beginning.part, beginning)
        except Exception as exc:  # whatever a platform raises: the request may have gone out
            logger.exception("sending part %s to %s failed", part.key, part.target)
            outcome = SendOutcome.unknown(repr(exc))
        return beginning.outcome_of(outcome)

    async def _resolve_unknown(self, beginning: _AttemptStart, check: Check | None) -> SendOutcome | None:
        """Look for a part that may have arrived; return what becomes of it when it is not sent now.

        Where nobody can say whether it is there, it is sent again once at most, and marked.
        """
        part = beginning.part
        if not part.uncertain:
            return None
        finding = await check(part) if check is not None else DeliveryCheck.unknown()
        if finding.kind == "arrived":
            return SendOutcome.sent(finding.message_id)
        if finding.kind == "safe":
            return None
        if part.repeated:
            return SendOutcome.unknown("the repeat was not confirmed either")
        if (early_s := self._repeats_from - time.monotonic()) > 0:
            return SendOutcome.not_attempted(
                "it may have arrived, and is repeated once this process has lasted", early_s
            )
        beginning.part = dataclasses.replace(part, repeat=True)
        return None


class _AttemptStart:
    """The moment from which on a part may have arrived; once an attempt."""

    def __init__(self, stored: MailboxClient, part: OutboxClaim) -> None:
        self.part = part
        self._stored = stored
        self._state: Literal["before", "noting", "noted"] = "before"
        self._error: Exception | None = None

    async def __call__(self) -> None:
        if self._state == "noted":
            return
        self._error = None
        self._state = "noting"  # who waits for it may be gone when it is noted, and what it lets out is not
        try:
            await self._stored.call(Mailbox.begin_sending, self.part)
        except Exception as exc:
            self._error = exc
            raise
        self._state = "noted"

    def outcome_of(self, outcome: SendOutcome) -> SendOutcome:
        """Return what became of the attempt: what was never begun certainly did not arrive."""
        if self._error is not None:
            return SendOutcome.retry(f"cannot write the state: {self._error}")
        never = outcome.kind == "unknown" and self._state == "before"
        return SendOutcome.retry(outcome.reason) if never else outcome
