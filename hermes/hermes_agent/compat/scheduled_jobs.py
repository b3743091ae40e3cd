"""The scheduled jobs of a home: `cron.jobs`. Source: plugin contract §11.2."""

from __future__ import annotations

import contextlib
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.cron import JobStore

__all__ = ["get_job", "load_jobs"]


def load_jobs() -> list[dict[str, Any]]:
    """Return the jobs, each in upstream's shape."""
    path = hermes_home() / "state.db"
    if not path.exists():
        return []
    with contextlib.closing(JobStore(path)) as store:
        return [job.to_dict() for job in store.jobs()]


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job["id"] == job_id), None)
