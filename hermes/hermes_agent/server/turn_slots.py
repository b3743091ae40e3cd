"""Slots of turns: one per session, a limit of running turns, others in order, none while stopping."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from hermes_agent.core.errors import RetryLater
from hermes_agent.server.http_types import STOPPING, HttpError
from hermes_agent.server.settings import HttpSettings
from hermes_agent.service.shutdown import RETRY_AFTER_S, TurnDrain

CLIENT_GONE = "the client has disconnected"
BUSY_RETRY_S = 5.0
"""Delay for clients when too many requests wait."""


class ClientLeft(Exception):
    """Error: a slot was interrupted before its turn started; the argument is the reason."""


class TurnSlot:
    """The place of a request, from its arrival to the end of its answer."""

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        """None: the request has a session of its own."""
        self.reason = ""
        """Reason of the interrupt; "" without one."""
        self._granted: asyncio.Future[None] | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def is_client_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self.reason == CLIENT_GONE

    def wait(self) -> asyncio.Future[None]:
        """Return the future that `TurnSlots` resolves when the turn may run; `interrupt` sets `ClientLeft`."""
        self._granted = asyncio.get_running_loop().create_future()
        return self._granted

    def on_interrupt(self, stop: Callable[[], None]) -> None:
        """Call `stop` when the slot is interrupted, or now if it is interrupted already."""
        self._stop = stop
        if self.reason:
            stop()

    def interrupt(self, reason: str) -> None:
        """End the wait, or the turn at its next safe point. The first reason stays."""
        if self.reason:
            return
        self.reason = reason
        if self._granted is not None and not self._granted.done():
            self._granted.set_exception(ClientLeft(reason))
        elif self._stop is not None:
            self._stop()


class TurnSlots:
    """Grants slots, for one loop.

    Args:
        on_change: called after a change of the number of running turns.
    """

    def __init__(self, settings: HttpSettings, on_change: Callable[[], None] | None = None) -> None:
        self.on_change = on_change
        self.drain = TurnDrain()
        self._settings = settings
        self._running: set[TurnSlot] = set()
        self._busy: set[str] = set()
        self._queue: dict[TurnSlot, asyncio.Future[None]] = {}
        self._waiting: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Number of running turns."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue)

    @property
    def is_closed(self) -> bool:
        """Whether new turns are rejected."""
        return self.drain.closed

    @contextlib.asynccontextmanager
    async def take(self, slot: TurnSlot) -> AsyncIterator[None]:
        """Wait until the turn of `slot` may run; it counts as running inside the block.

        Raises:
            RetryLater: the agent is stopping.
            HttpError: 503 if too many requests wait, 429 if too many wait for this session.
            ClientLeft: the slot was interrupted while it waited.
        """
        await self._enter(slot)
        try:
            with self.drain.turn():
                yield
        finally:
            self._leave(slot)

    def close(self) -> None:
        """Reject new and waiting turns; running turns continue."""
        self.drain.close()
        for granted in list(self._queue.values()):
            if not granted.done():
                granted.set_exception(RetryLater(STOPPING, after_s=RETRY_AFTER_S))

    def interrupt_all(self) -> None:
        """Interrupt the running turns."""
        for slot in list(self._running):
            slot.interrupt(STOPPING)

    def check_open(self) -> None:
        """Raise `RetryLater` if new turns are rejected, before the body is read."""
        if self.is_closed:
            raise RetryLater(f"{STOPPING} and accepts no new turns", after_s=RETRY_AFTER_S)

    async def _enter(self, slot: TurnSlot) -> None:
        self.check_open()
        if slot.reason:
            raise ClientLeft(slot.reason)
        if self._may_start(slot) and not (slot.session_id and self._waiting[slot.session_id]):
            self._start(slot)
            return
        self._refuse_beyond_limits(slot)
        granted = slot.wait()
        self._queue[slot] = granted
        self._count_waiting(slot, 1)
        try:
            await granted
        except BaseException:
            if slot in self._running:  # granted, but cancelled before it continued
                self._leave(slot)
            raise
        finally:
            if self._queue.pop(slot, None) is not None:
                self._count_waiting(slot, -1)
                self._wake()

    def _refuse_beyond_limits(self, slot: TurnSlot) -> None:
        limit = self._settings.max_queued_per_session
        if slot.session_id and self._waiting[slot.session_id] >= limit:
            raise HttpError(
                429,
                f"{limit} requests are waiting for session {slot.session_id}",
                code="session_busy",
                retry_after_s=BUSY_RETRY_S,
            )
        if len(self._queue) >= self._settings.max_queued_turns:
            raise HttpError(
                503,
                f"{self.running} turns are running and {self.waiting} are waiting",
                code="overloaded",
                retry_after_s=BUSY_RETRY_S,
            )

    def _may_start(self, slot: TurnSlot) -> bool:
        return self.running < self._settings.max_concurrent_turns and slot.session_id not in self._busy

    def _start(self, slot: TurnSlot) -> None:
        self._running.add(slot)
        if slot.session_id:
            self._busy.add(slot.session_id)
        self._notify_change()

    def _leave(self, slot: TurnSlot) -> None:
        self._running.discard(slot)
        if slot.session_id:
            self._busy.discard(slot.session_id)
        self._wake()
        self._notify_change()

    def _wake(self) -> None:
        """Start the waiting turns that may start, in the order of arrival."""
        for waiting, granted in list(self._queue.items()):
            if not granted.done() and self._may_start(waiting):
                del self._queue[waiting]
                self._count_waiting(waiting, -1)
                self._start(waiting)
                granted.set_result(None)

    def _count_waiting(self, slot: TurnSlot, step: int) -> None:
        if slot.session_id:
            self._waiting[slot.session_id] += step
            if not self._waiting[slot.session_id]:
                del self._waiting[slot.session_id]

    def _notify_change(self) -> None:
        if self.on_change is not None:
            self.on_change()
