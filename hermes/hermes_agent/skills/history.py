"""Earlier states of skills: kept before each change, and restored with one command.

The states are folders below `skills/.hub/history/NAME`; names begin with the time, so that they sort by age.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.skills.scan import SkillEntry
from hermes_agent.skills.skill_file import HUB

KEPT = 10
"""Earlier states of one skill that are kept."""
_ABSENT = "absent"
"""Name of the file that stands for a skill that did not exist."""


class SkillHistory:
    """The earlier states of the skills of a home.

    Args:
        skills: the folder `skills/` of the home.
    """

    def __init__(self, skills: Path) -> None:
        self._skills = skills
        self._root = skills / HUB / "history"

    def states(self, place: str) -> list[str]:
        """Return the ids of the earlier states, newest first."""
        folder = self._folder(place)
        return sorted((path.name for path in folder.iterdir()), reverse=True) if folder.is_dir() else []

    def keep(self, place: str) -> str:
        """Store the present state of a skill, and return its id.

        Args:
            place: path of the skill below `skills/`; a missing skill is stored as missing.
        """
        state = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
        target = self._folder(place) / state
        target.mkdir(parents=True, mode=0o700)
        source = self._skills / place
        if source.is_dir():
            shutil.copytree(source, target / "skill", symlinks=True)
        else:
            (target / _ABSENT).touch()
        for old in self.states(place)[KEPT:]:
            shutil.rmtree(self._folder(place) / old, ignore_errors=True)
        return state

    def revert(self, place: str, state: str = "") -> str:
        """Restore an earlier state, the last one by default, and return what happened in words.

        The present state is kept first, so that a second revert brings it back.

        Raises:
            UserError: there is no such state.
        """
        known = self.states(place)
        chosen = state or (known[0] if known else "")
        if chosen not in known:
            hint = f"There are: {', '.join(known)}." if known else "A state is kept before each change of a skill."
            raise UserError(f"skill {place!r} has no earlier state{f' {state!r}' if state else ''}", hint=hint)
        folder = self._folder(place) / chosen
        copy = folder.with_name(f".{chosen}")
        shutil.copytree(folder, copy, symlinks=True)
        try:
            self.keep(place)
            target = self._skills / place
            if (copy / _ABSENT).exists():
                replace_folder(None, target)
                return f"Removed {place}: it did not exist before."
            replace_folder(copy / "skill", target)
            return f"Restored {place} as it was {_when(chosen)}."
        finally:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, place: str) -> Path:
        return self._root / place.replace("/", "__")


def _when(state: str) -> str:
    return time.strftime("at %Y-%m-%d %H:%M:%S", time.localtime(int(state.partition("-")[0]) / 1e9))


def replace_folder(new: Path | None, target: Path) -> None:
    """Put a folder in the place of another one.

    Args:
        new: None removes the other one.
    """
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    if os.path.lexists(target):
        target.rename(aside)
    if new is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def write_entries(entries: Mapping[str, SkillEntry], folder: Path) -> None:
    """Write the files of a skill into a new folder; paths and kinds were checked by the scan."""
    for path, entry in entries.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.data or b"")
        target.chmod(0o755 if entry.executable else 0o644)


def difference(old: Mapping[str, SkillEntry], new: Mapping[str, SkillEntry]) -> str:
    """Return how two states of a skill differ, as a unified diff."""
    import difflib  # a daemon that waits compares nothing

    lines: list[str] = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        texts = [_lines(entry) for entry in (before, after)]
        if None in texts:
            lines.append(f"Binary file {path} differs\n")
            continue
        names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
        found = list(difflib.unified_diff(texts[0] or [], texts[1] or [], *names))
        if before is not None and after is not None and before.executable != after.executable:
            lines.append(f"mode of {path}: {'executable' if after.executable else 'plain'}\n")
        lines += [line if line.endswith("\n") else f"{line}\n" for line in found]
    return "".join(lines)


def _lines(entry: SkillEntry | None) -> list[str] | None:
    if entry is None:
        return []
    try:
        return (entry.data or b"").decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
