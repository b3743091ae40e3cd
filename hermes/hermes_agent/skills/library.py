"""Who registered which skill: those of plugins, by qualified name. Source: plugin contract §6.1.

How the model sees skills: their list in the system prompt, and what is filled into the text of one.

The list is made when a session starts and stays as it is with the session's prompt, so that the provider's cached
prefix holds. Skills of plugins are not in it. Source: plugin contract §6.3, §6.4.

Every skill of a host: which are offered, and opening one. Source: plugin contract §6.2, §6.4.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import SKILL, PluginSkill
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import RegistryFacade
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import find_injection
from hermes_agent.hooks import HookBus
from hermes_agent.skills.skill_file import (
    LocalSkill,
    SkillFile,
    SkillFolder,
    fits_environment,
    fits_platform,
    fits_tools,
)
from hermes_agent.system.processes import run, tool_environment
from hermes_agent.tools import current_scope

NAME = re.compile(r"[a-zA-Z0-9_-]+")
"""What a skill of a plugin, and the namespace before it, may be called."""


class PluginSkills(RegistryFacade[PluginSkill]):
    """Skills by `plugin:skill`."""

    def __init__(self) -> None:
        super().__init__(SKILL.label)

    def register(
        self,
        name: str,
        path: Path | str,
        *,
        plugin: str,
        owner: str,
        description: str = "",
        frontmatter: Mapping[str, Any] | None = None,
    ) -> PluginSkill:
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
        skill = PluginSkill(place, plugin, name, description, dict(frontmatter or {}))
        self._entries.add(skill.qualified, skill, owner=owner)
        return skill

    def of_plugin(self, plugin: str) -> list[PluginSkill]:
        """Return what a plugin registered, sorted by name."""
        return sorted((s for _, s in self.items() if s.plugin == plugin), key=lambda s: s.bare_name)


logger = logging.getLogger(__name__)

LINE_CHARS = 200
"""Longest description; the whole one is in `skills_list`."""
INDEX_CHARS = 12_000
"""Longest index; what does not fit is counted, and `skills_list` has it."""
DEFAULT_CATEGORY = "general"
"""What skills without a category are shown under."""

_HEAD = (
    "## Skills (mandatory)\n"
    "A skill says how something is done here. Before you act, look whether one of these is about what is asked; if so, "
    "open it with skill_view(name) and keep to it.\n"
    "<available_skills>\n"
)
_TAIL = "</available_skills>"


def index_text(skills: Sequence[LocalSkill], *, of_others: int = 0) -> str:
    """Return the block for the system prompt; empty without skills.

    Args:
        of_others: how many there are that others wrote.
    """
    if not skills and not of_others:
        return ""
    ordered = sorted(skills, key=lambda skill: (skill.category or DEFAULT_CATEGORY, skill.name))
    lines: list[str] = []
    size, left_out = len(_HEAD) + len(_TAIL), 0
    for category, group in groupby(ordered, key=lambda skill: skill.category or DEFAULT_CATEGORY):
        block = [f"  {_safe(category)}:"]
        for skill in group:
            line = f"    - {_safe(skill.name)}: {_short(_safe(skill.document.description))}"
            size += len(line) + 1
            if size > INDEX_CHARS:
                left_out += 1
            else:
                block.append(line)
        if len(block) > 1:
            lines += block
    if left_out:
        lines.append(f"  ({left_out} more: skills_list has them)")
    if of_others:
        lines.append(f"  ({of_others} more that others wrote: skills_list has them, as foreign text)")
    return f"{_HEAD}{chr(10).join(lines)}\n{_TAIL}"


def _short(text: str) -> str:
    return shorten(text, LINE_CHARS)


def _safe(text: str) -> str:
    """A description must not end the block that it stands in."""
    return " ".join(text.replace("<", "‹").replace(">", "›").split())


OUTPUT_CHARS = 4_000
_COMMAND = re.compile(r"!`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class SkillTextRules:
    """The rules, from `skills.template_vars`, `skills.inline_shell` and `skills.inline_shell_timeout` (seconds).

    Attributes:
        passthrough: variables that a command is given beyond the usual ones (`terminal.env_passthrough`).
    """

    variables: bool = True
    shell: bool = False
    shell_timeout_s: float = 10.0
    passthrough: tuple[str, ...] = ()

    def __call__(self, text: str, directory: Path, session_id: str) -> str:
        """Return the text with its variables, and the output of its commands where the operator allows them."""
        if self.variables:
            text = text.replace("${HERMES_SKILL_DIR}", str(directory)).replace("${HERMES_SESSION_ID}", session_id)
        if self.shell:
            text = _COMMAND.sub(lambda match: self._output(match[1], directory, os.environ), text)
        return text

    def _output(self, command: str, directory: Path, environ: Mapping[str, str]) -> str:
        scope = current_scope.get()
        try:
            done = run(
                command,
                cwd=directory,
                env=tool_environment(environ, passthrough=self.passthrough),
                timeout_s=self.shell_timeout_s,
                output_limit_bytes=4 * OUTPUT_CHARS,
                cancelled=threading.Event() if scope is None else scope.cancelled,
            )
        except (OSError, ValueError) as exc:
            logger.warning("a command of the skill in %s could not be started: %s", directory, exc)
            return f"[could not be started: {exc}]"
        if done.timed_out:
            logger.warning("a command of the skill in %s took longer than %g s", directory, self.shell_timeout_s)
            return f"[stopped after {self.shell_timeout_s:g} s: {command}]"
        text = redactor((done.head + done.tail).decode("utf-8", "replace")).strip()
        return shorten(text, OUTPUT_CHARS)


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
