"""The library of skills, of the home and of plugins: which are offered, and how the model sees them.

The system prompt lists the skills of the home and of enabled plugins. The list is made when a session starts and stays
in the session's prompt, so that the provider's cached prefix holds. Source: plugin contract §6.1 to §6.4; contract of
0.23 §6.3, §13.1.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from pathlib import Path
from typing import Any

from hermes_agent.config.settings import Settings, section
from hermes_agent.contracts.tool import SKILL, PluginSkill
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import RegistryFacade
from hermes_agent.core.text import shorten
from hermes_agent.core.untrusted import find_injection
from hermes_agent.hooks import HookBus
from hermes_agent.skills.skill_file import (
    HUB,
    LocalSkill,
    SkillFile,
    SkillFolder,
    declared_settings,
    fits_environment,
    fits_platform,
    fits_tools,
    read_document,
)
from hermes_agent.system.files import JsonFile
from hermes_agent.tools import current_scope

NAME = re.compile(r"[a-zA-Z0-9_-]+")
"""Names of a plugin's skills, and of the namespace before them."""


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
            path: its `SKILL.md`.
            plugin: name of the plugin.
            owner: key of the plugin.

        Raises:
            ValueError: the name is invalid.
            FileNotFoundError: the file does not exist.
            Conflict: another plugin of that name has registered it.
        """
        if ":" in name:
            raise ValueError(
                f"Skill name '{name}' must not contain ':' (the namespace is derived from the plugin name '{plugin}' "
                "automatically)."
            )
        if NAME.fullmatch(name) is None:
            raise ValueError(f"Invalid skill name '{name}'. Must match [a-zA-Z0-9_-]+.")
        file = Path(path)
        if not file.exists():
            raise FileNotFoundError(f"SKILL.md not found at {file}")
        skill = PluginSkill(file, plugin, name, description, dict(frontmatter or {}))
        self._entries.add(skill.qualified, skill, owner=owner)
        return skill

    def of_plugin(self, plugin: str) -> list[PluginSkill]:
        """Return the skills of a plugin, sorted by name."""
        return sorted((s for _, s in self.items() if s.plugin == plugin), key=lambda s: s.bare_name)


logger = logging.getLogger(__name__)

LINE_CHARS = 200
"""Characters of a description in the prompt; `skills_list` has all of it."""
INDEX_CHARS = 12_000
"""Characters of the index in the prompt; it counts the other skills, which `skills_list` has."""
DEFAULT_CATEGORY = "general"
"""Category in the index of skills without one."""

_HEAD = (
    "## Skills (mandatory)\n"
    "A skill says how something is done here. Before you act, look whether one of these is about what is asked; if so, "
    "open it with skill_view(name) and keep to it.\n"
    "<available_skills>\n"
)
_TAIL = "</available_skills>"


class SkillRow(LazyNamedTuple):
    """A skill as the index and `skills_list` show it."""

    category: str
    name: str
    description: str


def index_text(skills: Sequence[LocalSkill], *, untrusted_count: int = 0, of_plugins: Sequence[SkillRow] = ()) -> str:
    """Return the section of the system prompt, or "" without skills.

    Args:
        untrusted_count: number of skills with untrusted text, which the index only counts.
        of_plugins: skills of plugins.
    """
    if not skills and not untrusted_count and not of_plugins:
        return ""
    rows = [SkillRow(skill.category or DEFAULT_CATEGORY, skill.name, skill.document.description) for skill in skills]
    ordered = sorted([*rows, *of_plugins])
    lines: list[str] = []
    size, left_out = len(_HEAD) + len(_TAIL), 0
    for category, group in groupby(ordered, key=lambda skill: skill.category):
        block = [f"  {_safe(category)}:"]
        for skill in group:
            line = f"    - {_safe(skill.name)}: {_short(_safe(skill.description))}"
            size += len(line) + 1
            if size > INDEX_CHARS:
                left_out += 1
            else:
                block.append(line)
        if len(block) > 1:
            lines += block
    if left_out:
        lines.append(f"  ({left_out} more: skills_list has them)")
    if untrusted_count:
        lines.append(f"  ({untrusted_count} more that others wrote: skills_list has them, as foreign text)")
    return f"{_HEAD}{chr(10).join(lines)}\n{_TAIL}"


def _short(text: str) -> str:
    return shorten(text, LINE_CHARS)


def _safe(text: str) -> str:
    """Return a text without angle brackets, so that it cannot end the section."""
    return " ".join(text.replace("<", "‹").replace(">", "›").split())


def setting_text(value: Any) -> str:
    """Return the value of a setting in one line, without secrets."""
    if value is None or value == "":
        return "(not set)"
    is_plain = isinstance(value, str) and value.isprintable()
    return redactor(value if is_plain else json.dumps(value, ensure_ascii=False, default=str))


OUTPUT_CHARS = 4_000
_COMMAND = re.compile(r"!`([^`\n]+)`")


@lazy_dataclass(slots=True, eq=False, repr=False)
class SkillTextRules:
    """Substitution of variables and commands in the text of a skill, by the settings under `skills`.

    Attributes:
        variables: `skills.template_vars`.
        shell: `skills.inline_shell`.
        shell_timeout_s: `skills.inline_shell_timeout`.
        passthrough: additional environment variables of a command (`terminal.env_passthrough`).
    """

    variables: bool = True
    shell: bool = False
    shell_timeout_s: float = 10.0
    passthrough: tuple[str, ...] = ()

    def __call__(self, text: str, directory: Path, session_id: str) -> str:
        """Return the text with the values of its variables and, if allowed, the output of its commands."""
        if self.variables:
            text = text.replace("${HERMES_SKILL_DIR}", str(directory)).replace("${HERMES_SESSION_ID}", session_id)
        if self.shell:
            text = _COMMAND.sub(lambda match: self._output(match[1], directory, os.environ), text)
        return text

    def _output(self, command: str, directory: Path, environ: Mapping[str, str]) -> str:
        from hermes_agent.system.processes import run, tool_environment  # an idle daemon runs no program

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
            logger.warning("skill in %s: command could not be started: %s", directory, exc)
            return f"[could not be started: {exc}]"
        if done.timed_out:
            logger.warning("skill in %s: command stopped after %g s", directory, self.shell_timeout_s)
            return f"[stopped after {self.shell_timeout_s:g} s: {command}]"
        text = redactor((done.head + done.tail).decode("utf-8", "replace")).strip()
        return shorten(text, OUTPUT_CHARS)


LIFECYCLE = "on_skill_lifecycle"
BUNDLED_SKILLS = Path(__file__).resolve().parent / "bundled"
"""The skills that come with the agent; those of the home with the same path win."""


@lazy_dataclass(frozen=True, slots=True)
class SkillSettings:
    """The settings under `skills`."""

    external: tuple[Path, ...] = ()
    """Additional roots."""
    disabled: frozenset[str] = frozenset()
    disabled_by_platform: tuple[tuple[str, frozenset[str]], ...] = ()
    rendering: SkillTextRules = field(default_factory=SkillTextRules)
    bundled: bool = False
    """Whether the skills that come with the agent are offered."""

    @classmethod
    def of(cls, settings: Settings) -> SkillSettings:
        """Return the settings of the config."""
        skills = settings.skills
        return cls(
            tuple(Path(os.path.expandvars(str(p))).expanduser() for p in skills.external_dirs),
            frozenset(map(str, skills.disabled)),
            tuple(
                (str(platform), frozenset(map(str, names or ())))
                for platform, names in skills.platform_disabled.items()
            ),
            section(
                SkillTextRules,
                skills,
                variables=skills.template_vars,
                shell=skills.inline_shell,
                shell_timeout_s=skills.inline_shell_timeout,
                passthrough=settings.terminal.env_passthrough,
            ),
            skills.bundled,
        )

    def is_disabled(self, skill: LocalSkill, platform: str) -> bool:
        """Return whether the operator disabled the skill, everywhere or on `platform`."""
        groups = [self.disabled, *(names for name, names in self.disabled_by_platform if name == platform)]
        return any(names and not names.isdisjoint(skill.setting_names) for names in groups)


def bundled_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of `HERMES_BUNDLED_SKILLS`, or that of the package; `none` has no folder."""
    given = environ.get("HERMES_BUNDLED_SKILLS", "")
    if given == "none":
        return ()
    return tuple(Path(each) for each in given.split(":")) if given else (BUNDLED_SKILLS,)


