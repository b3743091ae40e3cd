"""Make a job, or change one, of what a person or the model says. The tool and the commands of the terminal share it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.cron.jobs import Job, check_spec, targets_of
from hermes_agent.cron.schedule import parse_schedule

__all__ = ["TARGET", "Fault", "edit_job", "check_platforms", "resume_job"]

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
    return text if len(text) <= 50 else text[:49] + "…"
