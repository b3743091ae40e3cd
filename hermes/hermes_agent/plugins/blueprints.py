"""Blueprints of scheduled jobs that plugins offer, and the command `/blueprint`.

A blueprint is a schedule and a prompt with slots; the user fills the slots and gets a job. Source: plugin contract of
0.23 §6.2.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.cron.feature import CronJobTool, ScheduledJobs
from hermes_agent.cron.jobs import Fault
from hermes_agent.plugins.extension_stores import ExtensionStores
from hermes_agent.sessions import Principals

SLOT_TYPES = ("text", "time", "enum", "weekdays")
CREATE = "create"
WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_KEY = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SLOT = re.compile(r"[A-Za-z_]\w{0,31}")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


class BlueprintSlot(LazyNamedTuple):
    """A value that the user fills in."""

    name: str
    type: str = "text"
    label: str = ""
    default: str | None = None
    options: tuple[str, ...] = ()
    """Values of an `enum`."""
    optional: bool = False


class AutomationBlueprint(LazyNamedTuple):
    """A blueprint of a scheduled job."""

    key: str
    """`PLUGIN:KEY`."""
    title: str
    description: str
    schedule_template: str
    prompt_template: str
    category: str
    slots: tuple[BlueprintSlot, ...]
    deliver_default: str
    skills: tuple[str, ...]
    tags: tuple[str, ...]


class UnusableBlueprint(ValueError):
    """A blueprint, or a value of a slot, is malformed; the text says how."""


def make_blueprint(
    plugin: str,
    key: object,
    *,
    title: object,
    description: object,
    schedule_template: object,
    prompt_template: object,
    category: object,
    slots: Iterable[Any],
    deliver_default: object,
    skills: Iterable[Any],
    tags: Iterable[Any],
) -> AutomationBlueprint:
    """Return a blueprint.

    Raises:
        UnusableBlueprint: a part has the wrong type, or a template names a slot that does not exist.
    """
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise UnusableBlueprint(f"key {key!r} is not usable: expected [a-z0-9][a-z0-9_.-], at most 64")
    texts = {
        "title": title,
        "description": description,
        "schedule_template": schedule_template,
        "prompt_template": prompt_template,
    }
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise UnusableBlueprint(f"{name} is {value!r}: expected text")
    try:
        found = tuple(_slot(slot) for slot in slots)
        made = AutomationBlueprint(
            f"{plugin}:{key}",
            str(title),
            str(description),
            str(schedule_template),
            str(prompt_template),
            str(category or "general"),
            found,
            str(deliver_default or "origin"),
            tuple(map(str, skills)),
            tuple(map(str, tags)),
        )
    except TypeError as exc:
        raise UnusableBlueprint(f"slots, skills and tags are lists: {exc}") from None
    try:
        _fill(made, {slot.name: slot.default or _example(slot) for slot in found})
    except (KeyError, IndexError, ValueError) as exc:
        raise UnusableBlueprint(f"a template cannot be filled: {type(exc).__name__}: {exc}") from None
    return made


def _slot(value: Any) -> BlueprintSlot:
    given = (
        value
        if isinstance(value, Mapping)
        else {name: getattr(value, name) for name in BlueprintSlot._fields if hasattr(value, name)}
    )
    name, kind = given.get("name"), str(given.get("type") or "text")
    if not isinstance(name, str) or _SLOT.fullmatch(name) is None:
        raise UnusableBlueprint(f"slot {value!r} has no usable name")
    if kind not in SLOT_TYPES:
        raise UnusableBlueprint(f"slot {name!r} has the type {kind!r}: expected one of {', '.join(SLOT_TYPES)}")
    default = given.get("default")
    options = tuple(str(o) for o in given.get("options") or given.get("choices") or ())
    if kind == "enum" and not options:
        raise UnusableBlueprint(f"slot {name!r} is an enum without options")
    text = None if default is None else str(default)
    return BlueprintSlot(
        name, kind, str(given.get("label") or name), text, options, bool(given.get("optional")) or default is not None
    )


def _example(slot: BlueprintSlot) -> str:
    return {"time": "08:00", "enum": next(iter(slot.options), ""), "weekdays": "mon-fri"}.get(slot.type, "")


def _fill(blueprint: AutomationBlueprint, values: Mapping[str, str]) -> tuple[str, str]:
    """Return schedule and prompt with the values of the slots."""
    filled: dict[str, str] = {}
    for slot in blueprint.slots:
        value = filled[slot.name] = values[slot.name]
        if slot.type == "time" and (clock := _TIME.fullmatch(value)) is not None:
            filled.setdefault("hour", str(int(clock[1])))
            filled.setdefault("minute", str(int(clock[2])))
        if slot.type == "weekdays":
            filled[slot.name] = _days(value)
    return blueprint.schedule_template.format(**filled), blueprint.prompt_template.format(**filled)


def _days(value: str) -> str:
    """Return weekdays as a cron field: `mon-fri` and `daily` as numbers."""
    if value.strip().lower() in ("daily", "everyday", "every day", "*"):
        return "*"
    parts = []
    for part in value.lower().split(","):
        ends = [WEEKDAYS.get(end.strip()[:3], end.strip()) for end in part.split("-")]
        parts.append("-".join(map(str, ends)))
    return ",".join(parts)


def checked_values(blueprint: AutomationBlueprint, given: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each slot.

    Raises:
        UnusableBlueprint: a value is missing, unknown or malformed.
    """
    slots = {slot.name: slot for slot in blueprint.slots}
    for name in given:
        if name not in slots:
            near = nearest_name(name, tuple(slots))
            raise UnusableBlueprint(f"there is no slot {name!r}" + (f"; did you mean {near!r}?" if near else ""))
    values: dict[str, str] = {}
    for name, slot in slots.items():
        value = given.get(name, slot.default)
        if value is None and not slot.optional:
            raise UnusableBlueprint(f"`{name}` is missing: {name}=VALUE ({slot.label})")
        text = value or ""
        if slot.type == "time" and text and _TIME.fullmatch(text) is None:
            raise UnusableBlueprint(f"`{name}` is {text!r}: expected a time such as 08:30")
        if slot.type == "enum" and text not in slot.options:
            raise UnusableBlueprint(f"`{name}` is {text!r}: expected one of {', '.join(slot.options)}")
        values[name] = text
    return values


