"""The skills of a home: directories with a `SKILL.md`, in categories. Source: plugin contract §6.4."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.skills.document import SkillFile, read_document

__all__ = ["SKILL_FILE", "LocalSkill", "SkillFolder", "find_skill"]

logger = logging.getLogger(__name__)

SKILL_FILE = "SKILL.md"
MAX_DEPTH = 4
"""Folders between a root and a skill, itself included."""
MAX_SKILLS = 2_000
_NO_SKILLS = frozenset({"README.md", "DESCRIPTION.md", "CHANGELOG.md", "LICENSE.md"})


@dataclass(frozen=True, slots=True)
class LocalSkill:
    """A skill in a directory of the person's."""

    document: SkillFile
    file: Path
    """Its `SKILL.md`, or its one file."""
    place: str
    """Path from the root: `category/name`."""
    flat: bool = False
    """An old form: one file `name.md`; it can be opened, and stands in no list."""

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self.file.parent

    @property
    def folder(self) -> str:
        """The last part of its place."""
        return self.place.rpartition("/")[2]

    @property
    def name(self) -> str:
        """What it calls itself, else its folder."""
        return self.document.name or self.folder

    @property
    def category(self) -> str:
        """The folders that it lies in; empty at the root."""
        return self.place.rpartition("/")[0]

    @property
    def setting_names(self) -> frozenset[str]:
        """What a setting may call it."""
        return frozenset((self.name, self.folder, self.place))


class SkillFolder:
    """Finds skills below some roots; a file is read again when it has changed.

    Args:
        roots: an earlier one wins where two have a skill at one place.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._cache: dict[str, tuple[tuple[int, int], SkillFile | None]] = {}

    def find(self) -> list[LocalSkill]:
        """Return every skill, sorted by place. What cannot be read is left out, with a line in the log."""
        found: dict[str, LocalSkill] = {}
        for root in self.roots:
            for file, place, flat in _walk(root, "", MAX_DEPTH, set()):
                if place in found or len(found) >= MAX_SKILLS:
                    continue
                document = self._document(file)
                if document is not None:
                    found[place] = LocalSkill(document, Path(file), place, flat)
        return [found[place] for place in sorted(found)]

    def is_empty(self) -> bool:
        """Say whether there is no skill at all, without reading one."""
        return not any(not flat for root in self.roots for _, _, flat in _walk(root, "", MAX_DEPTH, set()))

    def _document(self, file: str) -> SkillFile | None:
        try:
            status = os.stat(file)  # noqa: PTH116 - many files at each start of a session
        except OSError as exc:
            logger.warning("the skill %s is left out: %s", file, exc.strerror)
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._cache.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        document: SkillFile | None = None
        try:
            document = read_document(Path(file))
            if document.problem:
                logger.warning("the fields of skill %s are passed over: %s", file, document.problem)
        except OSError as exc:
            logger.warning("the skill %s is left out: %s", file, exc.strerror or exc)
        self._cache[file] = (stamp, document)
        return document


def _walk(root: Path | str, place: str, depth: int, above: set[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield file, place and whether it is of the old form; a link that leads upwards is not followed."""
    real = os.path.realpath(root)
    if real in above:
        return
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:  # there is none, or it may not be read: nothing of ours
        return
    if place and any(entry.name == SKILL_FILE and entry.is_file() for entry in entries):
        yield f"{root}/{SKILL_FILE}", place, False
        return
    for entry in entries:
        here = f"{place}/{entry.name}" if place else entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if depth > 0:
                yield from _walk(entry.path, here, depth - 1, above | {real})
        elif entry.name.endswith(".md") and entry.name not in _NO_SKILLS and entry.is_file():
            yield entry.path, here.removesuffix(".md"), True


def find_skill(name: str, skills: Sequence[LocalSkill]) -> list[LocalSkill]:
    """Return what `name` may mean: by place, else by folder, else by the name in the file; old forms last."""
    whole = [skill for skill in skills if not skill.flat]
    flat = [skill for skill in skills if skill.flat]
    return (
        [s for s in whole if s.place == name]
        or [s for s in whole if s.folder == name]
        or [s for s in whole if s.name == name]
        or [s for s in flat if name in s.setting_names]
    )
