"""The mailbox as the daemon uses it: in its lane, with the clock, and with patience when the disk is full."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from hermes_agent.delivery.mailbox import Mailbox
from hermes_agent.delivery.values import StaleClaim

__all__ = ["Backoff", "MailboxExecutor", "MailboxClient"]

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


class Backoff:
    """How long to wait after a failed attempt: doubling, with jitter, so that many do not come back at once."""

    def __init__(self, first_s: float = 1.0, longest_s: float = 600.0) -> None:
        self._first_s = first_s
        self._longest_s = longest_s

    def after(self, attempt: int) -> float:
        """Return seconds after attempt number `attempt`, from 1."""
        wait_s = min(self._first_s * 2.0 ** min(attempt - 1, 30), self._longest_s)
        return wait_s * random.uniform(0.75, 1.25)


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
