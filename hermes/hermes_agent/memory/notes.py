"""The agent's own notes for each user: `MEMORY.md` about its environment, `USER.md` about the user.

A line with a section sign separates entries. A file is changed under a lock and replaced as a whole, so that two
processes do not lose each other's entries. Source: plugin contract §12.2, §12.3 (`memory`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.core.untrusted import find_injection
from hermes_agent.sessions.principals import folder_name
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.system.locks import FileLock

FILES = {"memory": "MEMORY.md", "user": "USER.md"}
_MARK = "§"
_SEPARATOR = re.compile(rf"^[ \t]*{_MARK}[ \t]*$", re.MULTILINE)
_TITLES = {"memory": "MEMORY (your own notes)", "user": "USER (what you know about the person)"}
_MAX_BYTES = 1024 * 1024


class NoteSettings(LazyNamedTuple):
    """The settings under `memory`."""

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    memory_char_limit: int = 2200
    user_char_limit: int = 1375

    def limits(self) -> dict[str, int]:
        """Return the longest text of each enabled file, in characters."""
        enabled = {"memory": self.memory_enabled, "user": self.user_profile_enabled}
        longest = {"memory": self.memory_char_limit, "user": self.user_char_limit}
        return {target: longest[target] for target, is_enabled in enabled.items() if is_enabled}


class NoteChange(LazyNamedTuple):
    """A change of one entry."""

    action: str
    """`add`, `replace` or `remove`."""
    content: str = ""
    old_text: str = ""
    """A part of the entry to change."""
    previous: str = ""
    """The whole entry before the change, for observers."""

    @classmethod
    def from_arguments(cls, args: Mapping[str, Any]) -> NoteChange:
        """Return the change that arguments of the tool describe; known secrets are masked."""
        return cls(*(redactor.mask_known(str(args.get(name) or "").strip()) for name in cls._fields[:3]))


def notes_folder(home: Path, user: str) -> Path:
    """Return the folder with the notes of a user. `user`: "" for the owner of the home."""
    root = home / "memories"
    return root / "people" / folder_name(user) if user else root


class Notes:
    """The notes of one user.

    Args:
        limits: the longest text of each file, in characters; a file without a limit is not used.
    """

    def __init__(self, folder: Path, limits: Mapping[str, int]) -> None:
        self._folder = folder
        self.limits = dict(limits)

    def entries(self, target: str) -> list[str]:
        """Return the entries of a file."""
        try:
            with (self._folder / FILES[target]).open("rb") as file:
                text = file.read(_MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return [entry for part in _SEPARATOR.split(text) if (entry := part.strip())]

    def block(self) -> tuple[str, list[str]]:
        """Return the section of the system prompt, and a notice for each entry with prompt injection."""
        sections, notices = [], []
        for target in self.limits:
            entries = []
            for entry in self.entries(target):
                if why := find_injection(entry):
                    notices.append(f"an entry of {self._folder / FILES[target]} is not part of the prompt: {why}")
                else:
                    entries.append(entry)
            if entries:
                sections.append(f"## {_TITLES[target]} [{self.usage(target, entries)}]\n{_joined(entries)}")
        return "\n\n".join(sections), notices

    def usage(self, target: str, entries: Sequence[str]) -> str:
        """Return how full a file is, for the model."""
        used, limit = len(_joined(entries)), self.limits[target]
        return f"{100 * used // max(limit, 1)}% — {used:,}/{limit:,} chars"

    def change(self, target: str, changes: Sequence[NoteChange]) -> list[str]:
        """Make all changes or none, and return the entries after them.

        Raises:
            ToolFailed: a change is not possible; the text says what to do.
        """
        with self._locked():
            before = self.entries(target)
            entries = list(before)
            for change in changes:
                _apply(entries, change)
            used, limit = len(_joined(entries)), self.limits[target]
            if used > limit and used >= len(_joined(before)):
                raise ToolFailed(
                    f"{FILES[target]} would have {used:,} characters, and {limit:,} are the limit: replace or remove"
                    " entries first, or write shorter. Nothing was changed. The entries are:\n" + _joined(before)
                )
            if entries != before:
                self._write(target, entries)
        return entries

    def write(self, target: str, entries: Sequence[str]) -> None:
        """Replace all entries of a file."""
        with self._locked():
            self._write(target, entries)

    def _write(self, target: str, entries: Sequence[str]) -> None:
        write_atomic(self._folder / FILES[target], _joined(entries) + "\n" if entries else "", mode=PRIVATE)

    def _locked(self) -> FileLock:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FileLock(self._folder / ".lock", subject=str(self._folder))


def _joined(entries: Sequence[str]) -> str:
    return f"\n{_MARK}\n".join(entries)


def _apply(entries: list[str], change: NoteChange) -> None:
    match change.action:
        case "add":
            content = _check_content(change.content)
            if content not in entries:
                entries.append(content)
        case "replace":
            entries[_index(entries, change.old_text)] = _check_content(change.content)
        case "remove":
            del entries[_index(entries, change.old_text)]
        case _:
            raise ToolFailed(f"unknown action {change.action!r}: expected add, replace or remove")


def _check_content(content: str) -> str:
    if not content:
        raise ToolFailed("content is empty: say what is to be remembered")
    if _SEPARATOR.search(content):
        raise ToolFailed(f"content has a line with nothing but {_MARK}, which parts entries: add them one by one")
    if why := find_injection(content):
        raise ToolFailed(f"this is not kept, since it would be read as an instruction later: {why}")
    return content


def _index(entries: Sequence[str], old_text: str) -> int:
    if not old_text:
        raise ToolFailed("old_text is empty: give a part of the entry that is meant")
    found = [i for i, entry in enumerate(entries) if old_text in entry]
    if not found:
        raise ToolFailed(f"no entry has {old_text!r}. The entries are:\n{_joined(entries) or '(none)'}")
    if len(found) > 1 and len({entries[i] for i in found}) > 1:
        some = "\n".join(f"- {entries[i][:80]}" for i in found[:5])
        raise ToolFailed(f"{old_text!r} is in {len(found)} entries: give more of the one that is meant:\n{some}")
    return found[0]
