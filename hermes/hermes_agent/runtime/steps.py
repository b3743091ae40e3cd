"""Work that continues when one of its calls does not return.

The work is a generator that yields a `DeadlineStep` for each call of plugin code. The generator is suspended during the
call, so that another thread can continue it and abandon the call. `runtime.bridge` provides the threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.runtime.workers import Worker, WorkerPool, run_in_worker, this_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")

OVERRUN: Final = object()
"""Sent into the generator in place of a result if a step missed its deadline."""


class DeadlineStep(LazyNamedTuple):
    """A call that may hang."""

    call: Callable[[], Any]
    """The call; its result is sent into the generator."""
    deadline_s: float
    name: str
    """Name of the call for the log."""
    quiet: bool = False
    """Log no line for a late end, since the call continues on purpose."""


Steps: TypeAlias = Generator[DeadlineStep, Any, T]


class StepWalk(Generic[T]):
    """The execution of a generator: one thread runs it, another one watches the deadline.

    The thread that takes the running step first continues the generator: the runner after the call returned, the
    watcher when it is overdue. The other thread leaves the generator alone.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._running: tuple[DeadlineStep, float] | None = None
        """The running step and its deadline."""
        self._lock = threading.Lock()

    def run(self, answer: Any = None) -> T | None:
        """Run to the end in this thread and return the generator's result; None if the watcher took a step.

        Args:
            answer: result of the last step; None at the start.
        """
        while True:
            try:
                step = self._steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            until = time.monotonic() + step.deadline_s
            running = self._running = (step, until)
            try:
                answer = step.call()
            finally:
                taken = not self._take(running)
            if taken:
                level = logging.DEBUG if step.quiet else logging.INFO
                logger.log(level, "%s: ended after its deadline, result dropped", step.name)
                return None
            if time.monotonic() >= until:  # no check happened in time: the clock decides nevertheless
                answer = OVERRUN

    def take_overdue(self) -> bool:
        """Take the running step if it is overdue; after True, another thread continues with `run(OVERRUN)`."""
        running = self._running
        return running is not None and time.monotonic() >= running[1] and self._take(running)

    def next_check_s(self, shortest_s: float) -> float:
        """Return the seconds until the next check that misses no deadline.

        Args:
            shortest_s: the shortest deadline of a step in seconds; a step that begins now is not overdue before.
        """
        running = self._running
        return shortest_s if running is None else min(shortest_s, max(0.0, running[1] - time.monotonic()))

    def _take(self, running: tuple[DeadlineStep, float]) -> bool:
        with self._lock:
            if self._running is not running:
                return False
            self._running = None
            return True


class _WatchedWalk(Generic[T]):
    """A walk and its current thread."""

    def __init__(self, walk: StepWalk[T], shortest_s: float) -> None:
        self.walk = walk
        self.shortest_s = shortest_s
        self.context = contextvars.copy_context()
        self.answer: Any = None
        """Value with which the next thread continues."""
        self.run: tuple[Worker, asyncio.Future[T]] | None = None
        """The thread that runs it now, and its future."""
        self.overran = False
        """Whether the running step was taken from that thread."""
        self.change: asyncio.Future[None]
        """Done when the walk has ended or its step was taken."""


def _wake(change: asyncio.Future[None], _: object = None) -> None:
    if not change.done():
        change.set_result(None)


