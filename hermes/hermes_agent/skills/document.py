"""Read a `SKILL.md`: the fields at its top, and its text. Source: plugin contract §6.4."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hermes_agent.config.bounded_yaml import YamlRefused, parse_yaml
from hermes_agent.skills.files import read_file

__all__ = ["DESCRIPTION_CHARS", "NAME_CHARS", "SkillDocument", "parse_document", "read_document"]

NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
FIELDS_CHARS = 32 * 1_024
"""Longest top of a skill; a longer one is no top, but text."""

_TOP = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BUILT = (
    "name", "description", "version", "license", "compatibility", "platforms", "environments", "prerequisites",
    "required_environment_variables", "setup", "metadata", "tags", "related_skills",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SkillDocument:
    """What a `SKILL.md` says."""

    text: str
    """The whole file."""
    body: str
    """The text without the fields."""
    name: str = ""
    """At most 64 characters; empty when the file does not say it."""
    description: str = ""
    """In one line, at most 1,024 characters; without the field, the first line of the text."""
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""
    """Why the fields could not be read; empty when they could."""

    def names(self, *keys: str) -> list[str]:
        """Return the words of a field, or of one inside `metadata.hermes`; one word may stand without a list."""
        here: Any = self.fields
        for key in keys:
            here = here.get(key) if isinstance(here, Mapping) else None
        if isinstance(here, str):
            here = [word.strip() for word in here.split(",")]
        return [str(item) for item in here if item] if isinstance(here, list) else []


def read_document(path: Path) -> SkillDocument:
    """Read the file at `path`.

    Raises:
        OSError: it cannot be read, is no regular file, is too long, or is not UTF-8.
    """
    data = read_file(path)
    try:
        return parse_document(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise OSError(f"{path} is not UTF-8: {exc.reason}") from exc


def parse_document(text: str) -> SkillDocument:
    """Return what the text of a `SKILL.md` says; fields that cannot be read are passed over, with the problem."""
    match = _TOP.match(text, 0, FIELDS_CHARS)
    if match is None:
        return SkillDocument(text, text, description=_first_line(text))
    body = text[match.end() :]
    try:
        document = parse_yaml(match[1] or "", _BUILT)
    except YamlRefused as exc:
        return SkillDocument(text, body, description=_first_line(body), problem=str(exc))
    description = _one_line(document.scalars.get("description", "")) or _first_line(body)
    return SkillDocument(
        text,
        body,
        name=_one_line(document.scalars.get("name", ""))[:NAME_CHARS],
        description=description[:DESCRIPTION_CHARS],
        fields=MappingProxyType(document.values),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _first_line(body: str) -> str:
    lines = (line.strip().lstrip("#").strip() for line in body.splitlines())
    return _one_line(next((line for line in lines if line), ""))[:DESCRIPTION_CHARS]
