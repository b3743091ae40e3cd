"""The tool `patch`: change passages of files, all of them or none.

Mode `patch` takes a patch over several files in this format:

    *** Begin Patch
    *** Update File: PATH          then, as often as needed, `@@ a line before` and lines with ` `, `-` or `+` before
    *** Move to: PATH              after Update File: renames the file
    *** Add File: PATH             then lines with `+` before
    *** Delete File: PATH
    *** End Patch

Source: plugin contract §4.12.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import printable
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import tool_context
from hermes_agent.workspace.text_forms import (
    UTF8,
    TextForm,
    adapt_line_ends,
    decode_text,
    find_lines,
    reindent,
)
from hermes_agent.workspace.tool_context import ToolContext
from hermes_agent.workspace.write_file import remove_file, store_file

_HEADS = {"*** Update File:": "update", "*** Add File:": "add", "*** Delete File:": "delete"}


@lazy_dataclass(slots=True)
class Hunk:
    """Adjacent lines of a patch, each with ` `, `-` or `+` before it."""

    anchors: list[str] = field(default_factory=list)
    """Lines that precede the hunk, each found after the previous one."""
    lines: list[str] = field(default_factory=list)


@lazy_dataclass(slots=True)
class FilePatch:
    """The change of one file."""

    kind: Literal["update", "add", "delete"]
    path: str
    move_to: str = ""
    hunks: list[Hunk] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    """The lines of a new file."""


def parse_patch(text: str) -> list[FilePatch]:
    """Return the changes of a patch in their order.

    Raises:
        ValueError: a line is invalid, or nothing is changed; the message has the line number.
    """
    changes: list[FilePatch] = []
    for number, line in enumerate(text.strip("\n").split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip() in ("*** Begin Patch", "*** End Patch", "*** End of File"):
            continue
        head = next((h for h in _HEADS if line.startswith(h)), "")
        if head:
            path = line[len(head) :].strip()
            if not path:
                raise ValueError(f"line {number} of the patch names no file: {line!r}")
            changes.append(FilePatch(_HEADS[head], path))  # type: ignore[arg-type]
        elif not changes:
            if line.strip():
                raise ValueError(f"line {number} of the patch comes before any `*** Update File: PATH`: {line[:100]!r}")
        else:
            _take(changes[-1], line, number)
    if not changes:
        raise ValueError("the patch changes no file: it begins with `*** Begin Patch` and `*** Update File: PATH`")
    for change in changes:
        empty = not any(hunk.lines for hunk in change.hunks)
        if change.kind == "update" and empty and not change.move_to:
            raise ValueError(f"the patch changes nothing in {change.path}")
    return changes


def patch_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the files that a call of `patch` names; [] for an invalid patch."""
    try:
        changes = parse_patch(str(args.get("patch") or ""))
    except ValueError:
        return []
    return [path for change in changes for path in (change.path, change.move_to) if path]


def _take(change: FilePatch, line: str, number: int) -> None:
    if change.kind == "update":
        if line.startswith("*** Move to:"):
            change.move_to = line.removeprefix("*** Move to:").strip()
        elif line.startswith("@@"):
            anchor = line[2:].strip().removesuffix("@@").strip()
            if not change.hunks or change.hunks[-1].lines:
                change.hunks.append(Hunk())
            if anchor and not anchor.startswith("-"):  # `@@ -1,2 +1,3 @@` of other formats says nothing here
                change.hunks[-1].anchors.append(anchor)
        elif line[:1] in (" ", "-", "+", ""):
            if not change.hunks:
                change.hunks.append(Hunk())
            change.hunks[-1].lines.append(line or " ")
        else:
            raise ValueError(f"line {number} of the patch begins with none of ` `, `-`, `+`, `@@`: {line[:100]!r}")
    elif change.kind == "add" and line.startswith("+"):
        change.content.append(line[1:])
    elif line.strip():
        what = "a `+`" if change.kind == "add" else "nothing at all"
        raise ValueError(f"line {number} of the patch should begin with {what}: {line[:100]!r}")


def apply_patch(text: str, change: FilePatch) -> str:
    """Return the content of a file after an update.

    Raises:
        ValueError: a hunk matches nowhere, or at several places.
    """
    lines = text.split("\n")
    at = 0
    for number, hunk in enumerate(change.hunks, 1):
        if hunk.lines:
            at = _apply_hunk(lines, hunk, at, f"hunk {number} of {change.path}")
    return "\n".join(lines)


