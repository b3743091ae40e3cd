"""Skills: instructions that the model opens when it needs them. Source: plugin contract §6.

A skill is a file `SKILL.md`, with a few fields at its top and files beside it. Those of plugins are read-only, have the
plugin's name before theirs (`plugin:skill`), and stand in no list: who wants one asks for it by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_agent.contracts.kind import Kind

__all__ = ["SKILL", "PluginSkill"]

SKILL = Kind("skill", "register_skill", "skill")


@dataclass(frozen=True, slots=True)
class PluginSkill:
    """A skill that a plugin registered.

    Attributes:
        path: of the `SKILL.md`.
        plugin: the plugin's name, which stands before the colon.
        bare_name: what stands after it.
    """

    path: Path
    plugin: str
    bare_name: str
    description: str = ""

    @property
    def qualified(self) -> str:
        """The name that it is opened by."""
        return f"{self.plugin}:{self.bare_name}"
