"""The run of a scheduled job that the current code works for. Source: plugin contract of 0.23 §6.2."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.cron.jobs import JobRun


@lazy_dataclass(frozen=True, slots=True)
class CronExecution:
    """One run of a scheduled job, as plugins see it. Times are ISO 8601 in UTC."""

    job_id: str
    job_name: str
    execution_id: str
    source: str
    """What started it: `schedule` or `manual`."""
    scheduled_instant: str
    started_at: str
    profile: str


_current: ContextVar[CronExecution | None] = ContextVar("hermes_cron_execution", default=None)


def current_cron_execution() -> CronExecution | None:
    """Return the run that this code works for, or None outside of one."""
    return _current.get()


@contextlib.contextmanager
def cron_execution(run: JobRun, profile: str) -> Iterator[None]:
    """Mark the code in the block as work for a run."""
    source = "manual" if run.is_requested else "schedule"
    token = _current.set(
        CronExecution(
            run.job.id, run.job.name, f"{run.job.id}-{run.id}", source, _iso(run.due), _iso(time.time()), profile
        )
    )
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def no_cron_execution() -> Iterator[None]:
    """Mark the code in the block as work of a subagent, which is no run."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
