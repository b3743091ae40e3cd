"""Every skill of a host: which are offered, and opening one. Source: plugin contract §6.2, §6.4."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.contracts.skill import PluginSkill
from hermes_agent.core.injection import find_injection
from hermes_agent.hooks import HookBus
from hermes_agent.skills.document import SkillFile, fits_environment, fits_platform, fits_tools
from hermes_agent.skills.finding import LocalSkill, SkillFolder
from hermes_agent.skills.registry import PluginSkills
from hermes_agent.skills.rendering import SkillTextRules, index_text

__all__ = ["SkillLibrary", "SkillSettings"]

logger = logging.getLogger(__name__)

LIFECYCLE = "on_skill_lifecycle"


@dataclass(frozen=True, slots=True)
class SkillSettings:
    """The settings under `skills`."""

    external: tuple[Path, ...] = ()
    """Further roots."""
    disabled: frozenset[str] = frozenset()
    disabled_by_platform: tuple[tuple[str, frozenset[str]], ...] = ()
    rendering: SkillTextRules = field(default_factory=SkillTextRules)

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> SkillSettings:
        """Read them.

        Args:
            get: returns the setting of a key (`skills.disabled`).
        """
        by_platform = get("skills.platform_disabled") or {}
        return cls(
            tuple(Path(os.path.expandvars(str(p))).expanduser() for p in get("skills.external_dirs") or ()),
            frozenset(map(str, get("skills.disabled") or ())),
            tuple((str(platform), frozenset(map(str, names or ()))) for platform, names in by_platform.items()),
            SkillTextRules(
                bool(get("skills.template_vars")),
                bool(get("skills.inline_shell")),
                float(get("skills.inline_shell_timeout")),
                tuple(get("terminal.env_passthrough") or ()),
            ),
        )

    def is_disabled(self, skill: LocalSkill, platform: str) -> bool:
        """Say whether the operator took the skill away, everywhere or on `platform`."""
        names = self.disabled.union(*(names for name, names in self.disabled_by_platform if name == platform))
        return not names.isdisjoint(skill.setting_names)


class SkillLibrary:
    """The skills of a home and its plugins.

    Args:
        has_value: whether a variable that a skill needs has a value.
        disabled_plugins: what `plugins.disabled` says now.
        whose: returns where the words of a file come from that others wrote; empty for any other.
    """

    def __init__(
        self,
        home: Path,
        settings: SkillSettings,
        *,
        plugins: PluginSkills,
        hooks: HookBus,
        has_value: Callable[[str], bool],
        disabled_plugins: Callable[[], Collection[str]],
        whose: Callable[[str], str] = lambda path: "",
    ) -> None:
        self.settings = settings
        self.plugins = plugins
        self.has_value = has_value
        self.disabled_plugins = disabled_plugins
        self._origin = whose
        self.directory = home / "skills"
        self._folder = SkillFolder((self.directory, *settings.external))
        self._hooks = hooks

    def all_skills(self) -> list[LocalSkill]:
        """Return every local skill, the disabled ones and those for other systems too."""
        return self._folder.find()

    def offered(self, platform: str = "") -> list[LocalSkill]:
        """Return the local skills that may be used on `platform` (`cli`, `api_server`, …), old forms left out."""
        return [skill for skill in self.all_skills() if not skill.flat and self._is_offered(skill, platform)]

    def has_skills(self) -> bool:
        """Say whether there is a skill at all, of a plugin or local."""
        return len(self.plugins) > 0 or not self._folder.is_empty()

    def is_plugin_disabled(self, skill: PluginSkill) -> bool:
        """Say whether the operator disabled the plugin that brings the skill, by name or by key."""
        return not {skill.plugin, self.plugins.owner(skill.qualified)}.isdisjoint(self.disabled_plugins())

    def source(self, skill: LocalSkill) -> str:
        """Return where a skill comes from that others wrote, by its file; empty for any other. For workers."""
        return self._origin(str(skill.file.resolve()))

    def index(self, platform: str, tools: Collection[str], toolsets: Collection[str]) -> str:
        """Return what the system prompt of a new session says about skills; empty without any.

        Skills that others wrote are counted: their names and descriptions are foreign text, which no prompt has.

        Args:
            tools: names of the tools that the model is shown.
            toolsets: those that they belong to.
        """
        fitting = [s for s in self.offered(platform) if fits_tools(s.document, tools, toolsets)]
        own = [skill for skill in fitting if not self.source(skill)]
        return index_text(own, of_others=len(fitting) - len(own))

    def render(self, document: SkillFile, name: str, directory: Path, session_id: str) -> str:
        """Return the text for the model. What reads like an attempt to take over is logged, and given all the same."""
        if found := find_injection(document.text):
            logger.warning("skill %s has a text that tries to change the agent's rules: %s", name, found)
        return self.settings.rendering(document.text, directory.resolve(), session_id)

    def notify_change(self, name: str, action: str, path: Path, plugin: str = "") -> None:
        """Fire `on_skill_lifecycle`; call it in a worker.

        Args:
            action: `loaded` (the model opened it), `used` (as a slash command), `removed` (its file is gone).
            plugin: name of the plugin that brought it; empty for a local one.
        """
        if self._hooks.has(LIFECYCLE):
            self._hooks.fire(LIFECYCLE, name=name, action=action, path=str(path), plugin=plugin)

    def categories(self, skills: Sequence[LocalSkill]) -> list[str]:
        """Return the categories of `skills`, sorted."""
        return sorted({skill.category for skill in skills if skill.category})

    def _is_offered(self, skill: LocalSkill, platform: str) -> bool:
        document = skill.document
        return (
            not self.settings.is_disabled(skill, platform)
            and fits_platform(document)
            and fits_environment(document, os.environ)
        )