def skill_roots(home: Path, settings: SkillSettings) -> tuple[Path, ...]:
    """Return the folders with skills; of two skills with the same path, that of the earlier folder counts."""
    own = bundled_folders(os.environ) if settings.bundled else ()
    return (home / "skills", *settings.external, *own)


class SkillLibrary:
    """The skills of a home and its plugins.

    Args:
        has_value: returns whether a variable has a value.
        disabled_plugins: returns the present value of `plugins.disabled`.
        source_of: returns the source of an untrusted file, or "" for any other.
        setting_values: returns the present value of `skills.config`.
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
        source_of: Callable[[str], str] = lambda path: "",
        setting_values: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.settings = settings
        self.plugins = plugins
        self.has_value = has_value
        self.disabled_plugins = disabled_plugins
        self._source_of = source_of
        self.setting_values = setting_values
        self.home = home
        self.directory = home / "skills"
        self._folder = SkillFolder(skill_roots(home, settings))
        self._hooks = hooks
        self._uses: dict[str, int] = {}

    def all_skills(self) -> list[LocalSkill]:
        """Return every local skill, including disabled ones and those for other systems."""
        return self._folder.find()

    def offered(self, platform: str = "") -> list[LocalSkill]:
        """Return the local skills for a platform (`cli`, `api_server`, …), without single files."""
        return [skill for skill in self.all_skills() if not skill.flat and self._is_offered(skill, platform)]

    def plugin_rows(self) -> list[SkillRow]:
        """Return the skills of enabled plugins that fit this system, sorted by name."""
        rows = []
        for name, skill in self.plugins.items():
            if self.is_plugin_disabled(skill):
                continue
            try:
                document = read_document(skill.path)
            except OSError as exc:
                logger.debug("skill %s cannot be read: %s", name, exc)
                continue
            if fits_platform(document) and fits_environment(document, os.environ):
                about = document.description or skill.description or str(skill.frontmatter.get("description") or "")
                rows.append(SkillRow(skill.plugin, name, about))
        return sorted(rows)

    def has_skills(self) -> bool:
        """Return whether any skill exists, local or of a plugin."""
        return len(self.plugins) > 0 or not self._folder.is_empty()

    def is_plugin_disabled(self, skill: PluginSkill) -> bool:
        """Return whether the operator disabled the plugin of the skill, by name or by key."""
        return not {skill.plugin, self.plugins.owner(skill.qualified)}.isdisjoint(self.disabled_plugins())

    def source(self, skill: LocalSkill) -> str:
        """Return the source of a skill with untrusted text, or "" for any other; in a worker."""
        return self._source_of(skill.real or str(skill.file.resolve()))

    def index(self, platform: str, tools: Collection[str], toolsets: Collection[str]) -> str:
        """Return the section of the system prompt about skills, or "" without any.

        Skills with untrusted text are only counted, because a prompt has no untrusted names and descriptions.

        Args:
            tools: names of the tools that the model is shown.
            toolsets: toolsets of these tools.
        """
        fitting = [s for s in self.offered(platform) if fits_tools(s.document, tools, toolsets)]
        own = [skill for skill in fitting if not self.source(skill)]
        return index_text(own, untrusted_count=len(fitting) - len(own), of_plugins=self.plugin_rows())

    def render(self, document: SkillFile, name: str, directory: Path, session_id: str) -> str:
        """Return the text for the model, with the values of the settings that the skill declares.

        A prompt injection in it is logged, but not removed.
        """
        if found := find_injection(document.text):
            logger.warning("skill %s: text that tries to change the agent's rules: %s", name, found)
        text = self.settings.rendering(document.text, directory.resolve(), session_id)
        values = self._settings_text(document)
        return f"{text.rstrip()}\n\n{values}" if values else text

    def _settings_text(self, document: SkillFile) -> str:
        """Return the block of upstream's form that tells the model the values of declared settings, or ""."""
        declared = declared_settings(document)
        if not declared:
            return ""
        values = self.setting_values()
        lines = [f"  {each.key} = {setting_text(each.value(values)[0])}" for each in declared]
        return "\n".join([f"[Skill config (from {self.home}/config.yaml):", *lines, "]"])

    def notify_change(self, name: str, action: str, path: Path, plugin: str = "") -> None:
        """Call `on_skill_lifecycle`, in a worker.

        Args:
            action: `loaded` (the model opened it), `used` (as a slash command), `removed` (its file does not exist).
            plugin: name of its plugin, or "" for a local skill.
        """
        if not self._hooks.has(LIFECYCLE):
            return
        count = self._uses[name] = self._uses.get(name, 0) + (action != "removed")
        scope = current_scope.get()
        self._hooks.fire(
            LIFECYCLE,
            name=name,
            skill_name=name,
            action=action,
            provenance=self._provenance(path, plugin),
            path=str(path),
            plugin=plugin,
            task_id=scope.task_id if scope is not None else "",
            session_id=scope.session_id if scope is not None else "",
            use_count=count,
            reused=count > 1,
            reuse_after_patch=None,
        )

    @staticmethod
    def is_bundled(skill: LocalSkill) -> bool:
        """Return whether a skill comes with the agent."""
        return any(skill.file.is_relative_to(folder) for folder in bundled_folders(os.environ))

    def origin(self, skill: LocalSkill) -> str:
        """Return `bundled`, or where a skill of the home was installed from; "" for others."""
        if self.is_bundled(skill):
            return "bundled"
        rows = JsonFile(self.directory / HUB / "lock.json").read().get("installed") or {}
        row = rows.get(skill.place)
        return str(row.get("source") or "") if isinstance(row, dict) else ""

    def _provenance(self, path: Path, plugin: str) -> str:
        if plugin:
            return "installed"
        return "external" if any(path.is_relative_to(folder) for folder in self.settings.external) else "local"

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
