"""Can a skill be used here: platform, surroundings, variables that it needs. Source: plugin contract §6.4."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.skills.document import SkillDocument

__all__ = ["fits_platform", "fits_surroundings", "fits_tools", "missing_variables", "wanted_variables"]

_PLATFORMS = {"macos": "darwin", "darwin": "darwin", "linux": "linux", "windows": "win32", "win32": "win32"}


def fits_platform(document: SkillDocument, platform: str = sys.platform) -> bool:
    """Say whether the skill is for this system; one that names none is for all."""
    names = [name.strip().lower() for name in document.names("platforms")]
    if not names:
        return True
    termux = "com.termux" in os.environ.get("PREFIX", "")
    return any(_PLATFORMS.get(name) == platform or (name == "termux" and termux) for name in names)


def fits_surroundings(document: SkillDocument, environ: Mapping[str, str]) -> bool:
    """Say whether one of the surroundings that the skill names (`docker`, `s6`, `kanban`) is here; none means any."""
    tests: dict[str, Callable[[], bool]] = {
        "docker": lambda: Path("/.dockerenv").exists() or Path("/run/.containerenv").exists(),
        "s6": lambda: Path("/run/s6").exists(),
        "kanban": lambda: bool(environ.get("HERMES_KANBAN_TASK")),
    }
    names = [name.strip().lower() for name in document.names("environments")]
    return not names or any(name in tests and tests[name]() for name in names)


def fits_tools(document: SkillDocument, tools: Collection[str], toolsets: Collection[str]) -> bool:
    """Say whether the skill is to be offered beside these tools: what it needs is there, what it replaces is not."""

    def names(key: str) -> list[str]:
        return document.names("metadata", "hermes", key)

    return (
        all(name in tools for name in names("requires_tools"))
        and all(name in toolsets for name in names("requires_toolsets"))
        and not any(name in tools for name in names("fallback_for_tools"))
        and not any(name in toolsets for name in names("fallback_for_toolsets"))
    )


def wanted_variables(document: SkillDocument) -> list[str]:
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


def missing_variables(document: SkillDocument, has_value: Callable[[str], bool]) -> list[str]:
    """Return those that have no value."""
    return [name for name in wanted_variables(document) if not has_value(name)]
