"""What a job is, and what came of a run of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hermes_agent.core.errors import UserError
from hermes_agent.core.injection import find_injection
from hermes_agent.cron.schedule import Schedule

__all__ = ["Job", "JobOutcome", "JobRun", "check_spec", "script_path", "targets_of"]

MAX_PROMPT = 20_000
SILENT = "[SILENT]"
"""A run whose whole answer is this delivers nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is stored. Times are seconds since the epoch."""

    id: str
    name: str
    schedule: Schedule
    prompt: str = ""
    deliver: str = "local"
    """Where the answer goes: `local` (kept only), `origin`, or `PLATFORM[:CHAT[:THREAD]]`, several with commas."""
    origin: str = ""
    """The chat that made the job, as `PLATFORM:CHAT[:THREAD]`."""
    attach: str = ""
    """Key of the chat session whose conversation answers become part of (`attach_to_session`); empty for none."""
    principal: str = "local"
    """Whose job it is (`sessions.people`)."""
    skills: tuple[str, ...] = ()
    toolsets: tuple[str, ...] | None = None
    """The toolsets that it may use; None means the usual ones."""
    model: str = ""
    script: str = ""
    """A file below `HOME/scripts` that runs first; the agent is told what it printed."""
    no_agent: bool = False
    """What the script prints is the answer, no model is asked."""
    context_from: tuple[str, ...] = ()
    """Jobs whose last output the agent is told."""
    workdir: str = ""
    times: int | None = None
    """How often it runs; None means for ever."""
    enabled: bool = True
    next_run: float | None = None
    last_run: float | None = None
    last_status: str = ""
    last_error: str = ""
    completed: int = 0
    created: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it in upstream's shape (`cron.jobs.load_jobs`)."""
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
        """Return what the person said, for the store."""
        return {name: value for name, value in asdict(self).items() if name in SPEC_FIELDS}


SPEC_FIELDS = frozenset(
    "schedule prompt deliver origin attach skills toolsets model script no_agent context_from workdir times".split()  # noqa: SIM905
)
"""What the person said of a job; the rest is what came of it."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run, claimed by this process."""

    id: int
    job: Job
    due: float
    late_s: float = 0.0
    """How long after its time it begins; more than a minute means that nobody was there."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What came of a run."""

    status: Literal["ok", "error", "silent", "interrupted"]
    text: str = ""
    """The answer, or what went wrong."""
    session_id: str = ""
    notes: dict[str, str] = field(default_factory=dict)


def targets_of(job: Job) -> list[str]:
    """Return where the answer goes, `PLATFORM[:CHAT[:THREAD]]` each."""
    named = [job.origin if part == "origin" else part for part in re.split(r"\s*,\s*", job.deliver.strip()) if part]
    return list(dict.fromkeys(part for part in named if part and part != "local"))


def check_spec(job: Job, home: Path, others: Mapping[str, Job]) -> None:
    """Refuse a job that could never do what it says.

    Args:
        others: the jobs that there are, by id.

    Raises:
        UserError: it says what is wrong.
    """
    if job.no_agent and not job.script:
        raise UserError("a job without the agent needs a script", hint=f"Put one into {home / 'scripts'} and name it.")
    if not job.prompt.strip() and not job.script and not job.skills:
        raise UserError("the job has nothing to do", hint="Give a prompt, a skill or a script.")
    if len(job.prompt) > MAX_PROMPT:
        raise UserError(f"the prompt has {len(job.prompt):,} characters: at most {MAX_PROMPT:,}")
    if why := find_injection(job.prompt):
        raise UserError(f"the prompt is refused: it looks like somebody else's instructions ({why})")
    if job.times is not None and job.times < 1:
        raise UserError(f"repeat is {job.times}: expected 1 or more")
    if job.script:
        script_path(home, job.script)
    if job.workdir and not Path(job.workdir).is_dir():
        raise UserError(f"there is no directory {job.workdir}")
    missing = [other for other in job.context_from if other not in others]
    if missing:
        raise UserError(f"context_from names jobs that are not there: {', '.join(missing)}")


def script_path(home: Path, name: str) -> Path:
    """Return the file of a script.

    Raises:
        UserError: it is not there, or not below `HOME/scripts`.
    """
    folder = (home / "scripts").resolve()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise UserError(f"the script {name!r} is not below {folder}", hint="Scripts of jobs live there alone.")
    if not path.is_file():
        raise UserError(f"there is no script {path}")
    return path


def _iso(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()