def _apply_hunk(lines: list[str], hunk: Hunk, at: int, name: str) -> int:
    """Apply a hunk to `lines` in place; return the index after it."""
    for anchor in hunk.anchors:
        found = find_lines(lines, [anchor], at)
        if not found.starts:
            raise ValueError(f"{name}: the line {anchor[:100]!r} is not there")
        at = found.starts[0] + 1
    body = _without_empty_end(hunk.lines)
    wanted = [line[1:] for line in body if line[0] != "+"]
    if not wanted:  # nothing but new lines: after the anchor, or at the end
        place = at if hunk.anchors else len(lines) - (lines[-1] == "")
        lines[place:place] = adapt_line_ends([line[1:] for line in body], lines[max(place - 1, 0) : place])
        return place + len(body)
    found = find_lines(lines, wanted, at)
    if not found.starts:
        raise ValueError(f"{name} does not fit: {wanted[0][:100]!r} and what follows is not there")
    if len(found.starts) > 1 and not hunk.anchors:
        places = ", ".join(str(start + 1) for start in found.starts[:10])
        raise ValueError(f"{name} fits {len(found.starts)} places (lines {places}): give more lines, or `@@ LINE`")
    start = found.starts[0]
    present = lines[start : start + len(wanted)]
    added = iter(adapt_line_ends(reindent([line[1:] for line in body if line[0] == "+"], wanted, present), present))
    present_lines = iter(present)
    fresh: list[str] = []
    for line in body:
        if line[0] == "+":
            fresh.append(next(added))
        else:
            now = next(present_lines)
            if line[0] == " ":
                fresh.append(now)
    lines[start : start + len(wanted)] = fresh
    return start + len(fresh)


def _without_empty_end(lines: list[str]) -> list[str]:
    """Return lines without empty ones at the end, which come from the text around the patch."""
    end = len(lines)
    while end > 1 and lines[end - 1].strip() == "":
        end -= 1
    return lines[:end]


MOST_BYTES = 10_000_000
MOST_FILES = 100
DIFF_CHARS = 20_000
SHOWN_CHARS = 4_000


_shown: ContextVar[dict[str, bytes | None]] = ContextVar("hermes_patch_shown", default={})  # noqa: B039 - never changed
"""The targets and contents in the approval request of this call."""


@lazy_dataclass(frozen=True, slots=True)
class _File:
    """A file before and after the change; None if it does not exist."""

    target: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    """Permissions of a moved file."""
    old: str = ""
    """The old text without byte order mark."""
    new: str = ""


@lazy_dataclass(frozen=True, slots=True)
class _Plan:
    """What a patch would change."""

    files: list[_File]
    notes: list[str]


