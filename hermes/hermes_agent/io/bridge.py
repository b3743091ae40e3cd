"""The one place where the async core meets threads and other people's code.

Two loops: the core loop is ours alone (the watchdog beats on it); the plugin loop runs every coroutine of a
plugin, so that one that blocks its loop blocks no core work. Sync code runs in bounded worker threads with the
caller's context variables. Nothing else of ours starts a thread, a loop or an executor.
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
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

from hermes_agent.io.steps import OVERRAN, Step, Steps, Walk

__all__ = ["Bridge", "Lane"]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

WORKERS = 32
"""Sync calls that may run at once; more wait for a slot."""
ASYNC_HANDLER_LIMIT_S = 300.0
"""Longest life of a plugin's coroutine that somebody waits for (plugin contract §4.4)."""

Job = Callable[[], None]

_thread = threading.local()
"""`is_worker`: whether this thread holds a slot of a bridge."""


class _Worker:
    """A daemon thread that runs one job after another, until it is retired."""

    def __init__(self, name: str) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.retired = False
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        _thread.is_worker = True
        while (job := self.jobs.get()) is not None:
            job()
            del job

    def retire(self) -> None:
        """End after the job that runs now."""
        self.retired = True
        self.jobs.put(None)


def _settle(future: asyncio.Future[T], value: T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)  # type: ignore[arg-type]


def _bearable(error: BaseException) -> BaseException:
    """Return an error that a task may raise: `SystemExit` in one would end its loop, `StopIteration` cannot be set."""
    if isinstance(error, SystemExit | KeyboardInterrupt | StopIteration | GeneratorExit):
        bearable = RuntimeError(f"the call ended with {error!r}")
        bearable.__cause__ = error
        return bearable
    return error


async def _contained(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as exc:
        raise _bearable(exc) from exc


def _start(
    worker: _Worker,
    fn: Callable[[], T],
    loop: asyncio.AbstractEventLoop,
    context: contextvars.Context | None = None,
) -> asyncio.Future[T]:
    """Run `fn` in `worker` with `context`, or a copy of the caller's; return a future of `loop`."""
    future: asyncio.Future[T] = loop.create_future()
    context = context or contextvars.copy_context()

    def job() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = context.run(fn)
        except BaseException as exc:  # noqa: BLE001 - handed to the waiting side
            error = _bearable(exc)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, value, error)

    worker.jobs.put(job)
    return future


class Lane:
    """Runs sync calls one after another in a thread of its own; for a resource with one writer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: _Worker | None = None

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` after everything that was handed in before; the result is the call's.

        The call is finished even if the waiting side is cancelled.
        """
        if self._worker is None:
            self._worker = _Worker(f"hermes-{self._name}")
        return await asyncio.shield(_start(self._worker, lambda: fn(*args, **kwargs), asyncio.get_running_loop()))

    def close(self) -> None:
        """End the thread after what is queued."""
        if self._worker is not None:
            self._worker.retire()
            self._worker = None


class _Hop(Generic[T]):
    """A walk and where it is."""

    def __init__(self, walk: Walk[T], shortest_s: float) -> None:
        self.walk = walk
        self.shortest_s = shortest_s
        self.context = contextvars.copy_context()
        self.answer: Any = None
        """What the walk begins with in the next thread."""
        self.run: tuple[_Worker, asyncio.Future[T]] | None = None
        """Where it is walked now."""