class BlueprintCommand:
    """The handler of `/blueprint`.

    Args:
        blueprints: returns the blueprints by key.
        schedule: the tool `cronjob`, which creates the job.
    """

    def __init__(
        self, blueprints: Callable[[], Mapping[str, AutomationBlueprint]], schedule: Callable[[dict[str, Any]], str]
    ) -> None:
        self._blueprints, self._schedule = blueprints, schedule

    def __call__(self, raw_args: str) -> str:
        """List blueprints, show one, or create a job from one."""
        try:
            words = shlex.split(raw_args)
        except ValueError as exc:
            raise CommandFailed(f"The arguments cannot be read: {exc}.") from exc
        known = self._blueprints()
        if not words:
            return self._list(known)
        found = known.get(words[0]) or next((b for k, b in known.items() if k.partition(":")[2] == words[0]), None)
        if found is None:
            near = nearest_name(words[0], tuple(known))
            raise CommandFailed(f"There is no blueprint {words[0]!r}." + (f" Did you mean {near}?" if near else ""))
        if len(words) == 1:
            return self._show(found)
        pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        stray = [word for word in words[1:] if "=" not in word and word != CREATE]
        if stray:
            raise CommandFailed(f"{stray[0]!r} is no value of a slot: expected SLOT=VALUE.")
        return self._create(found, pairs)

    @staticmethod
    def _list(known: Mapping[str, AutomationBlueprint]) -> str:
        if not known:
            return "No plugin offers blueprints of scheduled jobs."
        rows = [f"{key}  {blueprint.title}: {blueprint.description}" for key, blueprint in sorted(known.items())]
        return "\n".join(["Blueprints of scheduled jobs (/blueprint KEY shows one):", *rows])

    @staticmethod
    def _show(blueprint: AutomationBlueprint) -> str:
        rows = [f"{blueprint.title} ({blueprint.key})", blueprint.description]
        for slot in blueprint.slots:
            choices = f", one of {', '.join(slot.options)}" if slot.options else ""
            default = "" if slot.default is None else f", default {slot.default}"
            rows.append(f"  {slot.name}: {slot.label} ({slot.type}{choices}{default})")
        slots = " ".join(f"{slot.name}={slot.default or 'VALUE'}" for slot in blueprint.slots) or CREATE
        return "\n".join([*rows, f"Create the job: /blueprint {blueprint.key} {slots}"])

    def _create(self, blueprint: AutomationBlueprint, given: Mapping[str, str]) -> str:
        try:
            schedule, prompt = _fill(blueprint, checked_values(blueprint, given))
        except (UnusableBlueprint, KeyError, IndexError, ValueError) as exc:
            return f"The job was not created: {exc}."
        job: dict[str, Any] = {
            "action": "create",
            "name": blueprint.title,
            "schedule": schedule,
            "prompt": prompt,
            "skills": list(blueprint.skills) or None,
        }
        if blueprint.deliver_default != "origin":
            job["deliver"] = blueprint.deliver_default
        made = json.loads(self._schedule(job))
        if not made.get("success"):
            return f"The job was not created: {made.get('error')}"
        return f"Created job {made['job']['id']} ({blueprint.title}): {made['job']['schedule_display']}."


class BlueprintDeps(LazyNamedTuple):
    """Services of the command."""

    extensions: ExtensionStores
    find_platform_problem: Fault
    home: Path
    jobs: ScheduledJobs
    people: Principals


def register(ctx: Registrar, deps: BlueprintDeps) -> None:
    """Register the command."""
    tool = CronJobTool(deps.home, deps.people.visible_to, deps.jobs.wake, deps.find_platform_problem)
    command = BlueprintCommand(lambda: dict(deps.extensions.blueprints.items()), tool)
    about = "Create a scheduled job from a blueprint of a plugin"
    ctx.register_slash_command(SlashCommand("blueprint", command, about, "[KEY [SLOT=VALUE …]]", aliases=("bp",)))
