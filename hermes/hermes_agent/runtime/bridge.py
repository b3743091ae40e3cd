"""The border between the async core, worker threads and plugin code.

There are two loops. The core loop runs only code of this project, and the watchdog pings from it. The plugin loop runs
the coroutines of plugins, so that a blocking one does not block the core. Sync code runs in a limited number of worker
threads with the context variables of the caller. No other module starts a thread, a loop or an executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
from asyncio import _get_running_loop as _running_loop  # cheaper than an exception without a running loop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from hermes_agent.runtime.loops import LoopThread
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep, StepRunner, Steps
from hermes_agent.runtime.workers import (
    WORKERS,
    SerialExecutor,
    WorkerPool,
    run_guarded,
    run_in_worker,
    safe_exception,
    this_thread,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

ASYNC_HANDLER_LIMIT_S = 300.0
"""Longest run of a plugin's coroutine in seconds while a caller waits for it (plugin contract §4.4)."""

BLOCKED_S = 1.0
"""Seconds that a coroutine waits for a blocked plugin loop before it gets its own loop."""

_NOTHING = contextlib.nullcontext()


class Bridge:
    """Worker threads and the plugin loop of one host."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = WorkerPool(workers)
        self._steps = StepRunner(self._pool, self._waiting_for_others)
        self._plugin_loop: asyncio.AbstractEventLoop | None = None
        self._plugin_thread: threading.Thread | None = None
        self._plugin_waits = 0
        """Number of calls that block the plugin loop until the core or a helper thread answers."""
        self._lock = threading.Lock()
        self._lanes: list[SerialExecutor] = []

    def serial_executor(self, name: str) -> SerialExecutor:
        """Return a new serial executor that `close` ends."""
        lane = SerialExecutor(name)
        self._lanes.append(lane)
        return lane

    def loop(self, name: str) -> LoopThread:
        """Return a new loop in its own thread, for much work that must not run on the core loop.

        The caller closes it.
        """
        return LoopThread(name)

    async def run(self, fn: Callable[..., T], *args: Any, deadline_s: float | None = None, **kwargs: Any) -> T:
        """Run sync `fn` in a worker thread and return its result.

        Args:
            deadline_s: seconds to wait; None waits without a limit. A call that overruns, or loses its caller, keeps
                its thread until it ends, and another thread takes its slot.

        Raises:
            TimeoutError: the deadline has passed.
            RuntimeError: `fn` raised `SystemExit`, which is the cause.
        """
        async with self._pool.loop_slots():
            worker = self._pool.idle_worker()
            future = run_in_worker(worker, lambda: fn(*args, **kwargs), asyncio.get_running_loop())
            try:
                if deadline_s is None:
                    return await asyncio.shield(future)
                await asyncio.wait((future,), timeout=deadline_s)
            finally:
                self._pool.release(worker, future)
            if not future.done():
                raise TimeoutError(f"no result within {deadline_s:g} s")
            return future.result()

    async def run_steps(self, steps: Steps[T], *, shortest_s: float) -> T:
        """Run the generator in a worker thread and return its result.

        A step that overruns is abandoned with its thread, and another thread continues in a copy of its context. If the
        caller is cancelled, the slot is free at once; the rest still runs, with the same deadlines.

        Args:
            shortest_s: the shortest deadline of a step in seconds.
        """
        return await self._steps.run(steps, shortest_s=shortest_s)

    def run_steps_inline(self, steps: Steps[T]) -> T:
        """Run the generator in this thread, which must not be the core loop's, and return its result.

        Only the calls of the steps run in a helper thread, and this thread waits for them until the deadline. They
        need no slot, since this thread waits. The generator and its steps share one copy of this thread's context.
        """
        return self._steps.run_inline(steps)

    def run_with_limit(self, call: Callable[[], T], limit_s: float) -> T:
        """Run `call` in a helper thread of this one, which must not be the core loop's, and return its result.

        Raises:
            TimeoutError: the time is over; the call is abandoned with its thread.
        """
        answer = self.run_steps_inline(_single_step(call, limit_s))
        if answer is OVERRUN:
            raise TimeoutError(f"no answer within {limit_s:g} s")
        return answer  # type: ignore[no-any-return]

    def wait_core(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the core loop, from a worker, and wait for its result.

        Without a running core loop (a command in the terminal) a loop is made for this call.
        """
        here = _running_loop()
        if self._pool.core is None or not self._pool.core.is_running():
            return asyncio.run(coroutine) if here is None else _in_fresh_loop(coroutine, None)
        if here is self._pool.core:
            coroutine.close()
            raise RuntimeError("wait_core would block the core loop: await the coroutine instead")
        if getattr(this_thread, "is_worker", False):
            coroutine = self._lend_slot(coroutine)
        with self._waiting_for_others():
            return asyncio.run_coroutine_threadsafe(run_guarded(coroutine), self._pool.core).result()

    @property
    def has_core_loop(self) -> bool:
        """Whether a core loop runs; a command in the terminal may have none."""
        return self._pool.core is not None and self._pool.core.is_running()

    @property
    def is_core_thread(self) -> bool:
        """Whether this is the thread of the core loop, which must not wait."""
        return self.has_core_loop and _running_loop() is self._pool.core

    async def on_core(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the core loop and await its result; without a core loop, run it here.

        A cancelled caller cancels the coroutine.
        """
        if not self.has_core_loop or self.is_core_thread:
            return await coroutine
        assert self._pool.core is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run_guarded(coroutine), self._pool.core))

    async def on_plugin(self, coroutine: Coroutine[Any, Any, T], *, deadline_s: float | None) -> T:
        """Run a plugin's coroutine on the plugin loop and await its result, from the core loop.

        If it is cancelled or overruns, it is cancelled there, and its end is not awaited.

        Raises:
            TimeoutError: the deadline has passed.
            RuntimeError: it raised `SystemExit`.
        """
        future = asyncio.run_coroutine_threadsafe(run_guarded(coroutine), self._plugin_loop_running())
        return await asyncio.wait_for(asyncio.wrap_future(future), deadline_s)

    def _waiting_for_others(self) -> AbstractContextManager[None]:
        """Record that this thread is blocked during the block, if it is the plugin loop's."""
        here = _running_loop()
        return _NOTHING if here is None or here is not self._plugin_loop else self._plugins_wait()

    @contextlib.contextmanager
    def _plugins_wait(self) -> Iterator[None]:
        with self._lock:
            self._plugin_waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._plugin_waits -= 1

    async def _lend_slot(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Lend the slot of this waiting worker: its result may need one."""
        assert self._pool.slots is not None
        self._pool.slots.release()
        try:
            return await coroutine
        finally:
            await self._pool.slots.acquire()

    def spawn(self, work: Callable[[], None]) -> None:
        """Run `work` in another thread with this context's variables, from any thread; its end is not awaited."""
        worker = self._steps.idle_worker()
        context = contextvars.copy_context()

        def job() -> None:
            this_thread.is_worker = False
            try:
                context.run(work)
            except BaseException:
                logger.exception("background call: failed")
            self._steps.return_worker(worker)

        worker.do(job)

    def call_later(self, delay_s: float, fn: Callable[[], None]) -> None:
        """Call `fn`, which must not block, on the core loop after `delay_s` seconds; from any thread.

        Without a core loop it is called on the plugin loop, as soon as no plugin blocks that.
        """
        loop = self._pool.core if self.has_core_loop else self._plugin_loop_running()
        assert loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no later
            loop.call_soon_threadsafe(loop.call_later, delay_s, fn)

    async def off_loop(self, fn: Callable[[], T]) -> T:
        """Run sync `fn` in a thread next to the plugin loop, with this context's variables.

        It needs no slot: the thread that waits for the coroutine has one.
        """
        worker = self._steps.idle_worker()

        def stand_in() -> T:
            this_thread.is_worker = self._pool.slots is not None
            return fn()

        future = run_in_worker(worker, stand_in, asyncio.get_running_loop())
        try:
            return await asyncio.shield(future)
        finally:
            if future.done():
                self._steps.return_worker(worker)
            else:
                worker.retire()

    def wait_plugin(self, coroutine: Coroutine[Any, Any, T], *, deadline_s: float | None = ASYNC_HANDLER_LIMIT_S) -> T:
        """Run a plugin's coroutine on the plugin loop and wait, from any thread except the core's.

        On the plugin loop itself (an async handler calls an async tool synchronously), or while the plugin loop waits
        for the core, the coroutine gets its own thread and loop, to prevent a deadlock.

        Raises:
            TimeoutError: the deadline has passed; the coroutine is cancelled.
            RuntimeError: it raised `SystemExit`, or this is the thread of the core loop.
        """
        here = _running_loop()
        if here is not None and here is self._pool.core:
            coroutine.close()
            raise RuntimeError("wait_plugin would block the core loop: call it in a worker (`Bridge.run`)")
        if here is not None or self._plugin_waits:
            return _in_fresh_loop(coroutine, deadline_s)
        start_by_s = BLOCKED_S if deadline_s is None else min(BLOCKED_S, deadline_s / 4)
        ticket = _Ticket(coroutine)
        future = asyncio.run_coroutine_threadsafe(run_guarded(ticket.use()), self._plugin_loop_running())
        try:
            return future.result(start_by_s)
        except TimeoutError:
            if future.done():  # the coroutine raised it
                raise
        left_s = None if deadline_s is None else deadline_s - start_by_s
        if ticket.take():
            logger.warning("a plugin blocks the plugin loop; %s gets a loop of its own", coroutine)
            return _in_fresh_loop(coroutine, left_s)
        try:
            return future.result(left_s)
        except TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"no result within {deadline_s:g} s") from None
            raise

    def stalled(self) -> list[tuple[threading.Thread, float]]:
        """Return the threads that run beyond their deadline, with the seconds since then.

        The plugin loop is included if it does not answer within a second. Not for the core loop, since it waits that
        second.
        """
        thread, loop = self._plugin_thread, self._plugin_loop
        found = self._pool.left.alive()
        if thread is not None and loop is not None and not self._plugin_waits:
            answered = threading.Event()
            with contextlib.suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(answered.set)
                if not answered.wait(BLOCKED_S):
                    found.append((thread, BLOCKED_S))
        return found

    def close(self) -> None:
        """Stop the plugin loop and the idle threads; calls that still run end with the process."""
        self._pool.close()
        self._steps.close()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        if self._plugin_loop is not None:
            self._plugin_loop.call_soon_threadsafe(self._plugin_loop.stop)
            if self._plugin_thread is not None:
                self._plugin_thread.join(1.0)
            self._plugin_loop = self._plugin_thread = None

    def _plugin_loop_running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._plugin_loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_keep_running, args=(loop,), name="hermes-plugins", daemon=True)
                thread.start()
                self._plugin_loop, self._plugin_thread = loop, thread
            return self._plugin_loop


