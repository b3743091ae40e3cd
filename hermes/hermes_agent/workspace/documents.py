"""Documents as `read_file` shows them: pages, slides, rows, paragraphs and cells in place of lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import IO, Any

import hermes_agent
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.foreign import mark_untrusted
from hermes_agent.io.installation import install_hint
from hermes_agent.io.processes import CommandResult, run, tool_environment
from hermes_agent.workspace.extracting import UNITS

__all__ = ["kind_of_document", "read_document"]

MOST_BYTES = 50_000_000
LIMIT_S = 60.0
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    " from hermes_agent.workspace.extracting import main; main()"
)
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


def kind_of_document(path: str, sample: bytes) -> str:
    """Return what document a file is, by its first bytes and its name; empty for none."""
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
) -> dict[str, Any]:
    """Return `content`, `unit`, and as they apply `total`, `next_offset`, `sheets`, `note`.

    Args:
        shown: what the file is called.
        page: the first unit, how many of them, and how many characters.

    Raises:
        ToolFailed: the text cannot be had, with the reason.
    """
    most = len(file.getbuffer()) if isinstance(file, BytesIO) else MOST_BYTES  # of another machine's, what came
    if size > most:
        raise ToolFailed(f"{shown} has {size:,} bytes: a document of over {most:,} is not read")
    offset, limit, chars = page
    request = {"kind": kind, "offset": offset, "limit": limit, "chars": chars}
    found = _lines(_run(file, request, environ, cancelled))
    end = next((line["end"] for line in found if "end" in line), None)
    if end is None:
        raise ToolFailed(f"{shown} is a document, and its text cannot be had: {_reason(found)}")
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
        result["note"] = "there is no text in it" + ("; the pages may be pictures" if kind == "pdf" else "")
    return result


def _run(file: IO[bytes], request: Mapping[str, Any], environ: Mapping[str, str], cancelled: Event) -> CommandResult:
    source = str(Path(hermes_agent.__file__).parents[1])
    places = [source, *(place for place in sys.path if place.startswith("/"))]  # never the working directory
    argv = [sys.executable, "-I", "-S", "-c", _START, json.dumps(places), json.dumps(request)]
    try:
        done = run(
            argv,
            cwd=Path("/"),
            env=tool_environment(environ),
            timeout_s=LIMIT_S,
            output_limit_bytes=request["chars"] * 12 + 1_000_000,
            cancelled=cancelled,
            stdin=file.read() if isinstance(file, BytesIO) else file,
        )
    except OSError as exc:
        raise ToolFailed(f"the document cannot be read: {exc.strerror or exc}") from exc
    if done.cancelled:
        raise ToolFailed("interrupted by the user")
    return done


def _lines(done: CommandResult) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for line in done.output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:  # what a library printed
            continue
        if isinstance(value, dict):
            lines.append(value)
    if done.timed_out or (done.exit_code and not lines):
        lines = [{"error": f"it takes over {LIMIT_S:g} s, or too much memory"}]
    return lines


def _reason(found: list[dict[str, Any]]) -> str:
    last = found[-1] if found else {}
    if "missing" in last:
        return f"the Python package {last['missing']} is not installed: {install_hint('documents')}"
    return str(last.get("error", "its reader broke off, or needed too much memory or time"))
