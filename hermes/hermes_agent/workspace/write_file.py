"""The tool `write_file`: replace a file atomically.

Below the working directory it writes at once. Other places need an approval, which covers exactly the file that was
shown. Source: plugin contract §4.12.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.text import printable
from hermes_agent.system.files import hold_directory, replace_at
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import tool_context
from hermes_agent.workspace.paths import check_not_secret, kind_of
from hermes_agent.workspace.text_forms import UTF8, TextForm, decode_text, guess_form
from hermes_agent.workspace.tool_context import ToolContext

JUDGED_BYTES = 10_000_000
"""Most bytes of the present text that are read for its encoding and line ends."""
COMPARED_BYTES = 1_000_000
"""Largest old text that is compared with the new one."""
DIFF_CHARS = 100_000
"""Largest text for which the approval request shows the difference; for larger ones it shows the new text."""
SHOWN_LINES = 40
"""Most lines of the change in an approval request."""
SHOWN_CHARS = 4_000


_shown: ContextVar[str] = ContextVar("hermes_write_file_shown", default="")
"""The target in the approval request of this call; a link that changes afterwards is noticed."""


@lazy_dataclass(frozen=True, slots=True)
class WriteFileTool:
    """The handler of `write_file`, and its approval request."""

    context: ToolContext

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | None:
        """Return the approval request for a file that needs one.

        `session` covers the folder if it is a folder of the user, else the same file; for a file that steers
        programs, it covers the same content only.
        """
        try:
            target, text = self._read(args)
        except ToolFailed:
            return None  # the handler refuses the same arguments with the reason
        _shown.set(target)
        concern = self.context.write_concern(target)
        if concern is None or (
            self.context.remote_files() is None and self.context.places.secret_reason(target) is not None
        ):
            return None
        rule = f"write_file:{target}"
        if concern.sensitive:
            rule += f":{hashlib.sha256(text.encode()).hexdigest()}"
        detail = f"{printable(target)}\n{self._preview(target, text)}"
        covers = "this file with this content" if concern.sensitive else "this file"
        asked = ApprovalRequest(
            "write_file", f"write a file {concern.where}", detail, rule, mandatory=concern.own, covers=covers
        )
        return asked if concern.sensitive else tool_context.widen_to_folder(self.context, asked, [target])

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `path`, `bytes_written`, `created`, and `lines_added`, `lines_removed` of a known old text.

        A replaced file keeps its encoding, byte order mark and CRLF line ends; `encoding` and `line_ends` name them.
        When the encoding lacks a character, the file becomes UTF-8, and `note` reports it.
        """
        try:
            return self._write(*self._read(args))
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the file of a call."""
        return [self.context.resolve(tool_context.parse_text(args, "path"))]

    def _read(self, args: Mapping[str, Any]) -> tuple[str, str]:
        path = tool_context.parse_text(args, "path")
        content = tool_context.parse_text(args, "content", may_be_empty=True)
        target = self.context.resolve(path)
        if path.endswith("/") or target == "/":
            raise ToolFailed(f"{path} names a directory, not a file")
        try:
            content.encode()
        except UnicodeEncodeError as exc:
            raise ToolFailed(f"`content` has half a character (a lone surrogate) at {exc.start}") from exc
        return target, content

    def _write(self, target: str, text: str) -> str:
        concern = self.context.write_concern(target)
        if concern is not None and _shown.get() != target:
            raise ToolFailed(f"{target} is {concern.where}, and its approval was for another path: try again")
        if self.context.is_changed(target):
            raise ToolFailed(f"{target} has changed since you read it: read it again, then write")
        old, form = self._current_text(target)
        data, fields = _stored(text, form)
        self.context.before_change(target, f"write_file {self.context.display_path(target)}")
        if concern is not None:
            self.context.note_approved(target, data)
        created = store_file(self.context, target, data)
        self.context.remember(target)
        result: dict[str, Any] = {
            "path": self.context.display_path(target),
            "bytes_written": len(data),
            "created": created,
        }
        if old is not None or created:
            before, after = Counter((old or "").splitlines()), Counter(text.splitlines())
            result |= {"lines_added": (after - before).total(), "lines_removed": (before - after).total()}
        return tool_result(result | fields)

    def _current_text(self, target: str) -> tuple[str | None, TextForm]:
        """Return the present text and its form; the text is None if there is none or it is long or binary."""
        try:
            file, status = self.context.open(target)
        except ToolFailed:
            return None, UTF8
        with file:
            try:
                data = file.read(JUDGED_BYTES)
            except OSError:
                return None, UTF8
        if status.st_size > len(data):
            return None, guess_form(data) or UTF8
        try:
            text, form = decode_text(data)
        except ValueError:
            return None, guess_form(data) or UTF8
        return (text if len(data) <= COMPARED_BYTES else None), form

    def _preview(self, target: str, new: str) -> str:
        import difflib  # only for approval requests

        old, form = self._current_text(target)
        data = _stored(new, form)[0]
        if old is not None and max(len(old), len(new)) <= DIFF_CHARS:
            lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "now", "then", lineterm="", n=1))
        else:
            lines = new.splitlines()
        head = f"{len(data):,} bytes" + (" replace what is there" if os.path.lexists(target) else ", a new file")
        text = "\n".join(lines[:SHOWN_LINES])
        cut = "\n…" if len(lines) > SHOWN_LINES or len(text) > SHOWN_CHARS else ""
        return printable(f"{head}\n{text[:SHOWN_CHARS]}{cut}")


def _stored(text: str, form: TextForm) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a text in the form of the file that it replaces, and fields for the result."""
    plain = text.removeprefix("\ufeff") if form.bom else text
    if form.ends == "mixed":  # the old lines are gone, and the new ones have no ends to follow
        form = form._replace(ends="lf")
    fields: dict[str, Any] = {"line_ends": "crlf"} if form.ends == "crlf" else {}
    try:
        data = form.encode(plain)
    except ValueError as exc:
        note = f"the file was {form.encoding}, and {exc}: it is utf-8 now"
        return UTF8._replace(ends=form.ends).encode(text), fields | {"note": note}
    return data, fields if form.encoding == "utf-8" else fields | {"encoding": form.encoding}


