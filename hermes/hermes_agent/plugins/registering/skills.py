"""`ctx.register_skill`. Source: plugin contract §6.1."""

from __future__ import annotations

from pathlib import Path

from hermes_agent.contracts.skill import SKILL
from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.registering.registrant import Registrant, add_once

__all__ = ["register_skill"]


def register_skill(by: Registrant, name: str, path: Path | str, *, description: str) -> None:
    """Register a skill as `plugin:name`.

    Raises:
        ValueError: the name cannot be one.
        FileNotFoundError: there is no file at `path`.
    """
    try:
        skill = by.ground.plugin_skills.register(name, path, plugin=by.name, owner=by.key, description=description)
    except Conflict as exc:
        by.refused(SKILL.label, exc.name, exc.owner)
        return
    add_once(by.record.skills_registered, skill.qualified)
