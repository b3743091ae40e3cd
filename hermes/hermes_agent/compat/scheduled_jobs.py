"""The scheduled jobs of a home: `cron.jobs`. Source: plugin contract §11.2."""

from __future__ import annotations

from typing import Any

from hermes_agent.compat.hosting import host

__all__ = ["get_job", "load_jobs"]


def load_jobs() -> list[dict[str, Any]]:
    """Return the jobs, each in upstream's shape."""
    store = host().open_jobs()
    try:
        return [job.to_dict() for job in store.jobs()]
    finally:
        store.close()


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job["id"] == job_id), None)
