"""Skills as slash commands: `/slug TASK`. Source: plugin contract §6.4, §7.2.

The text of the skill becomes the user message of a turn, followed by the task.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import PluginSkill
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.skills.library import SkillLibrary
from hermes_agent.skills.prompts import SavedPrompts, SkillBundle, SkillBundles, argument_hint, fill_prompt
from hermes_agent.skills.skill_file import LocalSkill, fits_platform, read_document

MAX_STACKED = 5
"""Skills that one line may name: `/a /b TASK`."""

_HEAD = '[The user chose the skill "{name}" for this request. Its text follows; keep to it.]'
_HEAD_BEGINS = '[The user chose the skill "'
_ASKED = "[What the user wants done with it:]"
_ALONE = "[The user wrote nothing more. Begin as the skill says; ask if something is missing.]"
_WORD = re.compile(r"/([A-Za-z0-9][\w:.-]*)(?=\s|\Z)\s*")


def slug(name: str) -> str:
    """Return the command name of a skill: letters in lower case, digits, and `-`."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9-]", "", re.sub(r"[\s_]", "-", name.lower()))).strip("-")


def instruction_of(content: Any) -> str | None:
    """Return the task that a user message adds to a skill, or None without a task or a skill.

    Args:
        content: content of the message: text, or a list of parts.
    """
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "\n".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str) or not content.startswith(_HEAD_BEGINS):
        return None
    _, found, rest = content.rpartition(f"\n{_ASKED}\n")
    return (rest.strip() or None) if found else None


def sibling_banner(skill: PluginSkill, siblings: list[PluginSkill]) -> str:
    """Return what stands above the text of a plugin's skill."""
    plugin = skill.plugin
    lines = [f"[Bundle context: This skill is part of the '{plugin}' plugin."]
    if siblings:
        lines.append(f"Sibling skills: {', '.join(s.bare_name for s in siblings)}.")
        lines.append(f"Use qualified form to invoke siblings (e.g. {siblings[0].qualified}).")
    return "\n".join(lines) + "]\n\n"


class SkillCommands:
    """Skills as slash commands. A skill with untrusted text is marked."""

    def __init__(self, library: SkillLibrary) -> None:
        self._library = library
        self._prompts = SavedPrompts(library.home)
        self.bundles = SkillBundles(library.home)

    def offered(self, platform: str) -> dict[str, LocalSkill]:
        """Return bundles, prompts and offered skills by slug; of several with the same slug the first counts."""
        found = {name: bundle.as_skill() for name, bundle in self.bundles.find().items()}
        for name, prompt in self._prompts.find().items():
            found.setdefault(name, prompt)
        for name, skill in self._skills(platform).items():
            found.setdefault(name, skill)
        return found

    def message(self, name: str, arguments: str, *, session_id: str, platform: str) -> str | None:
        """Return the user message for `/name arguments`, or None if no skill has that name; in a worker.

        Args:
            name: a slug, the name of a prompt or a bundle, or `plugin:skill`.
            arguments: further skills (`/b`), up to `MAX_STACKED` in all, then the task.
        """
        if (bundle := self.bundles.find().get(name)) is not None:
            return self._bundle_text(bundle, arguments.strip(), session_id, platform)
        if (prompt := self._prompts.find().get(name)) is not None:
            text = fill_prompt(prompt.document.body, arguments)
            source = self._library.source(prompt)
            return mark_untrusted(text, source) if source else text
        local = self._skills(platform)
        first = self._block(name, local, session_id)
        if first is None:
            return None
        blocks, rest, seen = [first], arguments.strip(), {name}
        while len(blocks) < MAX_STACKED and (match := _WORD.match(rest)) is not None:
            block = None if match[1] in seen else self._block(match[1], local, session_id)
            if block is None and match[1] not in seen:
                break
            seen.add(match[1])
            blocks += [block] if block is not None else []
            rest = rest[match.end() :]
        return "\n\n".join((*blocks, f"{_ASKED}\n{rest}" if rest else _ALONE))

    def _bundle_text(self, bundle: SkillBundle, task: str, session_id: str, platform: str) -> str:
        local = self._skills(platform)
        blocks = [(name, self._block(name, local, session_id)) for name in bundle.skills]
        missing = [name for name, block in blocks if block is None]
        about = (
            [f"[The bundle {bundle.name!r} names skills that are not there: {', '.join(missing)}.]"] if missing else []
        )
        about += [bundle.instruction.strip()] if bundle.instruction.strip() else []
        found = [block for _, block in blocks if block is not None]
        return "\n\n".join((*found, *about, f"{_ASKED}\n{task}" if task else _ALONE))

    def own_names(self, platform: str) -> list[str]:
        """Return the slugs without those of skills that come with the agent."""
        return [name for name, skill in self.offered(platform).items() if not self._library.is_bundled(skill)]

    def hint(self, skill: LocalSkill) -> str:
        """Return what help shows after the name of an offered skill, prompt or bundle."""
        return argument_hint(skill) if skill.flat and skill.file.suffix == ".md" else "[what to do]"

    def _skills(self, platform: str) -> dict[str, LocalSkill]:
        """Return the offered skills by slug, without prompts and bundles."""
        found: dict[str, LocalSkill] = {}
        for skill in self._library.offered(platform):
            if key := slug(skill.name):
                found.setdefault(key, skill)
        return found

    def _block(self, name: str, local: dict[str, LocalSkill], session_id: str) -> str | None:
        skill = local.get(name) or local.get(slug(name))
        library = self._library
        if skill is not None:
            text = library.render(skill.document, skill.name, skill.directory, session_id)
            library.notify_change(skill.name, "used", skill.file)
            if source := library.source(skill):
                return _chosen_skill_text(name, mark_untrusted(text, source), skill.directory)
            return _chosen_skill_text(skill.name, text, skill.directory)
        registered = self._of_plugin(name)
        if registered is None or library.is_plugin_disabled(registered):
            return None
        try:
            document = read_document(registered.path)
        except OSError:  # `skill_view` reports the error
            return None
        if not fits_platform(document):
            return None
        directory = registered.path.resolve().parent
        siblings = [s for s in library.plugins.of_plugin(registered.plugin) if s != registered]
        text = sibling_banner(registered, siblings) + library.render(
            document, registered.qualified, directory, session_id
        )
        library.notify_change(registered.qualified, "used", registered.path, registered.plugin)
        return _chosen_skill_text(registered.qualified, text, directory)

    def _of_plugin(self, name: str) -> PluginSkill | None:
        """Return the skill with that qualified name, in any case: names of commands are in lower case."""
        wanted = name.lower()
        return next((skill for known, skill in self._library.plugins.items() if known.lower() == wanted), None)


def _chosen_skill_text(name: str, text: str, directory: Path) -> str:
    return f"{_HEAD.format(name=name)}\n\n{text.strip()}\n\n[Its directory: {directory}]"