class _Ticket(Generic[T]):
    """Lets one of two loops run a coroutine."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._taken = threading.Lock()

    def take(self) -> bool:
        """Return whether the caller is the first, which then runs the coroutine."""
        return self._taken.acquire(blocking=False)

    async def use(self) -> T:
        """Run the coroutine here, unless the other loop runs it."""
        if not self.take():
            raise asyncio.CancelledError
        return await self._coroutine


def _single_step(call: Callable[[], Any], limit_s: float) -> Steps[Any]:
    return (yield DeadlineStep(call, limit_s, "a call"))


def _keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """Run the plugin loop until it is stopped; a plugin's task that raises `SystemExit` does not end it."""
    while True:
        try:
            loop.run_forever()
            break
        except BaseException as exc:  # noqa: BLE001 - a plugin's task; the others go on
            logger.error("plugin loop: task ended: %r", exc)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=0.5))
    loop.close()


def _in_fresh_loop(coroutine: Coroutine[Any, Any, T], deadline_s: float | None) -> T:
    outcome: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def target() -> None:
        try:
            outcome.put((context.run(asyncio.run, asyncio.wait_for(coroutine, deadline_s)), None))
        except BaseException as exc:  # noqa: BLE001 - handed to the waiting side
            outcome.put((None, safe_exception(exc)))

    threading.Thread(target=target, name="hermes-nested", daemon=True).start()
    value, error = outcome.get()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