class Bridge:
    """Worker threads and the plugin loop of one host."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._idle: list[_Worker] = []
        self._beside: deque[_Worker] = deque()
        """Idle threads for what a thread waits for that is itself no waiting side of the core."""
        self._watches: set[asyncio.Task[None]] = set()
        """Of walks whose waiting side was cancelled."""
        self._limit = workers
        self._slots: asyncio.Semaphore | None = None
        self._core: asyncio.AbstractEventLoop | None = None
        self._plugin_loop: asyncio.AbstractEventLoop | None = None
        self._plugin_thread: threading.Thread | None = None
        self._plugin_waits = 0
        """How many calls block the plugin loop until the core, or a thread beside it, answers."""
        self._lock = threading.Lock()
        self._count = 0
        self._lanes: list[Lane] = []

    def lane(self, name: str) -> Lane:
        """Return a new lane that `close` ends."""
        lane = Lane(name)
        self._lanes.append(lane)
        return lane

    async def run(self, fn: Callable[..., T], *args: Any, deadline_s: float | None = None, **kwargs: Any) -> T:
        """Run sync `fn` in a worker thread and return its result.

        Args:
            deadline_s: seconds to wait; None waits for ever. A call that overruns, or whose waiting side is
                cancelled, keeps its thread until it ends by itself, and another thread takes its slot.

        Raises:
            TimeoutError: the deadline is over.
            RuntimeError: `fn` wanted to end the process (`SystemExit`); that is the cause.
        """
        async with self._slots_of_this_loop():
            worker = self._idle_worker()
            future = _start(worker, lambda: fn(*args, **kwargs), asyncio.get_running_loop())
            try:
                await asyncio.wait((future,), timeout=deadline_s)
            finally:
                self._leave(worker, future)
            if not future.done():
                raise TimeoutError(f"no result within {deadline_s:g} s")
            return future.result()

    async def run_steps(self, steps: Steps[T], *, shortest_s: float) -> T:
        """Run the generator in a worker thread and return its result.

        A step that overruns is left behind with its thread, and another thread goes on in a copy of its context. When
        the waiting side is cancelled the slot is free at once; the rest is still walked, under the same deadlines.

        Args:
            shortest_s: the shortest deadline of a step.
        """
        async with self._slots_of_this_loop():
            hop = _Hop(Walk(steps), shortest_s)
            try:
                return await self._watched(hop)
            except asyncio.CancelledError:
                if hop.run is not None and not hop.run[1].done():
                    rest = asyncio.ensure_future(self._watched_to_the_end(hop))
                    self._watches.add(rest)
                    rest.add_done_callback(self._watches.discard)
                raise

    async def _watched(self, hop: _Hop[T]) -> T:
        """Start the walk, or go on watching it, until it is at its end."""
        while True:
            worker, future = hop.run or self._hop_on(hop)
            try:
                while not future.done() and not hop.walk.overran():
                    await asyncio.wait((future,), timeout=hop.walk.look_again_s(hop.shortest_s))
            finally:
                self._leave(worker, future)
            if future.done():
                return future.result()
            hop.run, hop.answer, hop.context = None, OVERRAN, hop.context.copy()

    def _hop_on(self, hop: _Hop[T]) -> tuple[_Worker, asyncio.Future[T]]:
        worker = self._idle_worker()
        walk = cast("Callable[[], T]", partial(hop.walk.go, hop.answer))  # None is of a walk that was taken away
        hop.run = (worker, _start(worker, walk, asyncio.get_running_loop(), hop.context))
        return hop.run

    async def _watched_to_the_end(self, hop: _Hop[T]) -> None:
        with contextlib.suppress(Exception):  # `_drop` logs it
            await self._watched(hop)

    def run_steps_here(self, steps: Steps[T]) -> T:
        """Run the generator in this thread, which must not be the core loop's, and return its result.

        Only what the steps call runs elsewhere: in a thread beside this one, which waits for it until the deadline.
        These threads need no slot, since this one waits. All steps see one copy of this thread's context.
        """
        context, answer = contextvars.copy_context(), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self._run_beside(step, context)
            if answer is OVERRAN:
                context = context.copy()

    def _run_beside(self, step: Step, context: contextvars.Context) -> Any:
        try:
            worker = self._beside.pop()
        except IndexError:
            worker = _Worker("hermes-beside")
        until = time.monotonic() + step.deadline_s
        outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        is_worker = getattr(_thread, "is_worker", False)

        def job() -> None:
            _thread.is_worker = is_worker  # it stands for the thread that waits, also in lending the slot
            answer, error = None, None
            try:
                answer = context.run(step.call, until)
            except BaseException as exc:  # noqa: BLE001 - handed to the waiting side
                error = exc
            if time.monotonic() >= until:
                logger.info("%s ended after its deadline; its answer is dropped", step.name)
                answer, error = OVERRAN, None
            outcome.put((answer, error))

        worker.jobs.put(job)
        try:
            with self._waiting_for_others():
                answer, error = outcome.get(timeout=step.deadline_s)
        except queue.Empty:
            worker.retire()
            return OVERRAN
        self._beside.append(worker)
        if error is not None:
            raise error
        return answer

    def wait_core(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """From a worker: run `coroutine` on the core loop and wait for its result.

        Without a running core loop (a command of the terminal), a loop is made for this call.
        """
        here = _running_loop()
        if self._core is None or not self._core.is_running():
            return asyncio.run(coroutine) if here is None else _in_fresh_loop(coroutine, None)
        if here is self._core:
            coroutine.close()
            raise RuntimeError("wait_core would block the core loop: await the coroutine instead")
        if getattr(_thread, "is_worker", False):
            coroutine = self._with_slot_lent(coroutine)
        with self._waiting_for_others():
            return asyncio.run_coroutine_threadsafe(_contained(coroutine), self._core).result()

    @property
    def core_runs(self) -> bool:
        """Whether there is a core loop at work; a command of the terminal may have none."""
        return self._core is not None and self._core.is_running()

    @property
    def is_core_here(self) -> bool:
        """Whether this is the core loop's thread, which must not wait."""
        return self.core_runs and _running_loop() is self._core

    async def on_core(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """From any loop: run `coroutine` on the core loop and await its result; without a core loop, run it here.

        Cancelling the waiting side cancels the coroutine.
        """
        if not self.core_runs or self.is_core_here:
            return await coroutine
        assert self._core is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_contained(coroutine), self._core))

    @contextlib.contextmanager
    def _waiting_for_others(self) -> Iterator[None]:
        """Note that this thread is blocked meanwhile, if it is the plugin loop's."""
        here = _running_loop()
        blocks_plugins = here is not None and here is self._plugin_loop
        with self._lock:
            self._plugin_waits += blocks_plugins
        try:
            yield
        finally:
            with self._lock:
                self._plugin_waits -= blocks_plugins

    async def _with_slot_lent(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Give the waiting worker's slot to others: what it waits for may need one."""
        assert self._slots is not None
        self._slots.release()
        try:
            return await coroutine
        finally:
            await self._slots.acquire()

    def wait_plugin(self, coroutine: Coroutine[Any, Any, T], *, deadline_s: float = ASYNC_HANDLER_LIMIT_S) -> T:
        """From any thread but the core's: run a plugin's coroutine on the plugin loop and wait.

        Called on the plugin loop itself (an async handler calls an async tool synchronously), or while the plugin
        loop waits for the core, the coroutine gets a thread and a loop of its own, so that nothing waits for itself.

        Raises:
            TimeoutError: the deadline is over; the coroutine is cancelled.
            RuntimeError: it wanted to end the process (`SystemExit`), or this is the core loop's thread.
        """
        here = _running_loop()
        if here is not None and here is self._core:
            coroutine.close()
            raise RuntimeError("wait_plugin would block the core loop: call it in a worker (`Bridge.run`)")
        if here is not None or self._plugin_waits:
            return _in_fresh_loop(coroutine, deadline_s)
        future = asyncio.run_coroutine_threadsafe(_contained(coroutine), self._plugin_loop_running())
        try:
            return future.result(deadline_s)
        except TimeoutError:
            if not future.done():
                future.cancel()
                raise TimeoutError(f"no result within {deadline_s:g} s") from None
            raise

    def close(self) -> None:
        """Stop the plugin loop and the idle threads. What still runs is left to the end of the process."""
        for idle in (self._idle, self._beside):
            for worker in idle:
                worker.retire()
            idle.clear()
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        if self._plugin_loop is not None:
            self._plugin_loop.call_soon_threadsafe(self._plugin_loop.stop)
            if self._plugin_thread is not None:
                self._plugin_thread.join(1.0)
            self._plugin_loop = self._plugin_thread = None

    def _slots_of_this_loop(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._core is not loop or self._slots is None:
            self._core, self._slots = loop, asyncio.Semaphore(self._limit)
        return self._slots

    def _idle_worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        self._count += 1
        return _Worker(f"hermes-worker-{self._count}")

    def _leave(self, worker: _Worker, future: asyncio.Future[Any]) -> None:
        """Keep the thread for the next call, or let it end after what it still does."""
        if future.done() and not worker.retired:
            self._idle.append(worker)
        elif not worker.retired:
            worker.retire()
            future.add_done_callback(_drop)

    def _plugin_loop_running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._plugin_loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_keep_running, args=(loop,), name="hermes-plugins", daemon=True)
                thread.start()
                self._plugin_loop, self._plugin_thread = loop, thread
            return self._plugin_loop


def _keep_running(loop: asyncio.AbstractEventLoop) -> None:
    """Run the plugin loop until it is stopped. A plugin's own task that raises `SystemExit` does not end it."""
    while True:
        try:
            loop.run_forever()
            break
        except BaseException as exc:  # noqa: BLE001 - a plugin's task; the others go on
            logger.error("a plugin's task ended with %r", exc)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=0.5))
    loop.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _drop(future: asyncio.Future[Any]) -> None:
    """Take the result of a call that nobody waits for, so that an error in it is logged once."""
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("a call that nobody waited for any more failed: %r", error)


def _in_fresh_loop(coroutine: Coroutine[Any, Any, T], deadline_s: float | None) -> T:
    outcome: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def target() -> None:
        try:
            outcome.put((context.run(asyncio.run, asyncio.wait_for(coroutine, deadline_s)), None))
        except BaseException as exc:  # noqa: BLE001 - handed to the waiting side
            outcome.put((None, _bearable(exc)))

    threading.Thread(target=target, name="hermes-nested", daemon=True).start()
    value, error = outcome.get()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
