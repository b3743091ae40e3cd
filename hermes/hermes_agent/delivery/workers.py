"""The workers over inbox and outbox: steps of one key in order, steps of different keys in parallel.

`InboxWorker` gives the messages of each conversation to the `Serve` of their platform. `OutboxWorker` gives the parts
for each target to the `Deliver` of their platform. A worker sleeps while nothing waits.
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
"""Longest sleep in seconds; then the clock is read again, because it may have been set."""
BROKEN_RETRY_S = 5.0
"""Seconds between a step that failed unexpectedly, for example because the disk is full, and the next."""
CANCEL_AGAIN_S = 5.0
"""Seconds that a drain waits for a step that does not react to its cancellation."""

NextStep = float | None
"""The seconds until the next step of a key, or None if nothing waits."""


class KeyedWorkers(Generic[K]):
    """Runs `step(key)` for each key that is woken, until the step returns None.

    Args:
        step: runs the next step of a key.
        max_parallel: steps that may run in parallel.
    """

    def __init__(self, name: str, step: Callable[[K], Awaitable[NextStep]], *, max_parallel: int) -> None:
        self._name = name
        self._step = step
        self._slots = asyncio.Semaphore(max_parallel)
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._wakes: dict[K, asyncio.Event] = {}
        self._sleeping: set[K] = set()
        self._closed = self._is_draining_all = False
        self.running: set[K] = set()
        """Keys of the running steps."""

    def wake(self, key: K) -> None:
        """Run steps of a key, because work may wait."""
        if self._closed:
            return
        if key in self._tasks:
            self._wakes[key].set()
            return
        self._wakes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._work(key), name=f"{self._name} {key}")

    async def drain(self, timeout_s: float, *, finish_due: bool = False) -> None:
        """Start no further step; cancel the steps that run after `timeout_s` seconds.

        Args:
            finish_due: whether steps that need not wait still start.
        """
        self._closed, self._is_draining_all = True, finish_due
        for key, task in self._tasks.items():
            if key in self._sleeping or not (finish_due or key in self.running):
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
        wake = self._wakes[key]
        try:
            while self._open:
                wake.clear()
                wait_s = await self._one_step(key)
                if (wait_s is None and not wake.is_set()) or (wait_s and self._closed):
                    return
                if wait_s:
                    self._sleeping.add(key)
                    try:
                        await _wait_event(wake, min(wait_s, MAX_SLEEP_S))
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
            except Exception:  # the next steps must follow; the row is still stored
                logger.exception("%s: step of %s failed, the next in %g s", self._name, key, BROKEN_RETRY_S)
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
"""Limits after which a message is abandoned: failed attempts; or started attempts together with its age in seconds.

The second limit is for a message that ends the process each time. It has both numbers, because another message may have
ended the process."""


class ClaimedMessage:
    """A claimed message.

    Attributes:
        id: stable over restarts: the key of the turn.
        attempt: 1 the first time; more if an earlier attempt did not finish.
        notes: values that `save_notes` stored.
        received_at: seconds since the epoch.
    """

    def __init__(self, claim: InboxClaim, stored: MailboxClient) -> None:
        self._claim = claim
        self._mailbox = stored
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
        """Store values with the message for a later attempt; they are on disk when this returns.

        Raises:
            StaleClaim: the message has another claim.
        """
        self.notes.update(notes)
        await self._mailbox.call(Mailbox.save_notes, self._claim, dict(self.notes))

    async def absorb(self, other: int) -> bool:
        """Let the next message of the conversation end, or wait again, together with this one.

        Args:
            other: the id of its receipt.

        Returns:
            False if it is not the next waiting message; then it is processed after this one.

        Raises:
            StaleClaim: the message has another claim.
        """
        return await self._mailbox.call(Mailbox.absorb, self._claim, other)

    async def done(self) -> None:
        """End a message of `DeliveryService.begin`; other messages end with the replies of their `Serve`."""
        await self._mailbox.store_until_done(Mailbox.finish, self._claim, ())

    async def release(self) -> None:
        """Let a message of `DeliveryService.begin` wait for its next attempt."""
        await self._mailbox.store_until_done(Mailbox.requeue, self._claim)


Serve = Callable[[ClaimedMessage], Awaitable[Sequence[OutboundReply]]]
"""Answers a message.

