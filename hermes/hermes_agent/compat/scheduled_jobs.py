"""The scheduled jobs of a home: `cron.jobs`. Source: plugin contract §8.10, §11.2.

They lie in `state.db`. Changes are calls of the tool `cronjob`, with its rules and approvals.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.config import hermes_home
from hermes_agent.cron import JobStore
from hermes_agent.plugins.dispatching import dispatch_tool

__all__ = [
    "AmbiguousJobReference",
    "create_job",
    "get_job",
    "list_jobs",
    "load_jobs",
    "pause_job",
    "remove_job",
    "resolve_job_ref",
    "resume_job",
    "trigger_job",
    "update_job",
]

CHANGEABLE = frozenset(
    [
        "schedule",
        "prompt",
        "name",
        "repeat",
        "deliver",
        "skills",
        "model",
        "script",
        "no_agent",
        "context_from",
        "enabled_toolsets",
        "workdir",
        "attach_to_session",
    ]
)


class AmbiguousJobReference(LookupError):
    """Several jobs have the name; the text has their ids."""


def load_jobs() -> list[dict[str, Any]]:
    """Return the jobs, each in upstream's shape."""
    path = hermes_home() / "state.db"
    if not path.exists():
        return []
    with contextlib.closing(JobStore(path)) as store:
        return [job.to_dict() for job in store.jobs()]


def list_jobs(include_disabled: bool = False) -> list[dict[str, Any]]:
    """Return the jobs that are due some time, or all of them."""
    return [job for job in load_jobs() if include_disabled or job["enabled"]]


def get_job(job_id: str) -> dict[str, Any] | None:
    """Return the job with this id, or None."""
    return next((job for job in load_jobs() if job["id"] == job_id), None)


def resolve_job_ref(ref: str) -> dict[str, Any] | None:
    """Return the job with this id, else the one of this name, whatever its case; None when there is none.

    Raises:
        AmbiguousJobReference: several have the name.
    """
    jobs = load_jobs()
    found = [job for job in jobs if job["id"] == ref] or [job for job in jobs if job["name"].lower() == ref.lower()]
    if len(found) > 1:
        raise AmbiguousJobReference(f"{len(found)} jobs are called {ref!r}: {', '.join(job['id'] for job in found)}")
    return found[0] if ref and found else None


def create_job(
    prompt: str | None,
    schedule: str,
    name: str | None = None,
    repeat: int | None = None,
    deliver: str | None = None,
    origin: Mapping[str, Any] | None = None,
    skill: str | None = None,
    skills: list[str] | None = None,
    model: str | None = None,
    provider: str | None = None,
    base_url: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Make a job and return it.

    Args:
        origin: taken for `deliver` where that is not given: `platform`, `chat_id`, `thread_id`.
        skill: one of `skills`.
        provider: not taken, as `base_url`: which endpoint a model has is the config's matter.
        more: `script`, `context_from`, `enabled_toolsets`, `workdir`, `no_agent`, `attach_to_session`.

    Raises:
        ValueError: the job cannot be: the text says why.
        PermissionError: it needs an approval, and there is no approver, or the answer was `deny`.
        TypeError: something of it is not known here.
    """
    if provider or base_url:
        raise TypeError("a job takes no provider and no base_url here: `model` is looked up as the config says")
    if deliver is None and origin:
        parts = (origin.get("platform"), origin.get("chat_id"), origin.get("thread_id"))
        deliver = ":".join(str(part) for part in parts if part)
    wanted: dict[str, Any] = {
        "prompt": prompt,
        "schedule": schedule,
        "name": name,
        "repeat": repeat,
        "deliver": deliver,
        "model": model,
    }
    wanted["skills"] = [*([skill] if skill else []), *(skills or [])] or None
    return _act("create", **_supported_fields({**wanted, **more}))


def update_job(job_id: str, updates: Mapping[str, Any]) -> dict[str, Any] | None:
    """Change a job and return it; None when there is none. `enabled` pauses it, or lets it go on.

    Raises:
        ValueError, PermissionError, TypeError: as `create_job`.
    """
    job = get_job(job_id)
    changes = dict(updates)
    enabled = changes.pop("enabled", None)
    given = _supported_fields(changes)
    if job is not None and given:
        job = _act("update", job_id=job_id, **given)
    if job is not None and enabled is not None and bool(enabled) != job["enabled"]:
        job = _act("resume" if enabled else "pause", job_id=job_id)
    return job


def pause_job(job_id: str, reason: str | None = None) -> dict[str, Any] | None:
    """Let a job, by id or name, not run until it is resumed; None when there is none.

    Args:
        reason: nothing here shows it.
    """
    return _on("pause", job_id)


def resume_job(job_id: str) -> dict[str, Any] | None:
    """Let a paused job, by id or name, run again; None when there is none."""
    return _on("resume", job_id)


def trigger_job(job_id: str) -> dict[str, Any] | None:
    """Have a job, by id or name, run now; None when there is none."""
    return _on("run", job_id)


def remove_job(job_id: str) -> bool:
    """Forget a job, by id or name; false when there is none."""
    return _on("remove", job_id) is not None


def _on(action: str, ref: str) -> dict[str, Any] | None:
    job = resolve_job_ref(ref)
    return None if job is None else _act(action, job_id=job["id"])


def _supported_fields(wanted: Mapping[str, Any]) -> dict[str, Any]:
    strange = sorted(set(wanted) - set(CHANGEABLE))
    if strange:
        raise TypeError(f"a job has no {', '.join(strange)} that could be set: {', '.join(sorted(CHANGEABLE))}")
    return {name: value for name, value in wanted.items() if value is not None}


def _act(action: str, **args: Any) -> dict[str, Any]:
    answer = json.loads(dispatch_tool(host(), "cron.jobs", "cronjob", {"action": action, **args}, {}))
    if "job" in answer:
        return dict(answer["job"])
    text = str(answer.get("error") or answer)
    raise PermissionError(text) if "approval" in text.lower() or text.startswith("BLOCKED") else ValueError(text)
