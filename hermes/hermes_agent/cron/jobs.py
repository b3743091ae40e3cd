"""What a job is, and what came of a run of it.

Make a job, or change one, of what a person or the model says. The tool and the commands of the terminal share it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hermes_agent.core.errors import UserError
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import find_injection
from hermes_agent.cron.schedule import Schedule, parse_schedule

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


Fault = Callable[[str], str]
TARGET = re.compile(r"local|origin|[a-z][a-z0-9_-]*(:[^\s,:]+(:[^\s,]+)?)?")
"""One place in `deliver`."""


def edit_job(job: Job, said: Mapping[str, Any], *, home: Path, now: float, others: Mapping[str, Job]) -> Job:
    """Return the job with what was said; nothing is stored.

    Args:
        job: the present one; a new one has no id.
        said: `name`, `prompt`, `schedule`, `deliver`, `repeat`, `skills`, `model`, `script`, `no_agent`,
            `context_from`, `enabled_toolsets`, `workdir`; None or absence leaves a thing as it is.
        others: the jobs that there are, by id.

    Raises:
        UserError: something cannot be; it says what.
    """
    values = {name: value for name, value in said.items() if value is not None}
    changes: dict[str, Any] = {
        name: str(values[name]).strip() for name in ("name", "prompt", "model", "script", "workdir") if name in values
    }
    if changes.get("workdir"):  # held as it is now: a link that takes its place later is not followed
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
    made = replace(job, **changes)
    if not made.name:
        made = replace(made, name=_name(made))
    check_spec(made, home, others)
    return made


def check_platforms(job: Job, said: Mapping[str, Any], fault: Fault) -> None:
    """Refuse a job whose answers could never be delivered, if that was said of it now.

    Args:
        fault: returns what is wrong with the platform of a target; empty where nothing is, or nobody knows.

    Raises:
        UserError: there is no such platform.
    """
    for target in targets_of(job) if said.get("deliver") is not None else ():
        if text := fault(target):
            raise UserError(f"deliver `{target}`: {text}")


def resume_job(job: Job, now: float) -> Job:
    """Return a paused job with its next time.

    Raises:
        UserError: it has none any more.
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
                f"deliver {part!r} is no place", hint="`local`, `origin`, or PLATFORM[:CHAT[:THREAD]], with commas."
            )
        if part == "origin" and not job.origin:
            raise UserError("deliver `origin` means the chat that made the job, and no chat did", hint="Name one.")
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
