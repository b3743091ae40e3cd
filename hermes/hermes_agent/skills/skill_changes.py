"""The tool `skill_manage`: changes of the home's skills, made at once or proposed (`skills.write`).

The operations of one call are made all or none. The result is scanned as a skill of a tap is; the state before is kept
for `hermes skills revert NAME`. Source: plugin contract §6.4 and its later additions (`operations`).
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.skills.history import SkillHistory, difference, replace_folder, write_entries
from hermes_agent.skills.library import SkillLibrary
from hermes_agent.skills.scan import SKILL_NAME, SkillEntry, read_entries, scan_skill
from hermes_agent.skills.skill_file import ACTIONS, FOLDERS, HUB, SKILL_FILE, find_skill, is_plain_path
from hermes_agent.system.files import JsonFile
from hermes_agent.tools import current_scope, tool_result
from hermes_agent.tools.proposals import Proposals

MAX_DIFF = 8_000
"""Characters of the diff in a result."""

Files = Mapping[str, SkillEntry]


class SkillChange(LazyNamedTuple):
    """The states of one skill before and after a call."""

    place: str
    before: Files
    after: Files
    """Empty for a skill that is deleted."""

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.place.rpartition("/")[2]

    def diff(self) -> str:
        """Return the change as a unified diff."""
        return difference(self.before, self.after)


class SkillEditor:
    """Changes the skills of the home; also the `ProposalKind` of skills.

    Args:
        daily: changes that the agent may make a day (`skills.write_budget`).
    """

    def __init__(self, library: SkillLibrary, daily: Callable[[], int]) -> None:
        self._library = library
        self.root = library.directory
        self._daily = daily
        self._spent = JsonFile(self.root / HUB / "writes.json")
        self.history = SkillHistory(self.root)

    def plan(self, operations: Sequence[Mapping[str, Any]]) -> list[SkillChange]:
        """Return what operations change, without changing it.

        Raises:
            ToolFailed: one of them is not possible.
        """
        before: dict[str, Files] = {}
        now: dict[str, dict[str, SkillEntry]] = {}
        for operation in operations:
            place = self._place(operation, now)
            if place not in now:
                folder = self.root / place
                before[place] = read_entries(folder) if folder.is_dir() else {}
                now[place] = dict(before[place])
            _apply(operation, now[place])
        changes = [SkillChange(place, before[place], after) for place, after in now.items() if after != before[place]]
        for change in changes:
            scan = scan_skill(change.name, change.after) if change.after else None
            if scan is not None and scan.verdict == "dangerous":
                raise ToolFailed(f"the skill {change.name} is not written: {'; '.join(scan.lines()[:5])}")
        return changes

    def make(self, changes: Sequence[SkillChange]) -> None:
        """Make changes; the state before each is kept.

        Raises:
            UserError: a skill is not as it was when the change was planned.
        """
        for change in changes:
            folder = self.root / change.place
            now = read_entries(folder) if folder.is_dir() else {}
            if now != change.before:
                raise UserError(f"the skill {change.place} has changed since", hint="Propose the change again.")
        for change in changes:
            self.history.keep(change.place)
            fresh = None
            if change.after:
                fresh = self.root / HUB / "quarantine" / f"{change.name}-{time.time_ns()}"
                fresh.mkdir(parents=True, mode=0o700)
                write_entries(change.after, fresh)
                fresh.chmod(0o755)
            try:
                replace_folder(fresh, self.root / change.place)
            finally:
                if fresh is not None:
                    shutil.rmtree(fresh, ignore_errors=True)

    def spend(self) -> int:
        """Count one change of today, and return how many are left.

        Raises:
            ToolFailed: none is left.
        """
        today, limit = time.strftime("%Y-%m-%d"), self._daily()
        with self._spent.change() as value:
            count = int(value.get("count") or 0) if value.get("day") == today else 0
            if count >= limit:
                raise ToolFailed(f"no skill is changed: {limit} changes a day are the limit (`skills.write_budget`)")
            value.update(day=today, count=count + 1)
        return limit - count - 1

    # -- proposals -----------------------------------------------------------------------------------------------

    def show(self, change: Mapping[str, Any]) -> str:
        """Return the diff of a proposal."""
        return "\n".join(each.diff() for each in self._read(change))

    def apply(self, change: Mapping[str, Any]) -> str:
        """Make the change of a proposal."""
        changes = self._read(change)
        self.make(changes)
        places = [each.place for each in changes]
        return f"Changed: {', '.join(places)}. `hermes skills revert {places[0]}` undoes it."

    @staticmethod
    def encode(changes: Sequence[SkillChange]) -> dict[str, Any]:
        """Return changes as JSON types for a proposal."""
        return {
            "skills": [
                {"place": change.place, "base": _digest(change.before), "files": _encode(change.after)}
                for change in changes
            ]
        }

    def _read(self, change: Mapping[str, Any]) -> list[SkillChange]:
        found = []
        for row in change["skills"]:
            folder = self.root / str(row["place"])
            before = read_entries(folder) if folder.is_dir() else {}
            if _digest(before) != row["base"]:
                raise UserError(f"the skill {row['place']} has changed since it was proposed", hint="Reject it.")
            found.append(SkillChange(str(row["place"]), before, _decode(row["files"])))
        return found

    def _place(self, operation: Mapping[str, Any], planned: Mapping[str, Any]) -> str:
        """Return the path of the skill that an operation is about, below the folder of skills."""
        name, action = str(operation.get("name") or "").strip(), str(operation.get("action") or "")
        if action not in ACTIONS:
            raise ToolFailed(f"unknown action {action!r}: expected {', '.join(ACTIONS)}")
        bare = name.rpartition("/")[2]
        if ":" in name:
            raise ToolFailed(f"{name} is a skill of a plugin, which cannot be changed")
        if not is_plain_path(name) or SKILL_NAME.fullmatch(bare) is None:
            raise ToolFailed(f"invalid name {name!r}: it must match {SKILL_NAME.pattern}")
        if name in planned:
            return name
        found = [skill for skill in find_skill(name, self._library.all_skills()) if not skill.flat]
        own = [skill for skill in found if skill.file.is_relative_to(self.root)]
        if action == "create":
            category = str(operation.get("category") or "").strip().strip("/")
            place = f"{category}/{name}" if category else name
            if not is_plain_path(place) or any(part.startswith(".") for part in place.split("/")):
                raise ToolFailed(f"invalid category {category!r}")
            if own or (self.root / place).exists():
                raise ToolFailed(f"there is a skill {name!r} already: patch or edit it")
            return place
        if not own:
            known = ", ".join(s.place for s in self._library.all_skills() if s.file.is_relative_to(self.root))
            why = "it is not one of this home, and cannot be changed" if found else "there is none"
            raise ToolFailed(f"skill {name!r}: {why}. Those of this home: {known or 'none'}")
        if len(own) > 1:
            raise ToolFailed(f"{len(own)} skills have the name {name!r}: {', '.join(skill.place for skill in own)}")
        return own[0].place


def _apply(operation: Mapping[str, Any], files: dict[str, SkillEntry]) -> None:
    action, path = str(operation["action"]), str(operation.get("file_path") or "")
    content = operation.get("content")
    match action:
        case "create" | "edit":
            files[SKILL_FILE] = _text_entry(content, "content")
        case "patch" if isinstance(content, str) and "old_string" not in operation:
            files[SKILL_FILE] = _text_entry(content, "content")
        case "patch":
            place = _checked(path, files) if path not in ("", SKILL_FILE) else SKILL_FILE
            files[place] = _patched(operation, place, files)
        case "delete":
            files.clear()
        case "write_file":
            given = operation.get("file_content", content)
            files[_checked(path)] = _text_entry(given, "file_content")
        case "remove_file":
            del files[_checked(path, files)]


def _patched(operation: Mapping[str, Any], place: str, files: Files) -> SkillEntry:
    old, new = str(operation.get("old_string") or ""), str(operation.get("new_string") or "")
    text = (files[place].data or b"").decode("utf-8", "replace")
    count = text.count(old) if old else 0
    if not count:
        raise ToolFailed(f"old_string is not in {place}: give a part of it as it is there")
    if count > 1 and not operation.get("replace_all"):
        raise ToolFailed(f"old_string is in {place} {count} times: give more of it, or set replace_all")
    return _text_entry(text.replace(old, new), "new_string", files[place].executable)


def _text_entry(content: Any, name: str, executable: bool = False) -> SkillEntry:
    if not isinstance(content, str) or not content.strip():
        raise ToolFailed(f"{name} is empty")
    data = redactor.mask_known(content).encode()
    return SkillEntry("file", len(data), data, executable)


def _checked(path: str, files: Files | None = None) -> str:
    if not is_plain_path(path) or path.split("/")[0] not in FOLDERS or len(path.split("/")) < 2:
        raise ToolFailed(f"file_path {path!r}: expected a path below {', '.join(f'{name}/' for name in FOLDERS)}")
    if files is not None and path not in files:
        raise ToolFailed(f"the skill has no file {path!r}: {', '.join(sorted(files)) or 'it has none'}")
    return path


def _digest(files: Files) -> str:
    whole = hashlib.sha256()
    for path, entry in sorted(files.items()):
        whole.update(f"{path}\0{entry.executable}\0{hashlib.sha256(entry.data or b'').hexdigest()}\n".encode())
    return whole.hexdigest()


def _encode(files: Files) -> dict[str, dict[str, Any]]:
    return {
        path: {"data": base64.b64encode(entry.data or b"").decode(), "executable": entry.executable}
        for path, entry in files.items()
    }


def _decode(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, SkillEntry]:
    found = {}
    for path, row in rows.items():
        data = base64.b64decode(row["data"])
        found[path] = SkillEntry("file", len(data), data, bool(row["executable"]))
    return found


class SkillManage:
    """The handler of `skill_manage`.

    Args:
        mode: returns `propose` or `direct`.
    """

    def __init__(self, editor: SkillEditor, proposals: Proposals, mode: Callable[[], str]) -> None:
        self._editor = editor
        self._proposals = proposals
        self._mode = mode

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success`, `state` (`applied` or `proposed`), `diff` and what to do next, as JSON text.

        Raises:
            ToolFailed: nothing was changed or proposed.
        """
        operations = args.get("operations") or [args]
        if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
            raise ToolFailed("operations is no list of mappings with name and action")
        changes = self._editor.plan(operations)
        if not changes:
            return tool_result(success=True, state="unchanged", message="The skills are like this already.")
        names = ", ".join(dict.fromkeys(change.place for change in changes))
        diff = "".join(change.diff() for change in changes)
        shown = diff if len(diff) <= MAX_DIFF else f"{diff[:MAX_DIFF]}\n[… {len(diff) - MAX_DIFF} more characters]"
        left = self._editor.spend()
        if self._mode() == "direct":
            try:
                self._editor.make(changes)
            except UserError as error:
                raise ToolFailed(str(error)) from error
            text = f"Changed {names}. `hermes skills revert {changes[0].place}` undoes it."
            return tool_result(success=True, state="applied", applied=True, diff=shown, left_today=left, message=text)
        scope = current_scope.get()
        try:
            proposal = self._proposals.add(
                "skill",
                f"{args.get('action') or 'change'!s} {names}",
                self._editor.encode(changes),
                reason=str(args.get("reason") or ""),
                session_id="" if scope is None else scope.session_id,
            )
        except UserError as error:
            raise ToolFailed(str(error)) from error
        text = f"Proposed, not made: the user decides with `/proposals accept {proposal.short}`. Tell them."
        return tool_result(
            success=True, state="proposed", applied=False, proposal=proposal.short, diff=shown, message=text
        )
