"""Worker threads, serial executors, and a time limit for the main thread.

The result of each job goes to the event loop that awaits it. The time limit uses a signal, so that the code stays in
the main thread: it may set signal handlers there and has its event loop, and a wait ends like a loop. C code that does
not return is not interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar

AGAIN_S = 5.0
"""Seconds after which the interruption is repeated if the code swallows it."""


class TimeLimitExceeded(BaseException):
    """The time limit is exceeded.

    No `Exception`, so that the interrupted code does not catch it by accident.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"not done within {limit_s:g} s")
        self.limit_s = limit_s


def can_interrupt() -> bool:
    """Return whether this is the main thread, which alone gets signals."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def interrupt_after(limit_s: float) -> Iterator[None]:
    """Raise `TimeLimitExceeded` inside the block after `limit_s` seconds; only in the main thread.

    An earlier timer continues afterwards.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded(limit_s)

    handler = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if signal.getsignal(signal.SIGALRM) is ring:
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s - (time.monotonic() - started)), interval_s)


logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

WORKERS = 32
"""Sync calls that may run in parallel; more wait for a slot."""
Job = Callable[[], None]

this_thread = threading.local()
"""`is_worker`: whether this thread holds a slot of a bridge."""


class Worker:
    """A daemon thread that runs jobs one after another until it is retired.

    It sleeps on a pipe: a write releases the interpreter lock, so the woken thread finds it free. A thread that is
    woken through a queue sleeps once more for that lock, and a call takes half as long again.
    """

    def __init__(self, name: str) -> None:
        self._jobs: deque[Job] = deque()
        asleep, bell = os.pipe()
        os.set_blocking(bell, False)  # the thread wakes up even if the pipe is full
        self._asleep, self._bell = open(asleep, "rb", buffering=0), open(bell, "wb", buffering=0)  # noqa: SIM115, PTH123
        self._awake = False
        """The thread looks for jobs before it sleeps."""
        self.retired = False
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self.thread.start()

    def do(self, job: Job) -> None:
        """Run `job` after earlier ones; not after `retire`."""
        self._jobs.append(job)
        if not self._awake:
            self._bell.write(b"!")

    def _loop(self) -> None:
        this_thread.is_worker = True
        rung = True
        with self._asleep:
            while rung:
                rung = bool(self._asleep.read(64))
                while self._jobs:
                    self._awake = True
                    while self._jobs:
                        job = self._jobs.popleft()
                        job()
                        del job
                    self._awake = False  # before the last look: a later job wakes it

    def retire(self) -> None:
        """End after the present jobs."""
        self.retired = True
        self._bell.close()


def _set_result(future: asyncio.Future[T], value: T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)  # type: ignore[arg-type]


def safe_exception(error: BaseException) -> BaseException:
    """Return an exception that a task may raise.

    `SystemExit` would end its loop, `StopIteration` cannot be set.
    """
    if isinstance(error, SystemExit | KeyboardInterrupt | StopIteration | GeneratorExit):
        bearable = RuntimeError(f"the call ended with {error!r}")
        bearable.__cause__ = error
        return bearable
    return error


async def run_guarded(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await `coroutine`; an exception that would end the loop becomes a `RuntimeError`."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as exc:
        raise safe_exception(exc) from exc


def run_in_worker(
    worker: Worker,
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
            error = safe_exception(exc)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits
            loop.call_soon_threadsafe(_set_result, future, value, error)

    worker.do(job)
    return future


class SerialExecutor:
    """Runs sync calls one after another in its own thread; for a resource with one writer."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: Worker | None = None

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` after all earlier calls and return its result.

        The call is finished even if the caller is cancelled.
        """
        return await self.start(lambda: fn(*args, **kwargs))

    def start(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Start `fn`, from any loop; return a future of that loop. Its cancellation only discards the result."""
        if self._worker is None:
            self._worker = Worker(f"hermes-{self._name}")
        return run_in_worker(self._worker, fn, asyncio.get_running_loop())

    def close(self) -> None:
        """End the thread after the present calls."""
        if self._worker is not None:
            self._worker.retire()
            self._worker = None


class AbandonedThreads:
    """Threads with a call that overran or lost its caller; they end with the call."""

    def __init__(self) -> None:
        self._since: dict[threading.Thread, float] = {}
        self._lock = threading.Lock()

    def add(self, worker: Worker) -> None:
        """Add a retired worker."""
        with self._lock:
            self._since = {thread: since for thread, since in self._since.items() if thread.is_alive()}
            self._since[worker.thread] = time.monotonic()

    def alive(self) -> list[tuple[threading.Thread, float]]:
        """Return the threads that still run, with the seconds since they were abandoned."""
        now = time.monotonic()
        with self._lock:
            self._since = {thread: since for thread, since in self._since.items() if thread.is_alive()}
            return [(thread, now - since) for thread, since in self._since.items()]


class WorkerPool:
    """The worker threads of one core loop at a time, and their slots."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.core: asyncio.AbstractEventLoop | None = None
        """The loop that took slots last."""
        self.slots: asyncio.Semaphore | None = None
        self._idle: list[Worker] = []
        self._limit = workers
        self._count = 0
        self.left = AbandonedThreads()

    def loop_slots(self) -> asyncio.Semaphore:
        """Return the slots; the running loop becomes the core loop."""
        loop = asyncio.get_running_loop()
        if self.core is not loop or self.slots is None:
            self.core, self.slots = loop, asyncio.Semaphore(self._limit)
        return self.slots

    def idle_worker(self) -> Worker:
        """Return an idle thread, on the core loop and in a slot."""
        if self._idle:
            return self._idle.pop()
        self._count += 1
        return Worker(f"hermes-worker-{self._count}")

    def release(self, worker: Worker, future: asyncio.Future[Any]) -> None:
        """Keep the thread for the next call, or let it end after its present call."""
        if future.done() and not worker.retired:
            self._idle.append(worker)
        elif not worker.retired:
            worker.retire()
            self.left.add(worker)
            future.add_done_callback(_log_result)

    def close(self) -> None:
        """End the idle threads."""
        for worker in self._idle:
            worker.retire()
        self._idle.clear()


def _log_result(future: asyncio.Future[Any]) -> None:
    """Retrieve the result of an abandoned call, so that its error is logged once."""
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("abandoned call: failed: %r", error)
