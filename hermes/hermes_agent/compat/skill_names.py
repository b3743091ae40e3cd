"""Upstream's functions over skills. Source: plugin contract §6, §11.2; `agent.skill_utils` by its names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.config import hermes_home
from hermes_agent.core.read_only import ReadOnlyDict
from hermes_agent.skills.document import SkillFile, fits_platform, parse_document
from hermes_agent.skills.registry import NAME

__all__ = [
    "get_disabled_skill_names",
    "get_external_skills_dirs",
    "get_skill_commands",
    "is_valid_namespace",
    "parse_frontmatter",
    "parse_qualified_name",
    "skill_matches_platform",
    "skill_view",
    "skills_directory",
    "skills_list",
]

PLATFORM = "cli"


def get_skill_commands() -> dict[str, dict[str, Any]]:
    """Return the skills that are slash commands: `/slug` to `name`, `description`, `skill_md_path`, `skill_dir`."""
    found = {
        f"/{slug}": {
            "name": skill.name,
            "description": skill.document.description,
            "skill_md_path": str(skill.file),
            "skill_dir": str(skill.directory),
        }
        for slug, skill in host().slash.skills.offered(PLATFORM).items()
    }
    return ReadOnlyDict(found, "a skill is a folder in skills/ of the home, or comes by ctx.register_skill(name, path)")


def parse_frontmatter(content: str) -> tuple[dict[str, Any], str]:
    """Return the fields at the top of a `SKILL.md`, and the text after them."""
    document = parse_document(content)
    return dict(document.fields), document.body


def skill_matches_platform(frontmatter: Mapping[str, Any]) -> bool:
    """Say whether a skill with these fields is for this system."""
    return fits_platform(SkillFile("", "", fields=frontmatter), sys.platform)


def get_disabled_skill_names(platform: str | None = None) -> set[str]:
    """Return the skills that the operator took away, everywhere or on `platform`."""
    settings = host().skills.settings
    names = set(settings.disabled)
    for name, disabled in settings.disabled_by_platform:
        names |= disabled if name == platform else set()
    return names


def get_external_skills_dirs() -> list[Path]:
    """Return the directories of `skills.external_dirs` that are there."""
    return [place for place in host().skills.settings.external if place.is_dir()]


def parse_qualified_name(name: str) -> tuple[str | None, str]:
    """Return namespace and bare name of `plugin:skill`; None for a name without one."""
    namespace, colon, bare = name.partition(":")
    return (namespace, bare) if colon else (None, name)


def is_valid_namespace(candidate: str | None) -> bool:
    """Say whether a plugin's skills can be asked for under this name."""
    return bool(candidate) and NAME.fullmatch(str(candidate)) is not None


def skills_directory() -> Path:
    """Return the home's directory of skills."""
    return hermes_home() / "skills"


def skill_view(name: str, file_path: str | None = None, task_id: str | None = None) -> str:
    """Return what the tool `skill_view` answers."""
    return host().tools.dispatch("skill_view", {"name": name, "file_path": file_path}, task_id=task_id)


def skills_list(category: str | None = None, task_id: str | None = None) -> str:
    """Return what the tool `skills_list` answers."""
    return host().tools.dispatch("skills_list", {"category": category}, task_id=task_id)
