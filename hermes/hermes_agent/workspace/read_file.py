"""The tool `read_file`: numbered lines of a text file, parts of a document, entries of a directory.

A text is read as a stream, never as a whole. Of documents the result has pages, slides, rows, paragraphs or cells.

Source: plugin contract §4.12 (parameters), §4.10 (the result is never persisted).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import IO, Any

import hermes_agent
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.system.installation import install_hint
from hermes_agent.system.processes import CommandResult, run, tool_environment
from hermes_agent.tools import tool_error, tool_result
from hermes_agent.workspace import tool_context
from hermes_agent.workspace.document_process import UNITS
from hermes_agent.workspace.paths import IsDirectory
from hermes_agent.workspace.text_forms import SAMPLE_BYTES, guess_encoding
from hermes_agent.workspace.tool_context import ToolContext

MOST_BYTES = 50_000_000
LIMIT_S = 60.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    " from hermes_agent.workspace.document_process import main; main()"
)
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


def kind_of_document(path: str, sample: bytes) -> str:
    """Return the kind of document by the first bytes and the name of a file; empty for none."""
    if b"%PDF-" in sample[:1024]:
        return "pdf"
    ending = path.rpartition(".")[2].lower()
    begins = b"{" if ending == "ipynb" else (_ZIP, _OLE)
    return ending if ending in UNITS and ending != "pdf" and sample.lstrip()[:4].startswith(begins) else ""


def read_document(
    file: IO[bytes],
    kind: str,
    *,
    shown: str,
    size: int,
    page: tuple[int, int, int],
    environ: Mapping[str, str],
    cancelled: Event,
    limit_s: float = LIMIT_S,
) -> dict[str, Any]:
    """Return `content`, `unit`, and if they apply `total`, `next_offset`, `sheets`, `note`.

    Args:
        file: the open file.
        kind: the kind of document.
        shown: the name of the file for the model.
        size: its size in bytes.
        page: the first unit, the number of units, and the number of characters.
        environ: the environment of the agent.
        cancelled: set when the turn is interrupted.
        limit_s: seconds after which the reader is ended.

    Raises:
        ToolFailed: the text cannot be extracted; the message has the reason.
    """
    most = len(file.getbuffer()) if isinstance(file, BytesIO) else MOST_BYTES  # a remote file may be cut
    if size > most:
        raise ToolFailed(f"{shown} has {size:,} bytes: a document of over {most:,} is not read")
    offset, limit, chars = page
    request = {"kind": kind, "offset": offset, "limit": limit, "chars": chars}
    found = _lines(_run(file, request, environ, cancelled, limit_s), limit_s)
    end = next((line["end"] for line in found if "end" in line), None)
    if end is None:
        raise ToolFailed(f"{shown} is a document, and its text cannot be extracted: {_reason(found)}")
    unit = UNITS[kind]
    entries = [
        (line["number"], str(line["text"]).encode("utf-8", "replace").decode()) for line in found if "number" in line
    ]
    one_line = unit in ("row", "paragraph")
    text = "".join(f"{n}|{t}\n" if one_line else f"--- {unit} {n} ---\n{t}\n" for n, t in entries)
    content = text if kind == "ipynb" else mark_untrusted(text.rstrip("\n"), shown)
    result: dict[str, Any] = {"content": content, "unit": unit}
    if end["total"] is not None:
        result["total"] = end["total"]
    if end["next"] is not None:
        result["next_offset"] = end["next"]
    if end["parts"]:
        result["sheets"] = end["parts"]
    if end["total"] is not None and offset > max(end["total"], 1):
        result["note"] = f"offset {offset} is after the end"
    elif not any(text.strip() for _, text in entries):
        result["note"] = "the document has no text" + ("; the pages may be pictures" if kind == "pdf" else "")
    return result


def _run(
    file: IO[bytes], request: Mapping[str, Any], environ: Mapping[str, str], cancelled: Event, limit_s: float
) -> CommandResult:
    source = str(Path(hermes_agent.__file__).parents[1])
    places = [source, *(place for place in sys.path if place.startswith("/"))]  # never the working directory
    argv = [sys.executable, "-I", "-S", "-c", _START, json.dumps(places), json.dumps(request)]
    try:
        done = run(
            argv,
            cwd=Path("/"),
            env=tool_environment(environ),
            timeout_s=limit_s,
            output_limit_bytes=request["chars"] * 12 + 1_000_000,
            cancelled=cancelled,
            stdin=file.read() if isinstance(file, BytesIO) else file,
        )
    except OSError as exc:
        raise ToolFailed(f"the document cannot be read: {exc.strerror or exc}") from exc
    if done.cancelled:
        raise ToolFailed("interrupted by the user")
    return done


def _lines(done: CommandResult, limit_s: float) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for line in done.output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:  # output of a library
            continue
        if isinstance(value, dict):
            lines.append(value)
    if done.timed_out or (done.exit_code and not lines):
        lines = [{"error": f"it takes over {limit_s:g} s, or too much memory"}]
    return lines


def _reason(found: list[dict[str, Any]]) -> str:
    last = found[-1] if found else {}
    if "missing" in last:
        return f"the Python package {last['missing']} is not installed: {install_hint('documents')}"
    return str(last.get("error", "its reader broke off, or needed too much memory or time"))


COUNT_BYTES = 64_000_000
"""Most characters after the page in which lines are counted."""


@lazy_dataclass(frozen=True, slots=True)
class ReadFileTool:
    """The handler of `read_file`.

    Attributes:
        max_chars: longest text of one result (`file_read_max_chars`).
        max_lines: most lines of one result, also when the call names no limit (`tool_output.max_lines`).
        max_line_chars: most characters of a line (`tool_output.max_line_length`).
        environ: the environment of the agent; the reader of documents gets the listed part.
    """

    context: ToolContext
    max_chars: int = 100_000
    max_lines: int = 2_000
    max_line_chars: int = 2_000
    environ: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `path` and `content`, and if they apply `total_lines`, `next_offset` and other fields.

        Texts may have `encoding`, `line_ends` and `note`. Documents have `unit`, `total` and `sheets` in place of
        `total_lines`, directories have `kind` and `total_entries`.
        """
        try:
            offset = tool_context.parse_number(args, "offset", default=1, least=1)
            limit = tool_context.parse_number(args, "limit", default=self.max_lines, least=1, most=self.max_lines)
            path = self.context.resolve(tool_context.parse_text(args, "path"))
            try:
                file, status = self.context.open(path)
            except IsDirectory:
                return self._directory(path, offset, None if args.get("limit") is None else limit)
            self.context.remember(path, status)
            with file:
                return self._read(file, path, status, offset, limit)
        except ToolFailed as exc:
            return tool_error(exc)

    def files(self, args: Mapping[str, Any], result: str) -> list[str]:
        """Return the file of a call."""
        return [self.context.resolve(tool_context.parse_text(args, "path"))]

    def _read(self, file: IO[bytes], path: str, status: os.stat_result, offset: int, limit: int) -> str:

        try:
            sample = file.read(SAMPLE_BYTES) or b""
            if kind := kind_of_document(path, sample):
                file.seek(0)
                return self._document(file, path, kind, status.st_size, offset, limit)
            encoding = guess_encoding(sample)
            if encoding is None:
                raise ToolFailed(f"{path} is a binary file of {status.st_size:,} bytes")
            try:
                page = self._page(file, encoding, offset, limit)
            except UnicodeDecodeError:  # after the sample; `patch` guesses the same
                encoding = "latin-1"
                page = self._page(file, encoding, offset, limit)
        except OSError as exc:
            raise ToolFailed(f"{path} cannot be read: {exc.strerror or exc}") from exc
        result: dict[str, Any] = {"path": self.context.display_path(path), "content": "".join(page.lines)}
        if page.total is not None:
            result["total_lines"] = page.total
        else:
            result["file_bytes"] = status.st_size
        if page.next_offset is not None:
            result["next_offset"] = page.next_offset
        if encoding != "utf-8":
            result["encoding"] = encoding
        if page.crlf:
            result["line_ends"] = "mixed" if page.lf else "crlf"
        if page.total is not None and offset > max(page.total, 1):
            result["note"] = f"offset {offset} is after the end"
        elif page.damaged:
            result["note"] = f"bytes that are not valid {encoding} are shown as \ufffd"
        return tool_result(result)

    def _page(self, file: IO[bytes], encoding: str, offset: int, limit: int) -> _Page:
        """Read a page of lines.

        Raises:
            UnicodeDecodeError: the file is not UTF-8 as its first bytes suggested.
        """
        file.seek(0)
        errors = "strict" if encoding.startswith("utf-8") else "replace"
        stream = io.TextIOWrapper(file, encoding, errors=errors, newline="\n")
        try:
            page = _Page(stream, self, self.context.cancelled().is_set)
            page.fill(offset, limit)
        finally:
            stream.detach()
        page.damaged = encoding.startswith(("utf-16", "utf-32")) and any("\ufffd" in line for line in page.lines)
        return page

    def _directory(self, path: str, offset: int, limit: int | None) -> str:
        from hermes_agent.workspace import remote_files

        remote = self.context.remote_files()

        def listed(first: int, count: int) -> remote_files.Listing:
            if remote is not None:
                return remote.list_directory(path, first, count)
            return remote_files.list_directory(path, self.context.places, first, count)

        shown = self.context.display_path(path)
        return tool_result(remote_files.listing_page(shown, listed, offset, limit, self.max_lines, self.max_chars))

    def _document(self, file: IO[bytes], path: str, kind: str, size: int, offset: int, limit: int) -> str:
        shown = self.context.display_path(path)
        found = read_document(
            file,
            kind,
            shown=shown,
            size=size,
            page=(offset, limit, self.max_chars),
            environ=self.environ,
            cancelled=self.context.cancelled(),
        )
        return tool_result({"path": shown, **found})


