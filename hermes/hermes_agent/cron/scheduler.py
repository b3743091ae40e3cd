"""The job scheduler of the daemon: it runs each job when it is due, one run of a job at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from hermes_agent.contracts.cron_scheduler import CronScheduler
from hermes_agent.core.tasks import end_task
from hermes_agent.cron.job_store import JobStore
from hermes_agent.cron.jobs import JobOutcome, JobRun

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_PARALLEL_RUNS = 4
CHECK_EVERY_S = 30.0
"""Longest sleep: another process may have added a job, or the clock may have been set."""

RunJob = Callable[[JobRun], Awaitable[JobOutcome]]
DeliverOutcome = Callable[[JobRun, JobOutcome], Awaitable[None]]
Spawn = Callable[[Callable[[], None]], None]


class JobStoreExecutor(Protocol):
    """Runs calls one after another in a thread (`runtime.workers.SerialExecutor`)."""

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn`; it runs to its end also if the caller is cancelled."""
        ...


class JobScheduler:
    """Runs jobs from `start` to `drain`. Used on the core loop.

    Args:
        open_store: opens the store; called in the executor.
        executor: the thread of the store.
        work: runs a job; an exception becomes an outcome with the status `error`.
        deliver: delivers an outcome to the targets of its job.
        keep: outputs kept of each job.
        scheduler: returns the external scheduler of a plugin (`cron.provider`), which then starts the jobs; or None.
        spawn: runs the external scheduler in a thread of its own.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        open_store: Callable[[], JobStore],
        executor: JobStoreExecutor,
        *,
        work: RunJob,
        deliver: DeliverOutcome,
        keep: int = 50,
        scheduler: Callable[[], CronScheduler | None] = lambda: None,
        spawn: Spawn | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_store = open_store
        self._executor = executor
        self._work = work
        self._deliver = deliver
        self._keep = keep
        self._choose_scheduler = scheduler
        self._spawn = spawn
        self._clock = clock
        self._store: JobStore | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[None], JobRun] = {}
        self._changed = asyncio.Event()
        self._scheduler: CronScheduler | None = None
        self._stop = threading.Event()

    async def start(self) -> None:
        """Deliver the outcomes of runs that a previous process left unfinished, and start the schedule.

        Raises:
            UserError: `state.db` cannot be opened.
        """
        for run in await self.call(JobStore.end_interrupted, self._clock()):
            await self._deliver_outcome(run, JobOutcome("interrupted", run.job.last_error or "interrupted"))
        self._scheduler = self._choose_scheduler()
        if self._scheduler is not None and self._spawn is not None:
            self._start_external(self._scheduler, self._spawn)
        else:
            self._ticking = asyncio.create_task(self._tick())

    async def drain(self, timeout_s: float) -> None:
        """Stop after the running jobs, or after `timeout_s`; the next start reports interrupted runs."""
        self._stop.set()
        if self._scheduler is not None and self._spawn is not None:
            self._spawn(self._scheduler.stop)  # code of a plugin: not on the loop; a failure is only logged
        await end_task(self._ticking)
        if self._running:
            _, left = await asyncio.wait(self._running, timeout=timeout_s)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if self._store is not None:
            await self._executor.run(self._store.close)
            self._store = None

    async def call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a method of the store in its thread."""

        def call() -> T:
            if self._store is None:
                self._store = self._open_store()
            return method(self._store, *args, **kwargs)

        return await self._executor.run(call)

    def wake(self) -> None:
        """Read the jobs again, because one was added or changed."""
        self._changed.set()
        if self._scheduler is not None and self._spawn is not None:
            self._spawn(self._scheduler.on_jobs_changed)
            self._spawn(partial(self._register_jobs, self._scheduler, asyncio.get_running_loop()))

    async def _tick(self) -> None:
        while True:
            self._changed.clear()
            wait_s = CHECK_EVERY_S
            try:
                for run in await self.call(JobStore.claim_due, self._clock(), MAX_PARALLEL_RUNS - len(self._running)):
                    self._begin(run)
                due = await self.call(JobStore.next_due)
                if due is not None and len(self._running) < MAX_PARALLEL_RUNS:
                    wait_s = min(max(due - self._clock(), 0.05), CHECK_EVERY_S)
            except Exception:  # a full disk must not stop the scheduler
                logger.exception("scheduled jobs: cannot be read, retry in %g s", CHECK_EVERY_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def _begin(self, run: JobRun) -> None:
        task = asyncio.create_task(self._run(run), name=f"cron {run.job.id}")
        self._running[task] = run
        task.add_done_callback(self._on_run_end)

    def _on_run_end(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("scheduled job: could not be finished", exc_info=task.exception())

    async def _run(self, run: JobRun) -> None:
        logger.info("job %s (%s): starts%s", run.job.name, run.job.id, f", {run.late_s:.0f} s late" * (run.late_s > 60))
        try:
            outcome = await self._work(run)
        except Exception as exc:
            logger.warning("job %s (%s): failed", run.job.name, run.job.id, exc_info=True)
            outcome = JobOutcome("error", f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__)
        await self._deliver_outcome(
            run, outcome
        )  # first: after a crash in between it is delivered again, with the same id
        await self._finish(run, outcome)
        logger.info("job %s (%s): %s", run.job.name, run.job.id, outcome.status)

    async def _finish(self, run: JobRun, outcome: JobOutcome) -> None:
        """Store the outcome of a run; retry while the disk is full, because a run without end blocks its job."""
        wait_s = 1.0
        while True:
            try:
                await self.call(JobStore.finish, run, outcome, self._clock(), keep=self._keep)
                return
            except sqlite3.OperationalError as exc:
                logger.error("job %s: its end cannot be stored, retry in %g s: %s", run.job.id, wait_s, exc)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, CHECK_EVERY_S)

    async def _deliver_outcome(self, run: JobRun, outcome: JobOutcome) -> None:
        try:
            await self._deliver(run, outcome)
        except Exception:  # the outcome is stored in any case
            logger.exception("job %s (%s): the outcome could not be delivered", run.job.name, run.job.id)

    # -- external scheduler---------------------------------------------------------------------------------------

    def _start_external(self, scheduler: CronScheduler, spawn: Spawn) -> None:
        loop = asyncio.get_running_loop()

        def fire(job_id: str) -> bool:
            return asyncio.run_coroutine_threadsafe(self._fire(job_id), loop).result()

        def work() -> None:
            scheduler.recover_interrupted()
            self._register_jobs(scheduler, loop)
            scheduler.start(self._stop, adapters={}, loop=loop)

        scheduler.run_due = fire
        spawn(work)

    def _register_jobs(self, scheduler: CronScheduler, loop: asyncio.AbstractEventLoop) -> None:
        """Pass each enabled job to an external scheduler that plans jobs one by one, in a thread."""
        if type(scheduler).register_job is CronScheduler.register_job:
            return
        for job in asyncio.run_coroutine_threadsafe(self.call(JobStore.jobs), loop).result():
            if job.enabled:
                values = {name: getattr(job, name) for name in ("id", "name", "prompt", "deliver", "enabled")}
                scheduler.register_job({**values, "schedule": str(job.schedule), "next_run_at": job.next_run})

    async def _fire(self, job_id: str) -> bool:
        job = await self.call(JobStore.find, job_id)
        run = await self.call(JobStore.claim, job, self._clock(), is_requested=not job.enabled or job.next_run is None)
        if run is None:
            return False
        self._begin(run)
        return True
