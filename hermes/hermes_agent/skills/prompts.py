"""Prompts and bundles of the user: `prompts/NAME.md`, `skill-bundles/NAME.yaml`.

A prompt is a message with places for arguments: `$ARGUMENTS` for all of them, `$1` to `$9` for one, `$$` for a dollar
sign. A bundle names skills that are used together, with an instruction.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.skills.skill_file import LocalSkill, SkillFile, SkillFolder

logger = logging.getLogger(__name__)

PROMPTS = "prompts"
BUNDLES = "skill-bundles"
_PLACE = re.compile(r"\$(?:(ARGUMENTS)\b|([1-9])|(\$))")


class SavedPrompts:
    """The prompts of a home.

    Args:
        home: the home with the folder `prompts`.
    """

    def __init__(self, home: Path) -> None:
        self._folder = SkillFolder((home / PROMPTS,))

    def find(self) -> dict[str, LocalSkill]:
        """Return the prompts by name: the path below the folder, with `-` for its slashes."""
        return {prompt.place.replace("/", "-").lower(): prompt for prompt in self._folder.find() if prompt.flat}


def fill_prompt(text: str, arguments: str) -> str:
    """Return the text of a prompt with its arguments; without a place for them they follow the text."""
    try:
        words = shlex.split(arguments)
    except ValueError:  # an open quote
        words = arguments.split()
    has_place = False

    def fill(found: re.Match[str]) -> str:
        nonlocal has_place
        if found[3]:
            return "$"
        has_place = True
        if found[1]:
            return arguments.strip()
        number = int(found[2])
        return words[number - 1] if number <= len(words) else ""

    filled = _PLACE.sub(fill, text).strip()
    return filled if has_place or not arguments.strip() else f"{filled}\n\n{arguments.strip()}"


def argument_hint(prompt: LocalSkill) -> str:
    """Return what help shows after the name: the field `argument-hint`, or the places of the text."""
    hint = prompt.document.fields.get("argument-hint") or prompt.document.fields.get("argument_hint")
    if hint:
        return " ".join(map(str, hint)) if isinstance(hint, list) else str(hint)
    places = sorted({found[2] for found in _PLACE.finditer(prompt.document.body) if found[2]})
    return " ".join(f"ARG{number}" for number in places) or "[TEXT]"


class SkillBundle(NamedTuple):
    """Skills that are used together."""

    name: str
    description: str
    skills: tuple[str, ...]
    instruction: str
    file: Path

    def as_skill(self) -> LocalSkill:
        """Return the bundle in the form of a skill, for lists."""
        about = self.description or f"the skills {', '.join(self.skills)}"
        document = SkillFile("", self.instruction, self.name, about, MappingProxyType({}))
        return LocalSkill(document, self.file, self.name, flat=True)


class SkillBundles:
    """The bundles of a home.

    Args:
        home: the home with the folder `skill-bundles`.
    """

    def __init__(self, home: Path) -> None:
        self._root = home / BUNDLES

    def find(self) -> dict[str, SkillBundle]:
        """Return the bundles by name; a file that cannot be read is logged and left out."""
        found: dict[str, SkillBundle] = {}
        for file in sorted((*self._root.glob("*.yaml"), *self._root.glob("*.yml"))):
            try:
                bundle = _read_bundle(file)
            except (OSError, YamlRejected, UnicodeDecodeError) as exc:
                logger.warning("bundle %s: left out: %s", file, exc)
                continue
            if bundle.skills:
                found.setdefault(bundle.name, bundle)
            else:
                logger.warning("bundle %s: left out: `skills` names none", file)
        return found


def _read_bundle(file: Path) -> SkillBundle:
    values: Mapping[str, object] = read_yaml(str(file), ("name", "description", "skills", "instruction")).values
    listed = values.get("skills")
    skills = tuple(str(name) for name in listed) if isinstance(listed, list) else ()
    name = re.sub(r"[^a-z0-9-]+", "-", str(values.get("name") or file.stem).lower()).strip("-")
    return SkillBundle(name, str(values.get("description") or ""), skills, str(values.get("instruction") or ""), file)
