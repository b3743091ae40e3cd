"""Read a `SKILL.md`: the fields at its top and its text; and say whether it can be used here. Source: contract §6.4."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hermes_agent.config.bounded_yaml import YamlRejected, parse_yaml
from hermes_agent.skills.files import read_file

__all__ = [
    "DESCRIPTION_CHARS",
    "NAME_CHARS",
    "SkillFile",
    "fits_platform",
    "fits_environment",
    "fits_tools",
    "missing_variables",
    "parse_document",
    "read_document",
    "required_variables",
]

NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
FIELDS_CHARS = 32 * 1_024
"""Longest top of a skill; a longer one is no top, but text."""

_TOP = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BUILT = (
    "name", "description", "version", "license", "compatibility", "platforms", "environments", "prerequisites",
    "required_environment_variables", "setup", "metadata", "tags", "related_skills",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkillFile:
    """What a `SKILL.md` says."""

    text: str
    """The whole file."""
    body: str
    """The text without the fields."""
    name: str = ""
    """At most 64 characters; empty when the file does not say it."""
    description: str = ""
    """In one line, at most 1,024 characters; without the field, the first line of the text."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""
    """Why the fields could not be read; empty when they could."""

    def names(self, *keys: str) -> list[str]:
        """Return the words of a field, or of one inside `metadata.hermes`; one word may stand without a list."""
        here: Any = self.fields
        for key in keys:
            here = here.get(key) if isinstance(here, Mapping) else None
        if isinstance(here, str):
            here = [word.strip() for word in here.split(",")]
        return [str(item) for item in here if item] if isinstance(here, list) else []


def read_document(path: Path) -> SkillFile:
    """Read the file at `path`.

    Raises:
        OSError: it cannot be read, is no regular file, is too long, or is not UTF-8.
    """
    data = read_file(path)
    try:
        return parse_document(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise OSError(f"{path} is not UTF-8: {exc.reason}") from exc


def parse_document(text: str) -> SkillFile:
    """Return what the text of a `SKILL.md` says; fields that cannot be read are passed over, with the problem."""
    match = _TOP.match(text, 0, FIELDS_CHARS)
    if match is None:
        return SkillFile(text, text, description=_first_line(text))
    body = text[match.end() :]
    try:
        document = parse_yaml(match[1] or "", _BUILT)
    except YamlRejected as exc:
        return SkillFile(text, body, description=_first_line(body), problem=str(exc))
    description = _one_line(document.scalars.get("description", "")) or _first_line(body)
    return SkillFile(
        text,
        body,
        name=_one_line(document.scalars.get("name", ""))[:NAME_CHARS],
        description=description[:DESCRIPTION_CHARS],
        fields=MappingProxyType(document.values),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_line(body: str) -> str:
    lines = (line.strip().lstrip("#").strip() for line in body.splitlines())
    return _one_line(next((line for line in lines if line), ""))[:DESCRIPTION_CHARS]


_PLATFORMS = {"macos": "darwin", "darwin": "darwin", "linux": "linux", "windows": "win32", "win32": "win32"}


def fits_platform(document: SkillFile, platform: str = sys.platform) -> bool:
    """Say whether the skill is for this system; one that names none is for all."""
    names = [name.strip().lower() for name in document.names("platforms")]
    if not names:
        return True
    termux = "com.termux" in os.environ.get("PREFIX", "")
    return any(_PLATFORMS.get(name) == platform or (name == "termux" and termux) for name in names)


def fits_environment(document: SkillFile, environ: Mapping[str, str]) -> bool:
    """Say whether one of the surroundings that the skill names (`docker`, `s6`, `kanban`) is here; none means any."""
    tests: dict[str, Callable[[], bool]] = {
        "docker": lambda: Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
        "s6": lambda: Path("/run/s6").exists(),
        "kanban": lambda: bool(environ.get("HERMES_KANBAN_TASK")),
    }
    names = [name.strip().lower() for name in document.names("environments")]
    return not names or any(name in tests and tests[name]() for name in names)


def fits_tools(document: SkillFile, tools: Collection[str], toolsets: Collection[str]) -> bool:
    """Say whether the skill is to be offered beside these tools: what it needs is there, what it replaces is not."""

    def names(key: str) -> list[str]:
        return document.names("metadata", "hermes", key)

    return (
        all(name in tools for name in names("requires_tools"))
        and all(name in toolsets for name in names("requires_toolsets"))
        and not any(name in tools for name in names("fallback_for_tools"))
        and not any(name in toolsets for name in names("fallback_for_toolsets"))
    )


def required_variables(document: SkillFile) -> list[str]:
    """Return the names of the variables that the skill needs."""
    setup = document.fields.get("setup")
    collected = setup.get("collect_secrets") if isinstance(setup, Mapping) else None
    lists: tuple[Any, ...] = (document.fields.get("required_environment_variables"), collected)
    names = document.names("prerequisites", "env_vars")
    for entries in lists:
        for entry in entries if isinstance(entries, list) else ():
            name = (entry.get("name") or entry.get("env_var")) if isinstance(entry, Mapping) else entry
            if isinstance(name, str) and name:
                names.append(name)
    return list(dict.fromkeys(names))


def missing_variables(document: SkillFile, has_value: Callable[[str], bool]) -> list[str]:
    """Return those that have no value."""
    return [name for name in required_variables(document) if not has_value(name)]