It is called again: after `RetryLater` at that time, after another error with backoff, up to `MAX_ERRORS` times, after a
cancellation at the next start."""
Abandon = Callable[[ClaimedMessage, BaseException], Awaitable[Sequence[OutboundReply]]]
"""Returns the replies to a message that is abandoned."""


class InboxWorker:
    """Gives messages to the `Serve` of their platforms.

    Args:
        on_answered: called with the replies that were stored.
        max_parallel: messages that are processed in parallel.
    """

    def __init__(
        self, mailbox: MailboxClient, on_answered: Callable[[Sequence[OutboundReply]], None], *, max_parallel: int
    ) -> None:
        self._mailbox = mailbox
        self._on_answered = on_answered
        self._servers: dict[str, tuple[Serve, Abandon | None]] = {}
        self._without_server: set[Conversation] = set()
        self.workers: KeyedWorkers[Conversation] = KeyedWorkers("inbox", self._step, max_parallel=max_parallel)

    def use(self, platform: str, serve: Serve | None, abandon: Abandon | None) -> None:
        """Process the messages of a platform with `serve`; None lets them wait."""
        if serve is None:
            self._servers.pop(platform, None)
            return
        self._servers[platform] = (serve, abandon)
        for conversation in [each for each in self._without_server if each[0] == platform]:
            self._without_server.discard(conversation)
            self.workers.wake(conversation)

    async def _step(self, conversation: Conversation) -> NextStep:
        found = self._servers.get(conversation[0])
        if found is None:
            self._without_server.add(conversation)
            return None
        claim = await self._mailbox.claim(Mailbox.claim_message, conversation)
        if claim is None or isinstance(claim, float):
            return claim
        try:
            replies, failure = await self._answer(claim, *found)
        except asyncio.CancelledError:
            await self._release(claim)
            raise
        except RetryLater as exc:
            logger.info("message %d of %s: retry in %g s: %s", claim.id, claim.platform, exc.after_s, exc)
            return await self._requeue(claim, exc.after_s)
        except Exception as exc:  # of a front end; the message waits
            logger.exception("message %d of %s: failed", claim.id, claim.platform)
            return await self._requeue(claim, self._mailbox.backoff.after(claim.errors + 1), error=repr(exc))
        self._on_answered(await self._mailbox.store_until_done(Mailbox.finish, claim, replies, failure=failure) or ())
        await self._mailbox.prune_occasionally()
        return 0.0

    async def _answer(
        self, claim: InboxClaim, serve: Serve, abandon: Abandon | None
    ) -> tuple[list[OutboundReply], str]:
        """Return the replies, and why the message is abandoned, or ""."""
        message = ClaimedMessage(claim, self._mailbox)
        error: Exception
        if claim.attempt > MAX_BEGUN and self._mailbox.clock() - claim.received_at > POISON_AGE_S:
            error = RuntimeError(f"it was started {MAX_BEGUN} times and never finished")
        else:
            try:
                return _check_storable(await serve(message)), ""
            except RetryLater:
                raise
            except Exception as exc:
                if claim.errors + 1 < MAX_ERRORS:
                    raise
                error = exc
        logger.error("message %d of %s: abandoned", claim.id, claim.platform, exc_info=error)
        try:
            return (_check_storable(await abandon(message, error)) if abandon is not None else []), repr(error)
        except Exception:  # the message must end
            logger.exception("message %d of %s: no reply about its end", claim.id, claim.platform)
            return [], repr(error)

    async def _requeue(self, claim: InboxClaim, wait_s: float, *, error: str = "") -> NextStep:
        wait_s = min(wait_s, LONGEST_WAIT_S)
        await self._mailbox.store_until_done(Mailbox.requeue, claim, wait_s=wait_s, error=error)
        return wait_s

    async def _release(self, claim: InboxClaim) -> None:
        try:
            await self._mailbox.call(Mailbox.requeue, claim, self._mailbox.clock())
        except (StaleClaim, sqlite3.OperationalError) as exc:
            logger.info("message %d: waits for the next start: %s", claim.id, exc)


def _check_storable(replies: Sequence[OutboundReply]) -> list[OutboundReply]:
    """Return the replies; raise TypeError for one that is not JSON, as an error of the front end."""
    for reply in replies:
        json.dumps(reply.parts)
    return list(replies)


ATTEMPT_LIMIT_S = 300.0
"""Longest duration of one attempt in seconds; after it the outcome is unknown."""
MIN_LIFETIME_S = 3.0
"""Age of a process in seconds before it repeats parts: one that ends at each start would waste the only repeat."""

Begin = Callable[[], Coroutine[Any, Any, None]]
"""Records that a part may arrive from now on; may be awaited on any loop. After an error nothing may be sent."""
Deliver = Callable[[OutboxClaim, Begin], Awaitable[SendOutcome]]
"""Sends one part, and awaits `Begin` before its first byte. After an error the part may have arrived, unless the error
came before `Begin`."""
Check = Callable[[OutboxClaim], Awaitable[DeliveryCheck]]
"""Returns whether a part that may have arrived did arrive."""


class OutboxWorker:
    """Gives parts to the `Deliver` of their platforms.

    Args:
        on_settled: called with the id of a reply when one of its parts needs no further attempt.
        max_parallel: parts that are sent in parallel.
        min_lifetime_s: seconds from now before any part is repeated.
    """

    def __init__(
        self,
        mailbox: MailboxClient,
        on_settled: Callable[[str], None],
        *,
        max_parallel: int,
        min_lifetime_s: float = MIN_LIFETIME_S,
    ) -> None:
        self._mailbox = mailbox
        self._on_settled = on_settled
        self._repeats_from = time.monotonic() + min_lifetime_s
        self._deliverers: dict[str, tuple[Deliver, Check | None]] = {}
        self._without_deliverer: set[ReplyTarget] = set()
        self.workers: KeyedWorkers[ReplyTarget] = KeyedWorkers("outbox", self._step, max_parallel=max_parallel)

    def use(self, platform: str, deliver: Deliver | None, check: Check | None) -> None:
        """Send the parts to a platform with `deliver`; None lets them wait."""
        if deliver is None:
            self._deliverers.pop(platform, None)
            return
        self._deliverers[platform] = (deliver, check)
        for target in [each for each in self._without_deliverer if each.platform == platform]:
            self._without_deliverer.discard(target)
            self.workers.wake(target)

    async def _step(self, target: ReplyTarget) -> NextStep:
        found = self._deliverers.get(target.platform)
        if found is None:
            self._without_deliverer.add(target)
            return None
        part = await self._mailbox.claim(Mailbox.claim_part, target)
        if part is None or isinstance(part, float):
            return part
        outcome = await self._attempt(part, *found)
        wait_s = self._mailbox.backoff.after(part.attempt) if outcome.after_s is None else outcome.after_s
        wait_s = min(wait_s, LONGEST_WAIT_S)
        state = await self._mailbox.store_until_done(Mailbox.record_outcome, part, outcome, wait_s=wait_s)
        if state != "sent":
            level = logging.INFO if outcome.kind == "held" else logging.WARNING
            logger.log(level, "part %s to %s: %s: %s: %s", part.key, target, state, outcome.kind, outcome.reason)
        if state == "pending":
            return wait_s
        self._on_settled(part.reply)
        await self._mailbox.prune_occasionally()
        return 0.0

    async def _attempt(self, part: OutboxClaim, deliver: Deliver, check: Check | None) -> SendOutcome:
        start = _AttemptStart(self._mailbox, part)
        try:
            async with asyncio.timeout(ATTEMPT_LIMIT_S):
                if known := await self._resolve_unknown(start, check):
                    return known  # about the attempt before: this one is not begun
                outcome = await deliver(start.part, start)
        except Exception as exc:  # of a platform: the request may have been sent
            logger.exception("part %s to %s: sending failed", part.key, part.target)
            outcome = SendOutcome.unknown(repr(exc))
        return start.outcome_of(outcome)

    async def _resolve_unknown(self, start: _AttemptStart, check: Check | None) -> SendOutcome | None:
        """Check a part that may have arrived; return its outcome if it is not sent now, or None.

        If the platform cannot tell, the part is sent again at most once, and marked as a repeat.
        """
        part = start.part
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
        start.part = dataclasses.replace(part, repeat=True)
        return None


class _AttemptStart:
    """The `Begin` of one attempt: records once that its part may arrive from now on."""

    def __init__(self, mailbox: MailboxClient, part: OutboxClaim) -> None:
        self.part = part
        self._mailbox = mailbox
        self._state: Literal["before", "recording", "recorded"] = "before"
        self._error: Exception | None = None

    async def __call__(self) -> None:
        if self._state == "recorded":
            return
        self._error = None
        self._state = "recording"  # the caller may be cancelled before the record is stored
        try:
            await self._mailbox.call(Mailbox.begin_sending, self.part)
        except Exception as exc:
            self._error = exc
            raise
        self._state = "recorded"

    def outcome_of(self, outcome: SendOutcome) -> SendOutcome:
        """Return the outcome of the attempt: a part that was never begun certainly did not arrive."""
        if self._error is not None:
            return SendOutcome.retry(f"cannot write the state: {self._error}")
        is_unsent = outcome.kind == "unknown" and self._state == "before"
        return SendOutcome.retry(outcome.reason) if is_unsent else outcome
