"""The scheduled jobs of a home, as upstream stores them; this release runs none. Source: plugin contract §11.2."""

from __future__ import annotations

import json
import logging
from typing import Any

from hermes_agent.config import hermes_home

__all__ = ["get_job", "load_jobs"]

logger = logging.getLogger(__name__)


def load_jobs() -> list[dict[str, Any]]:
    """Return the jobs in `HOME/cron/jobs.json`; none when it is not there, or is broken (then the log says so)."""
    path = hermes_home() / "cron" / "jobs.json"
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        logger.warning("%s is not used: %s", path, exc)
        return []
    jobs = stored.get("jobs") if isinstance(stored, dict) else stored
    return [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job.get("id") == job_id), None)