class _Page:
    """The lines of a stream that fit into a result."""

    def __init__(self, stream: io.TextIOWrapper, limits: ReadFileTool, stopped: Callable[[], bool]) -> None:
        self._stream = stream
        self._limits = limits
        self._stopped = stopped
        self.lines: list[str] = []
        self.total: int | None = None
        """Number of lines of the file; None when they were not counted to the end."""
        self.next_offset: int | None = None
        self.crlf = self.lf = False
        """Whether a line was read with this end."""
        self.damaged = False

    def fill(self, offset: int, limit: int) -> None:
        number, chars = 0, 0
        while (line := self._next_line()) is not None:
            number += 1
            if number < offset:
                continue
            entry = f"{number}|{line}\n"
            chars += len(entry)
            if len(self.lines) == limit or (chars > self._limits.max_chars and self.lines):
                self.next_offset = number
                self._count_rest(number)
                return
            self.lines.append(entry)
        self.total = number

    def _next_line(self) -> str | None:
        """Return the next line without its end and shortened, or None at the end of the file."""
        if self._stopped():
            raise ToolFailed("interrupted by the user")
        most = self._limits.max_line_chars
        line = self._stream.readline(most + 2)  # room for CR and LF
        if not line:
            return None
        over = 0
        while not line.endswith("\n") and (more := self._stream.readline(1_000_000)):
            over += len(more.rstrip("\r\n"))
            if more.endswith("\n"):
                break
            if self._stopped():
                raise ToolFailed("interrupted by the user")
        if line.endswith("\r\n"):
            self.crlf = True
        elif line.endswith("\n"):
            self.lf = True
        line = line.rstrip("\n").removesuffix("\r")
        over += max(len(line) - most, 0)
        return f"{line[:most]}… [{over:,} more characters]" if over else line

    def _count_rest(self, number: int) -> None:
        """Set `total` unless the rest is too long to be counted."""
        counted, last = 0, "\n"
        while counted < COUNT_BYTES and not self._stopped():
            text = self._stream.read(1_000_000)
            if not text:
                self.total = number + (last != "\n")
                return
            counted += len(text)
            number += text.count("\n")
            last = text[-1]
