"""Who registered which skill: those of plugins, by qualified name. Source: plugin contract §6.1."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_agent.contracts.skill import SKILL, PluginSkill
from hermes_agent.core.registry import Registry

__all__ = ["NAME", "PluginSkills"]

NAME = re.compile(r"[a-zA-Z0-9_-]+")
"""What a skill of a plugin, and the namespace before it, may be called."""


class PluginSkills(Registry[PluginSkill]):
    """Skills by `plugin:skill`."""

    def __init__(self) -> None:
        super().__init__(SKILL.label)

    def register(self, name: str, path: Path | str, *, plugin: str, owner: str, description: str = "") -> PluginSkill:
        """Add a skill.

        Args:
            path: of its `SKILL.md`.
            plugin: the plugin's name.
            owner: the plugin's key.

        Raises:
            ValueError: the name cannot be one.
            FileNotFoundError: there is no such file.
            Conflict: another plugin of that name has it.
        """
        if ":" in name:
            raise ValueError(
                f"Skill name '{name}' must not contain ':' (the namespace is derived from the plugin name '{plugin}' "
                "automatically)."
            )
        if NAME.fullmatch(name) is None:
            raise ValueError(f"Invalid skill name '{name}'. Must match [a-zA-Z0-9_-]+.")
        place = Path(path)
        if not place.exists():
            raise FileNotFoundError(f"SKILL.md not found at {place}")
        skill = PluginSkill(place, plugin, name, description)
        self.add(skill.qualified, skill, owner=owner)
        return skill

    def of_plugin(self, plugin: str) -> list[PluginSkill]:
        """Return what a plugin registered, sorted by name."""
        return sorted((s for _, s in self.items() if s.plugin == plugin), key=lambda s: s.bare_name)