class _OverdueWatch:
    """Detects overdue steps with one timer for all walks of a loop; no timer without a walk."""

    def __init__(self) -> None:
        self._hops: set[_WatchedWalk[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, hop: _WatchedWalk[Any]) -> None:
        """Watch a walk, from its loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # walks of the previous loop have ended with it
            self._hops, self._loop, self._timer = set(), loop, None
        self._hops.add(hop)
        self._look_within(loop, hop.shortest_s)

    def remove(self, hop: _WatchedWalk[Any]) -> None:
        """Stop watching a walk."""
        self._hops.discard(hop)

    def _look_within(self, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        at = loop.time() + wait_s
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        self._timer = None
        for hop in self._hops:
            if hop.walk.take_overdue():
                hop.overran = True
                _wake(hop.change)
        if self._hops:
            self._look_within(loop, min(hop.walk.next_check_s(hop.shortest_s) for hop in self._hops))


class StepRunner:
    """Runs generators of steps for a bridge.

    Args:
        waiting: a block in which this thread waits for another one.
    """

    def __init__(self, pool: WorkerPool, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._pool = pool
        self._waiting = waiting
        self._helpers: deque[Worker] = deque()
        """Idle threads for calls that a thread waits for."""
        self._watch = _OverdueWatch()
        self._abandoned: set[asyncio.Task[None]] = set()
        """Walks that lost their caller."""

    async def run(self, steps: Steps[T], *, shortest_s: float) -> T:
        """Run the generator in a worker thread and return its result.

        A step that overruns is abandoned with its thread, and another thread continues in a copy of its context. If the
        caller is cancelled, the slot is free at once; the rest still runs, with the same deadlines.

        Args:
            shortest_s: the shortest deadline of a step in seconds.
        """
        async with self._pool.loop_slots():
            hop = _WatchedWalk(StepWalk(steps), shortest_s)
            try:
                return await self._watched(hop)
            except asyncio.CancelledError:
                if hop.run is not None and (hop.overran or not hop.run[1].done()):
                    rest = asyncio.ensure_future(self._watched_to_the_end(hop))
                    self._abandoned.add(rest)
                    rest.add_done_callback(self._abandoned.discard)
                raise

    async def _watched(self, hop: _WatchedWalk[T]) -> T:
        """Start the walk, or continue to watch it, until its end."""
        while True:
            if hop.overran:
                hop.run, hop.answer, hop.context, hop.overran = None, OVERRUN, hop.context.copy(), False
            worker, future = hop.run or self._hop_on(hop)
            hop.change = asyncio.get_running_loop().create_future()
            future.add_done_callback(partial(_wake, hop.change))
            self._watch.add(hop)
            try:
                await hop.change
            finally:
                self._watch.remove(hop)
                self._pool.release(worker, future)
            if not hop.overran:
                return future.result()

    def _hop_on(self, hop: _WatchedWalk[T]) -> tuple[Worker, asyncio.Future[T]]:
        worker = self._pool.idle_worker()
        walk = cast("Callable[[], T]", partial(hop.walk.run, hop.answer))  # None belongs to a walk that was taken
        hop.run = (worker, run_in_worker(worker, walk, asyncio.get_running_loop(), hop.context))
        return hop.run

    async def _watched_to_the_end(self, hop: _WatchedWalk[T]) -> None:
        with contextlib.suppress(Exception):  # `_drop` logs it
            await self._watched(hop)

    def run_inline(self, steps: Steps[T]) -> T:
        """Run the generator in this thread, which must not be the core loop's, and return its result.

        Only the calls of the steps run in a helper thread, and this thread waits for them until the deadline. They
        need no slot, since this thread waits. The generator and its steps share one copy of this thread's context.
        """
        context, answer = contextvars.copy_context(), None
        while True:
            try:
                step = context.run(steps.send, answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self._run_in_helper(step, context)
            if answer is OVERRUN:
                context = context.copy()

    def _run_in_helper(self, step: DeadlineStep, context: contextvars.Context) -> Any:
        worker = self.idle_worker()
        until = time.monotonic() + step.deadline_s
        outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        is_worker = getattr(this_thread, "is_worker", False)

        def job() -> None:
            this_thread.is_worker = is_worker  # it stands for the waiting thread, also when that lends its slot
            answer, error = None, None
            try:
                answer = context.run(step.call)
            except BaseException as exc:  # noqa: BLE001 - handed to the waiting side
                error = exc
            if time.monotonic() >= until:
                level = logging.DEBUG if step.quiet else logging.INFO
                logger.log(level, "%s: ended after its deadline, result dropped", step.name)
                answer, error = OVERRUN, None
            outcome.put((answer, error))

        worker.do(job)
        try:
            with self._waiting():
                answer, error = outcome.get(timeout=step.deadline_s)
        except queue.Empty:
            worker.retire()
            self._pool.left.add(worker)
            return OVERRUN
        self.return_worker(worker)
        if error is not None:
            raise error
        return answer

    def idle_worker(self) -> Worker:
        """Return an idle thread for a call that another thread waits for; `return_worker` takes it back."""
        try:
            return self._helpers.pop()
        except IndexError:
            return Worker("hermes-beside")

    def return_worker(self, worker: Worker) -> None:
        """Take back an idle thread."""
        self._helpers.append(worker)

    def close(self) -> None:
        """End the idle threads."""
        while self._helpers:
            self._helpers.pop().retire()
