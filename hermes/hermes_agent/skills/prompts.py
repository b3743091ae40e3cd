"""Prompts and bundles of the user: `prompts/NAME.md`, `skill-bundles/NAME.yaml`.

A prompt is a message with places for arguments: `$ARGUMENTS` for all of them, `$1` to `$9` for one, `$$` for a dollar
sign. A bundle names skills that are used together, with an instruction.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import yaml

from hermes_agent.commands import RESERVED
from hermes_agent.config.bounded_yaml import YamlRejected, read_yaml
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.skills.skill_file import LocalSkill, SkillFile, SkillFolder
from hermes_agent.system.files import write_atomic

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


class SkillBundle(LazyNamedTuple):
    """Skills that are used together."""

    name: str
    description: str
    skills: tuple[str, ...]
    instruction: str
    file: Path

    @property
    def about(self) -> str:
        """The description, or what the bundle consists of."""
        return self.description or f"the skills {', '.join(self.skills)}"

    def text(self) -> str:
        """Return what users are shown: name, skills, instruction, file."""
        lines = [f"/{self.name}: {self.about}", *(f"  {skill}" for skill in self.skills)]
        return "\n".join([*lines, *([self.instruction.strip()] if self.instruction.strip() else []), str(self.file)])

    def as_skill(self) -> LocalSkill:
        """Return the bundle in the form of a skill, for lists."""
        document = SkillFile("", self.instruction, self.name, self.about, MappingProxyType({}))
        return LocalSkill(document, self.file, self.name, flat=True)


class SkillBundles:
    """The bundles of a home.

    Args:
        home: the home with the folder `skill-bundles`.
    """

    def __init__(self, home: Path) -> None:
        self.root = home / BUNDLES

    def find(self) -> dict[str, SkillBundle]:
        """Return the bundles by name; a file that cannot be read is logged and left out."""
        found, problems = self.read()
        for problem in problems:
            logger.warning("bundle %s", problem)
        return found

    def read(self) -> tuple[dict[str, SkillBundle], list[str]]:
        """Return the bundles by name, and why files are left out."""
        found: dict[str, SkillBundle] = {}
        problems: list[str] = []
        for file in sorted((*self.root.glob("*.yaml"), *self.root.glob("*.yml"))):
            try:
                bundle = _read_bundle(file)
            except (OSError, YamlRejected, UnicodeDecodeError) as exc:
                problems.append(f"{file}: left out: {exc}")
                continue
            if not bundle.skills or not bundle.name:
                problems.append(f"{file}: left out: `skills` names none" if bundle.name else f"{file}: it has no name")
            elif bundle.name in found:
                problems.append(f"{file}: left out: {found[bundle.name].file} has the name {bundle.name}, too")
            else:
                found[bundle.name] = bundle
        return found, problems

    def write(
        self, name: str, skills: Sequence[str], *, description: str = "", instruction: str = "", replaces: bool = False
    ) -> SkillBundle:
        """Write a bundle and return it.

        Args:
            replaces: whether it may take the place of a bundle with that name.

        Raises:
            UserError: the name is no name of a bundle, or is taken, or no skill is named.
        """
        wanted = bundle_name(name)
        if not wanted or wanted in RESERVED:
            why = f"/{wanted} is a command of the agent" if wanted else "a name has letters, digits and `-`"
            raise UserError(f"{name!r} cannot be the name of a bundle: {why}", exit_status=EXIT_USAGE)
        if not skills:
            raise UserError(
                f"the bundle {wanted} names no skill",
                hint="`--skill NAME`, once for each skill.",
                exit_status=EXIT_USAGE,
            )
        known = self.read()[0].get(wanted)
        file = self.root / f"{wanted}.yaml" if known is None else known.file
        if not replaces and (known is not None or file.exists()):
            raise UserError(f"the bundle {wanted} exists already: {file}", hint="`--force` replaces it.")
        rows = {"name": wanted, "description": description, "skills": list(skills), "instruction": instruction}
        self.root.mkdir(parents=True, exist_ok=True)
        write_atomic(file, yaml.safe_dump({k: v for k, v in rows.items() if v}, sort_keys=False, allow_unicode=True))
        return _read_bundle(file)

    def delete(self, name: str) -> SkillBundle:
        """Delete a bundle and return it.

        Raises:
            UserError: there is none with that name.
        """
        bundle = self.get(name)
        bundle.file.unlink(missing_ok=True)
        return bundle

    def get(self, name: str) -> SkillBundle:
        """Return the bundle with that name.

        Raises:
            UserError: there is none.
        """
        found = self.read()[0]
        if (bundle := found.get(bundle_name(name))) is None:
            near = nearest_name(bundle_name(name), tuple(found))
            meant = f"Did you mean {near}? " if near else ""
            raise UserError(f"there is no bundle {name!r}", hint=f"{meant}There are: {', '.join(found) or 'none'}.")
        return bundle


def bundle_name(text: str) -> str:
    """Return the name of the command of a bundle: letters in lower case, digits, and `-`."""
    return re.sub(r"[^a-z0-9-]+", "-", text.strip().lower()).strip("-")


def _read_bundle(file: Path) -> SkillBundle:
    values: Mapping[str, object] = read_yaml(str(file), ("name", "description", "skills", "instruction")).values
    listed = values.get("skills")
    skills = tuple(str(name) for name in listed) if isinstance(listed, list) else ()
    name = bundle_name(str(values.get("name") or file.stem))
    return SkillBundle(name, str(values.get("description") or ""), skills, str(values.get("instruction") or ""), file)
