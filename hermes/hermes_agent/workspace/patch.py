"""The tool `patch`: change passages of files; all of what is asked, or nothing. Contract: §4.12."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.redact import redactor
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import arguments, folders
from hermes_agent.workspace.circumstances import ToolContext
from hermes_agent.workspace.encodings import UTF8, TextForm, decode_text
from hermes_agent.workspace.output import printable
from hermes_agent.workspace.writing import remove_file, store_file

__all__ = ["PatchTool"]

MOST_BYTES = 10_000_000
MOST_FILES = 100
DIFF_CHARS = 20_000
SHOWN_CHARS = 4_000


_shown: ContextVar[dict[str, bytes | None]] = ContextVar("hermes_patch_shown", default={})  # noqa: B039 - never changed
"""The targets that this call's question was about, with what becomes of them."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file before and after; None is that it is not there."""

    target: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    """Permissions of a file that comes from another place."""
    old: str = ""
    """The text before, without byte order mark."""
    new: str = ""


@dataclass(frozen=True, slots=True)
class _Plan:
    files: list[_File]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class PatchTool:
    """The handler and its question."""

    here: ToolContext

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | None:
        """Ask when a file lies where writing concerns a person, as `write_file` does."""
        try:
            plan = self._plan(args)
            concerns = {f.target: c for f in plan.files if (c := self.here.write_concern(f.target))}
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        _shown.set({file.target: file.after for file in plan.files if file.target in concerns})
        if not concerns:
            return None
        diff = self._diff(plan)
        where = "; ".join(dict.fromkeys(concern.where for concern in concerns.values()))
        rule = ":".join(sorted(concerns))
        if any(concern.sensitive for concern in concerns.values()):
            rule += f":{hashlib.sha256(diff.encode()).hexdigest()}"
        cut = "\n…" if len(diff) > SHOWN_CHARS else ""
        targets = "\n".join(printable(target) for target in concerns)
        own = any(concern.own for concern in concerns.values())
        shown = f"{targets}\n{printable(diff[:SHOWN_CHARS])}{cut}"
        asked = ApprovalRequest("patch", f"change files {where}", shown, f"patch:{rule}", mandatory=own)
        steers = any(concern.sensitive for concern in concerns.values())
        return asked if steers else folders.widen_to_folder(self.here, asked, list(concerns))

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `files`, `diff`, and as they apply `notes`, `syntax_errors`."""
        try:
            plan = self._plan(args)
            for file in plan.files:
                concern = self.here.write_concern(file.target)
                if concern is not None and file.target not in _shown.get():
                    raise ToolFailed(f"{file.target} is {concern.where}, and nobody was asked about it")
                if concern is not None and file.after != _shown.get()[file.target]:
                    raise ToolFailed(f"{file.target} changed while somebody was asked: patch it again")
                if concern is not None and file.after is not None:
                    self.here.note_approved(file.target, file.after)
            stale = [self.here.display_path(f.target) for f in plan.files if self.here.is_changed(f.target)]
            if stale:
                plan.notes.append(f"changed by somebody else since you read it: {', '.join(stale)}")
            for file in plan.files:
                self.here.before_change(file.target, f"patch {self.here.display_path(file.target)}")
            self._write(plan)
            for file in plan.files:
                self.here.remember(file.target)
            return tool_result(self._result(plan))
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files that a call is about."""
        if arguments.parse_choice(args, "mode", ("replace", "patch")) == "replace":
            return [self.here.resolve(arguments.parse_text(args, "path"))]
        from hermes_agent.workspace import patching

        changes = patching.parse_patch(arguments.parse_text(args, "patch"))
        return [self.here.resolve(path) for change in changes for path in (change.path, change.move_to) if path]

    def _plan(self, args: Mapping[str, Any]) -> _Plan:
        """Work out every file's new content; nothing is written before all of them are known."""
        mode = arguments.parse_choice(args, "mode", ("replace", "patch"))
        try:
            return self._replacement(args) if mode == "replace" else self._changes(args)
        except ValueError as exc:
            raise ToolFailed(f"nothing was changed: {exc}") from exc

    def _replacement(self, args: Mapping[str, Any]) -> _Plan:
        target = self.here.resolve(arguments.parse_text(args, "path"))
        old, new = arguments.parse_text(args, "old_string"), arguments.parse_text(args, "new_string", may_be_empty=True)
        data, text, form = self._read(target)
        from hermes_agent.workspace import fuzzy  # the first call imports what a start does not need, here and below

        fresh, count, how = fuzzy.replace_passage(
            text, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), everywhere=bool(args.get("replace_all"))
        )
        notes = [] if how == "exact" else [f"`old_string` was found {how}"]
        if count > 1:
            notes.append(f"replaced {count} times")
        return _Plan([_File(target, data, self._encoded(target, fresh, form), old=text, new=fresh)], notes)

    def _changes(self, args: Mapping[str, Any]) -> _Plan:
        from hermes_agent.workspace import patching

        changes = patching.parse_patch(arguments.parse_text(args, "patch"))
        if len(changes) > MOST_FILES:
            raise ValueError(f"{len(changes)} files are too many for one patch: at most {MOST_FILES}")
        before: dict[str, tuple[bytes | None, str]] = {}
        after: dict[str, tuple[str, TextForm] | None] = {}
        modes: dict[str, int] = {}

        def current(target: str) -> tuple[str, TextForm]:
            if target in after:
                now = after[target]
                if now is None:
                    raise ValueError(f"{target} is deleted earlier in the patch")
                return now
            data, text, form = self._read(target)
            before[target] = data, text
            return text, form

        for change in changes:
            target = self.here.resolve(change.path)
            if change.kind == "add":
                if target in after or self._exists(target):
                    raise ValueError(f"{change.path} is there already: use *** Update File")
                before.setdefault(target, (None, ""))
                after[target] = "".join(f"{line}\n" for line in change.content), UTF8
                continue
            text, form = current(target)
            if change.kind == "delete":
                after[target] = None
                continue
            fresh = patching.apply_patch(text, change), form
            after[target] = fresh
            if change.move_to and (moved := self.here.resolve(change.move_to)) != target:
                if moved in after or self._exists(moved):
                    raise ValueError(f"{change.move_to} is there already")
                before.setdefault(moved, (None, ""))
                if self.here.remote_files() is None and Path(target).exists():
                    modes[moved] = Path(target).stat().st_mode & 0o777
                after[target], after[moved] = None, fresh
        return _Plan([self._file(t, *before[t], now, modes.get(t)) for t, now in after.items()], [])

    def _file(
        self, target: str, data: bytes | None, old: str, now: tuple[str, TextForm] | None, mode: int | None
    ) -> _File:
        if now is None:
            return _File(target, data, None, mode, old)
        return _File(target, data, self._encoded(target, *now), mode, old, now[0])

    def _encoded(self, target: str, text: str, form: TextForm) -> bytes:
        try:
            return form.encode(text)
        except ValueError as exc:
            what = "" if form.encoding == "utf-8" else "; `write_file` makes the file UTF-8 when it needs to"
            raise ValueError(f"{self.here.display_path(target)}: {exc}{what}") from exc

    def _read(self, target: str) -> tuple[bytes, str, TextForm]:
        """Return a file's bytes, its text with plain line ends, and the form in which it is stored."""
        file, status = self.here.open(target)
        with file:
            if status.st_size > MOST_BYTES:
                raise ToolFailed(f"{target} has {status.st_size:,} bytes: too large to be patched")
            try:
                data = file.read(MOST_BYTES + 1)
            except OSError as exc:
                raise ToolFailed(f"{target} cannot be read: {exc.strerror or exc}") from exc
        try:
            text, form = decode_text(data)
        except ValueError as exc:
            raise ToolFailed(f"{target} is no text that can be patched: {exc}") from None
        return data, form.plain(text), form

    def _exists(self, target: str) -> bool:
        try:
            self._read(target)
        except ToolFailed as exc:
            return "No such file" not in str(exc) and "does not exist" not in str(exc)
        return True

    def _write(self, plan: _Plan) -> None:
        """Write all files; when one cannot be written, those before it get their old content back."""
        done: list[_File] = []
        try:
            for file in plan.files:
                done.append(file)
                self._write_file(file.target, file.after, file.mode)
        except ToolFailed as exc:
            left = [file.target for file in reversed(done[:-1]) if not self._restored(file)]
            what = f"; these could not be restored: {', '.join(left)}" if left else ""
            raise ToolFailed(f"nothing was changed: {exc}{what}") from exc

    def _restored(self, file: _File) -> bool:
        try:
            self._write_file(file.target, file.before)
        except ToolFailed:
            return False
        return True

    def _write_file(self, target: str, data: bytes | None, mode: int | None = None) -> None:
        if data is None:
            remove_file(self.here, target)
        else:
            store_file(self.here, target, data, mode)

    def _diff(self, plan: _Plan) -> str:
        import difflib

        parts: list[str] = []
        for file in plan.files:
            name = self.here.display_path(file.target)
            old, new = file.old.splitlines(), file.new.splitlines()
            ends = ("/dev/null" if file.before is None else name, "/dev/null" if file.after is None else name)
            parts += difflib.unified_diff(old, new, *ends, lineterm="")
        return "\n".join(parts)

    def _result(self, plan: _Plan) -> dict[str, Any]:
        from hermes_agent.workspace import syntax

        diff = redactor(self._diff(plan))
        cut = f"\n… [{len(diff) - DIFF_CHARS:,} more characters]" if len(diff) > DIFF_CHARS else ""
        result: dict[str, Any] = {
            "files": [self.here.display_path(file.target) for file in plan.files],
            "diff": diff[:DIFF_CHARS] + cut,
        }
        if plan.notes:
            result["notes"] = plan.notes
        faults = {
            self.here.display_path(f.target): found
            for f in plan.files
            if f.after is not None and (found := syntax.syntax_error(f.target, f.new))
        }
        return result | {"syntax_errors": faults} if faults else result