def store_file(context: ToolContext, target: str, data: bytes, mode: int | None = None) -> bool:
    """Replace a file atomically, on this machine or in the remote backend; return whether it is new.

    Args:
        context: the context of the call.
        target: the resolved path.
        data: the content.
        mode: permissions on this machine; None keeps the present ones.

    Raises:
        ToolFailed: the file holds credentials, or cannot be written.
    """
    if remote := context.remote_files():
        try:
            remote.read(target)
            created = False
        except ToolFailed:
            created = True
        remote.write(target, data)
        return created
    check_not_secret(context.places, target)
    directory, name = os.path.split(target)
    try:
        with hold_directory(directory) as handle:
            created = _is_new(handle, name, target)
            replace_at(handle, name, data, mode=mode)
    except OSError as exc:
        where = f"{directory}: " if isinstance(exc, NotADirectoryError | FileExistsError) else ""
        raise ToolFailed(f"{target} cannot be written: {where}{exc.strerror or exc}") from exc
    return created


def remove_file(context: ToolContext, target: str) -> None:
    """Delete a file.

    Raises:
        ToolFailed: the file holds credentials, is not a regular file, or cannot be deleted.
    """
    if remote := context.remote_files():
        remote.remove(target)
        return
    check_not_secret(context.places, target)
    directory, name = os.path.split(target)
    try:
        with hold_directory(directory) as handle:
            if not _is_new(handle, name, target):
                os.unlink(name, dir_fd=handle)
    except OSError as exc:
        raise ToolFailed(f"{target} cannot be deleted: {exc.strerror or exc}") from exc


def _is_new(directory: int, name: str, target: str) -> bool:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISLNK(mode):
        raise ToolFailed(f"{target} became a symbolic link meanwhile")
    if kind := kind_of(mode):
        raise ToolFailed(f"{target} is {kind}, not a file")
    return False