@lazy_dataclass(frozen=True, slots=True)
class PatchTool:
    """The handler of `patch`, and its approval request."""

    context: ToolContext

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | None:
        """Return the approval request when a file needs one, as `write_file` does."""
        try:
            plan = self._plan(args)
            concerns = {f.target: c for f in plan.files if (c := self.context.write_concern(f.target))}
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        _shown.set({file.target: file.after for file in plan.files if file.target in concerns})
        if not concerns:
            return None
        diff = self._diff(plan)
        where = "; ".join(dict.fromkeys(concern.where for concern in concerns.values()))
        rule, steers = ":".join(sorted(concerns)), any(concern.sensitive for concern in concerns.values())
        if steers:
            rule += f":{hashlib.sha256(diff.encode()).hexdigest()}"
        cut = "\n…" if len(diff) > SHOWN_CHARS else ""
        targets = "\n".join(printable(target) for target in concerns)
        own = any(concern.own for concern in concerns.values())
        shown = f"{targets}\n{printable(diff[:SHOWN_CHARS])}{cut}"
        covers = "this change" if steers else "these files"
        asked = ApprovalRequest("patch", f"change files {where}", shown, f"patch:{rule}", mandatory=own, covers=covers)
        return asked if steers else tool_context.widen_to_folder(self.context, asked, list(concerns))

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `files` and `diff`, and if they apply `notes` and `syntax_errors`."""
        try:
            plan = self._plan(args)
            for file in plan.files:
                concern = self.context.write_concern(file.target)
                if concern is not None and file.target not in _shown.get():
                    raise ToolFailed(
                        f"{file.target} is {concern.where}, and its approval was for other paths: try again"
                    )
                if concern is not None and file.after != _shown.get()[file.target]:
                    raise ToolFailed(f"{file.target} changed during the approval: patch it again")
                if concern is not None and file.after is not None:
                    self.context.note_approved(file.target, file.after)
            stale = [self.context.display_path(f.target) for f in plan.files if self.context.is_changed(f.target)]
            if stale:
                plan.notes.append(f"changed by others since you read it: {', '.join(stale)}")
            for file in plan.files:
                self.context.before_change(file.target, f"patch {self.context.display_path(file.target)}")
            self._write(plan)
            for file in plan.files:
                self.context.remember(file.target)
            return tool_result(self._result(plan))
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the files of a call."""
        if tool_context.parse_choice(args, "mode", ("replace", "patch")) == "replace":
            return [self.context.resolve(tool_context.parse_text(args, "path"))]

        changes = parse_patch(tool_context.parse_text(args, "patch"))
        return [self.context.resolve(path) for change in changes for path in (change.path, change.move_to) if path]

    def _plan(self, args: Mapping[str, Any]) -> _Plan:
        """Return the new content of every file; nothing is written before all are known."""
        mode = tool_context.parse_choice(args, "mode", ("replace", "patch"))
        try:
            return self._replacement(args) if mode == "replace" else self._changes(args)
        except ValueError as exc:
            raise ToolFailed(f"nothing was changed: {exc}") from exc

    def _replacement(self, args: Mapping[str, Any]) -> _Plan:
        target = self.context.resolve(tool_context.parse_text(args, "path"))
        old, new = (
            tool_context.parse_text(args, "old_string"),
            tool_context.parse_text(args, "new_string", may_be_empty=True),
        )
        data, text, form = self._read(target)
        from hermes_agent.workspace import (
            text_forms,  # the first call imports what a start does not need, here and below
        )

        fresh, count, how = text_forms.replace_passage(
            text, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), everywhere=bool(args.get("replace_all"))
        )
        notes = [] if how == "exact" else [f"`old_string` was found {how}"]
        if count > 1:
            notes.append(f"replaced {count} times")
        return _Plan([_File(target, data, self._encoded(target, fresh, form), old=text, new=fresh)], notes)

    def _changes(self, args: Mapping[str, Any]) -> _Plan:

        changes = parse_patch(tool_context.parse_text(args, "patch"))
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
            target = self.context.resolve(change.path)
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
            fresh = apply_patch(text, change), form
            after[target] = fresh
            if change.move_to and (moved := self.context.resolve(change.move_to)) != target:
                if moved in after or self._exists(moved):
                    raise ValueError(f"{change.move_to} is there already")
                before.setdefault(moved, (None, ""))
                if self.context.remote_files() is None and Path(target).exists():
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
            raise ValueError(f"{self.context.display_path(target)}: {exc}{what}") from exc

    def _read(self, target: str) -> tuple[bytes, str, TextForm]:
        """Return the bytes of a file, its text with plain line ends, and its form."""
        file, status = self.context.open(target)
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
            raise ToolFailed(f"{target} is not a text that can be patched: {exc}") from None
        return data, form.plain(text), form

    def _exists(self, target: str) -> bool:
        try:
            self._read(target)
        except ToolFailed as exc:
            return "No such file" not in str(exc) and "does not exist" not in str(exc)
        return True

    def _write(self, plan: _Plan) -> None:
        """Write all files; when one cannot be written, restore those before it."""
        done: list[_File] = []
        try:
            for file in plan.files:
                done.append(file)
                self._write_file(file.target, file.after, file.mode)
        except ToolFailed as exc:
            failed = [file.target for file in reversed(done[:-1]) if not self._restored(file)]
            what = f"; these could not be restored: {', '.join(failed)}" if failed else ""
            raise ToolFailed(f"nothing was changed: {exc}{what}") from exc

    def _restored(self, file: _File) -> bool:
        try:
            self._write_file(file.target, file.before)
        except ToolFailed:
            return False
        return True

    def _write_file(self, target: str, data: bytes | None, mode: int | None = None) -> None:
        if data is None:
            remove_file(self.context, target)
        else:
            store_file(self.context, target, data, mode)

    def _diff(self, plan: _Plan) -> str:
        import difflib

        parts: list[str] = []
        for file in plan.files:
            name = self.context.display_path(file.target)
            old, new = file.old.splitlines(), file.new.splitlines()
            ends = ("/dev/null" if file.before is None else name, "/dev/null" if file.after is None else name)
            parts += difflib.unified_diff(old, new, *ends, lineterm="")
        return "\n".join(parts)

    def _result(self, plan: _Plan) -> dict[str, Any]:
        from hermes_agent.workspace import text_forms

        diff = redactor(self._diff(plan))
        cut = f"\n… [{len(diff) - DIFF_CHARS:,} more characters]" if len(diff) > DIFF_CHARS else ""
        result: dict[str, Any] = {
            "files": [self.context.display_path(file.target) for file in plan.files],
            "diff": diff[:DIFF_CHARS] + cut,
        }
        if plan.notes:
            result["notes"] = plan.notes
        faults = {
            self.context.display_path(f.target): found
            for f in plan.files
            if f.after is not None and (found := text_forms.syntax_error(f.target, f.new))
        }
        return result | {"syntax_errors": faults} if faults else result
