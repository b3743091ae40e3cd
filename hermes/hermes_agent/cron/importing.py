"""Jobs of the published program (`HOME/cron/jobs.json`) are taken over, once; the file stays as it is.

Source: plugin contract §12.1. `Job.to_dict` writes the same shape.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.cron.editing import edit_job
from hermes_agent.cron.jobs import Job
from hermes_agent.cron.schedule import Schedule
from hermes_agent.cron.store import JobStore
from hermes_agent.io.files import write_atomic

__all__ = ["import_jobs", "with_published_jobs"]

logger = logging.getLogger(__name__)

DONE_MARK = "jobs.imported"
"""File beside `jobs.json` that says that it was taken over."""


def with_published_jobs(store: JobStore, home: Path) -> JobStore:
    """Return the store, with the jobs of the published program in it."""
    import_jobs(store, home, time.time())
    return store


def import_jobs(store: JobStore, home: Path, now: float) -> list[Job]:
    """Store the jobs of `cron/jobs.json` and return them; nothing when there is none, or it was done before.

    A job that cannot be as it stands there is logged and left out; the others come.
    """
    place, done = home / "cron" / "jobs.json", home / "cron" / DONE_MARK
    if done.exists() or not place.is_file():
        return []
    try:
        value = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        logger.warning("%s is not taken over: %s", place, exc)
        return []
    entries = value.get("jobs", []) if isinstance(value, dict) else value
    found: list[Job] = []
    for entry in entries if isinstance(entries, list) else []:
        try:
            others = {job.id: job for job in store.jobs()}
            if not isinstance(entry, dict) or entry.get("id") in others:
                continue
            found.append(store.put(_published_job(entry, home, now, others)))
        except (UserError, TypeError, ValueError) as exc:
            logger.warning("job %r of %s is not taken over: %s", entry.get("name") or entry.get("id"), place, exc)
    write_atomic(done, f"{len(found)} jobs, {datetime.fromtimestamp(now).isoformat(timespec='seconds')}\n")
    if found:
        logger.info("taken over from %s: %s", place, ", ".join(job.name for job in found))
    return found


def _published_job(entry: Mapping[str, Any], home: Path, now: float, others: Mapping[str, Job]) -> Job:
    repeat = entry.get("repeat")
    times = repeat.get("times") if isinstance(repeat, dict) else repeat
    origin = entry.get("origin")
    if isinstance(origin, dict):
        origin = ":".join(str(origin[k]) for k in ("platform", "chat_id", "thread_id") if origin.get(k))
    skills = entry.get("skills") or ([entry["skill"]] if entry.get("skill") else None)
    said = {name: entry.get(name) for name in ("name", "prompt", "model", "script", "workdir", "enabled_toolsets")}
    said |= {"no_agent": entry.get("no_agent"), "deliver": entry.get("deliver"), "skills": skills}
    said |= {"context_from": entry.get("context_from"), "repeat": times, "schedule": _schedule_text(entry)}
    job = Job(str(entry.get("id") or ""), "", Schedule("once", ""), origin=str(origin or ""), created=now)
    made = edit_job(job, said, home=home, now=now, others=others)
    paused = entry.get("enabled") is False or entry.get("state") == "paused"
    return replace(made, enabled=made.enabled and not paused)


def _schedule_text(entry: Mapping[str, Any]) -> str:
    """Return the schedule as a person would write it."""
    value = entry.get("schedule")
    if not isinstance(value, dict):
        return str(value or "")
    match value.get("kind"):
        case "cron":
            return str(value.get("expr") or value.get("display") or "")
        case "interval":
            return f"every {int(value['minutes'])}m" if value.get("minutes") else str(value.get("display") or "")
        case "once":
            return str(value.get("run_at") or value.get("display") or "")
    return str(value.get("display") or entry.get("schedule_display") or "")
