"""Scheduled jobs and their runs, and the checked changes that the tool and `hermes cron` share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import find_injection
from hermes_agent.cron.schedule import Schedule, parse_schedule

MAX_PROMPT = 20_000
SILENT = "[SILENT]"
"""The answer with which a run delivers nothing."""


@lazy_dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored. Times are seconds since the epoch."""

    id: str
    name: str
    schedule: Schedule
    prompt: str = ""
    deliver: str = "local"
    """Targets of the answer, with commas: `local` (only stored), `origin`, or `PLATFORM[:CHAT[:THREAD]]`."""
    origin: str = ""
    """The chat in which the job was created, as `PLATFORM:CHAT[:THREAD]`."""
    attach: str = ""
    """Key of the chat session that gets the answers as messages (`attach_to_session`), or ""."""
    principal: str = "local"
    """See `sessions.principals`."""
    skills: tuple[str, ...] = ()
    toolsets: tuple[str, ...] | None = None
    """The toolsets that it may use; None allows the usual ones."""
    model: str = ""
    script: str = ""
    """A file below `HOME/scripts` that runs first; its output is part of the prompt."""
    no_agent: bool = False
    """Whether the output of the script is the answer, without a model."""
    context_from: tuple[str, ...] = ()
    """Ids of jobs; the last output of each is part of the prompt."""
    workdir: str = ""
    times: int | None = None
    """Number of runs; None sets no limit."""
    enabled: bool = True
    next_run: float | None = None
    last_run: float | None = None
    last_status: str = ""
    last_error: str = ""
    completed: int = 0
    created: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the job in upstream's form (`cron.jobs.load_jobs`)."""
        return {
            "id": self.id,
            "name": self.name,
            "prompt": self.prompt,
            "schedule": self.schedule.to_dict(),
            "schedule_display": self.schedule.text,
            "repeat": {"times": self.times, "completed": self.completed},
            "enabled": self.enabled,
            "state": "scheduled" if self.enabled else "completed" if self.next_run is None else "paused",
            "deliver": self.deliver,
            "origin": self.origin or None,
            "attach_to_session": bool(self.attach),
            "skills": list(self.skills),
            "model": self.model or None,
            "script": self.script or None,
            "no_agent": self.no_agent,
            "context_from": list(self.context_from) or None,
            "enabled_toolsets": None if self.toolsets is None else list(self.toolsets),
            "workdir": self.workdir or None,
            "created_at": _iso(self.created),
            "next_run_at": _iso(self.next_run),
            "last_run_at": _iso(self.last_run),
            "last_status": self.last_status or None,
            "last_error": self.last_error or None,
        }

    def spec(self) -> dict[str, Any]:
        """Return the fields that a user sets, for the store."""
        return {name: value for name, value in asdict(self).items() if name in SPEC_FIELDS}


SPEC_FIELDS = frozenset(
    "schedule prompt deliver origin attach skills toolsets model script no_agent context_from workdir times".split()  # noqa: SIM905
)
"""Fields that a user sets; the others come from its runs."""


@lazy_dataclass(frozen=True, slots=True)
class JobRun:
    """One run, claimed by this process."""

    id: int
    job: Job
    due: float
    late_s: float = 0.0
    """Seconds after its time; more than a minute means that the daemon did not run."""
    is_requested: bool = False
    """Whether a user asked for the run, outside of the schedule."""


