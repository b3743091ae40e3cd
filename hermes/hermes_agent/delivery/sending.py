"""From the outbox to the platforms: each target in order, different ones side by side."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal

from hermes_agent.delivery.lanes import KeyedWorkers, NextStep
from hermes_agent.delivery.mailbox import Mailbox
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.delivery.ownership import LONGEST_WAIT_S
from hermes_agent.delivery.storing import MailboxClient
from hermes_agent.delivery.values import DeliveryCheck, ReplyTarget, SendOutcome

__all__ = ["Begin", "Check", "Deliver", "OutboxWorker"]

logger = logging.getLogger(__name__)

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