@lazy_dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a run."""

    status: Literal["ok", "error", "silent", "interrupted"]
    text: str = ""
    """The answer, or the error."""
    session_id: str = ""
    notes: dict[str, str] = field(default_factory=dict)


def targets_of(job: Job) -> list[str]:
    """Return the targets of the answer, each as `PLATFORM[:CHAT[:THREAD]]`."""
    named = [job.origin if part == "origin" else part for part in re.split(r"\s*,\s*", job.deliver.strip()) if part]
    return list(dict.fromkeys(part for part in named if part and part != "local"))


def check_spec(job: Job, home: Path, others: Mapping[str, Job]) -> None:
    """Reject a job that cannot run.

    Args:
        others: the existing jobs by id.

    Raises:
        UserError: a field is invalid; the text says which.
    """
    if job.no_agent and not job.script:
        raise UserError("a job without the agent needs a script", hint=f"Put one into {home / 'scripts'} and name it.")
    if not job.prompt.strip() and not job.script and not job.skills:
        raise UserError("the job has nothing to do", hint="Give a prompt, a skill or a script.")
    if len(job.prompt) > MAX_PROMPT:
        raise UserError(f"the prompt has {len(job.prompt):,} characters: at most {MAX_PROMPT:,}")
    if why := find_injection(job.prompt):
        raise UserError(f"the prompt is rejected: it looks like prompt injection ({why})")
    if job.times is not None and job.times < 1:
        raise UserError(f"repeat is {job.times}: expected 1 or more")
    if job.script:
        script_path(home, job.script)
    if job.workdir and not Path(job.workdir).is_dir():
        raise UserError(f"there is no directory {job.workdir}")
    missing = [other for other in job.context_from if other not in others]
    if missing:
        raise UserError(f"context_from names jobs that do not exist: {', '.join(missing)}")


def script_path(home: Path, name: str) -> Path:
    """Return the file of a script.

    Raises:
        UserError: it does not exist, or is not below `HOME/scripts`.
    """
    folder = (home / "scripts").resolve()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise UserError(f"the script {name!r} is not below {folder}", hint="Put the scripts of jobs there.")
    if not path.is_file():
        raise UserError(f"there is no script {path}")
    return path


def _iso(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()


Fault = Callable[[str], str]
"""Returns the problem of the platform of a target, or "" if there is none or it is unknown."""
TARGET = re.compile(r"local|origin|[a-z][a-z0-9_-]*(:[^\s,:]+(:[^\s,]+)?)?")
"""One target in `deliver`."""


def edit_job(job: Job, fields: Mapping[str, Any], *, home: Path, now: float, others: Mapping[str, Job]) -> Job:
    """Return a job with changed fields; nothing is stored.

    Args:
        job: the present job; a new one has no id.
        fields: `name`, `prompt`, `schedule`, `deliver`, `repeat`, `skills`, `model`, `script`, `no_agent`,
            `context_from`, `enabled_toolsets`, `workdir`; one that is None or missing stays unchanged.
        others: the existing jobs by id.

    Raises:
        UserError: a field is invalid; the text says which.
    """
    values = {name: value for name, value in fields.items() if value is not None}
    changes: dict[str, Any] = {
        name: str(values[name]).strip() for name in ("name", "prompt", "model", "script", "workdir") if name in values
    }
    if changes.get("workdir"):  # resolved now: a link that replaces it later is not followed
        changes["workdir"] = os.path.realpath(os.path.expanduser(changes["workdir"]))  # noqa: PTH111 - text
    if "schedule" in values:
        changes["schedule"] = parse_schedule(str(values["schedule"]), now)
        changes["next_run"] = changes["schedule"].next_after(now)
        changes["enabled"] = True
    if "deliver" in values:
        changes["deliver"] = _deliver(values["deliver"], job)
    if "repeat" in values:
        changes["times"] = _whole_number(values["repeat"]) or None
    if "no_agent" in values:
        changes["no_agent"] = values["no_agent"] is True
    for name, key in (("skills", "skills"), ("context_from", "context_from"), ("enabled_toolsets", "toolsets")):
        if name in values:
            changes[key] = _texts(values[name], name)
    changed = replace(job, **changes)
    if not changed.name:
        changed = replace(changed, name=_name(changed))
    check_spec(changed, home, others)
    return changed


def check_platforms(job: Job, fields: Mapping[str, Any], fault: Fault) -> None:
    """Reject a job if the changed fields have a target to which nothing can be delivered.

    Raises:
        UserError: there is no such platform.
    """
    for target in targets_of(job) if fields.get("deliver") is not None else ():
        if text := fault(target):
            raise UserError(f"deliver `{target}`: {text}")


def resume_job(job: Job, now: float) -> Job:
    """Return a paused job as active, with its next time.

    Raises:
        UserError: its time is over.
    """
    following = job.schedule.next_after(now)
    if following is None:
        raise UserError(f"the time of job {job.name!r} is over", hint="Give it a new schedule.")
    return replace(job, enabled=True, next_run=following)


def _deliver(value: Any, job: Job) -> str:
    parts = [part.strip() for part in str(value).split(",") if part.strip()]
    for part in parts:
        if not TARGET.fullmatch(part):
            raise UserError(
                f"deliver {part!r} is no target", hint="`local`, `origin`, or PLATFORM[:CHAT[:THREAD]], with commas."
            )
        if part == "origin" and not job.origin:
            raise UserError("deliver `origin` is the chat that creates the job, and no chat did", hint="Name one.")
    return ", ".join(dict.fromkeys(parts)) or "local"


def _texts(value: Any, name: str) -> tuple[str, ...] | None:
    items = re.split(r"\s*,\s*", value.strip()) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise UserError(f"{name} is {value!r}: expected a list of names")
    found = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    return found or (None if name == "enabled_toolsets" else ())


def _whole_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise UserError(f"repeat is {value!r}: expected a whole number") from None


def _name(job: Job) -> str:
    text = job.prompt.strip().split("\n", 1)[0] or job.script or ", ".join(job.skills)
    return shorten(text, 50)
