"""The process that extracts the text of a document.

A document can be made so that its reader needs all memory or never ends, and the libraries are large. So the agent
never parses a document itself: it starts this module with limits, passes the file as input, and reads JSON lines.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from hermes_agent.core.lazy_types import LazyNamedTuple

if TYPE_CHECKING:
    import zipfile


CPU_S = 60
MEMORY_BYTES = 1_500_000_000
COUNT_S = 10.0
"""Seconds for which units after the page are counted."""
UNPACKED_BYTES = 300_000_000
MOST_ENTRIES = 10_000
MOST_REPEATED = 1_000
"""Most repetitions of a cell or row of a spreadsheet."""
OUTPUT_CHARS = 5_000
"""Most characters of an output of a notebook cell."""


class _DocumentRejected(Exception):
    """The document cannot be read; the message has the reason."""


class _Unit(LazyNamedTuple):
    text: Callable[[], str]
    part: str = ""
    """The sheet of the unit."""


def main() -> None:
    """Write a JSON object for each unit, then one for the end or an error.

    A unit is `{"text", "number"}`, the end `{"end": {"total", "next", "parts"}}`, an error `{"error"}`.

    The request, the first argument, has `kind` (a key of `UNITS`), `offset`, `limit` and `chars`.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable()
    request = json.loads(sys.argv[1])
    try:
        for line in _lines(sys.stdin.buffer, **request):
            print(json.dumps(line), flush=True)
    except _DocumentRejected as exc:
        print(json.dumps({"error": str(exc)}))
    except ModuleNotFoundError as exc:
        print(json.dumps({"missing": exc.name}))
    except MemoryError:
        print('{"error": "its text needs too much memory"}')
    except Exception as exc:  # noqa: BLE001 - a broken file can raise any error in a library
        print(json.dumps({"error": f"it cannot be read, it is damaged: {type(exc).__name__}: {str(exc)[:300]}"}))


def _lines(file: IO[bytes], kind: str, offset: int, limit: int, chars: int) -> Iterator[dict[str, Any]]:
    file.seek(0)
    parts: dict[str, int] = {}
    number, shown, room = 0, 0, chars
    following: int | None = None
    for number, unit in enumerate(_KINDS[kind](file), 1):
        if unit.part:
            parts.setdefault(unit.part, number)
        if following is None and number >= offset:
            text = unit.text() if shown < limit else ""
            if shown == limit or (len(text) > room and shown):
                following = number
            else:
                cut = len(text) - chars
                yield {"number": number, "text": f"{text[:chars]}… [{cut:,} more characters]" if cut > 0 else text}
                shown, room = shown + 1, room - len(text)
        if following is not None and time.process_time() > COUNT_S:
            yield {"end": {"total": None, "next": following, "parts": parts}}
            return
    yield {"end": {"total": number, "next": following, "parts": parts}}


def _pdf(file: IO[bytes]) -> Iterator[_Unit]:
    import pypdf
    from pypdf.errors import DependencyError

    reader = pypdf.PdfReader(file)
    try:
        locked = reader.is_encrypted and not reader.decrypt("")
    except DependencyError:
        locked = True
    if locked:
        raise _DocumentRejected("it is encrypted with a password")
    for page in reader.pages:
        yield _Unit(page.extract_text)


def _unpacked(file: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive after a check of its total size; an entry is read up to its declared size."""
    import zipfile  # the agent imports this module for `UNITS`

    if file.read(8) == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":  # as Office wraps what it encrypts
        raise _DocumentRejected("it is encrypted with a password, or in the format from before 2007")
    archive = zipfile.ZipFile(file)
    entries = archive.infolist()
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MOST_ENTRIES or size > UNPACKED_BYTES:
        raise _DocumentRejected(f"it unpacks to {size:,} bytes in {len(entries):,} files, which is too much")
    file.seek(0)
    return archive


def _docx(file: IO[bytes]) -> Iterator[_Unit]:
    _unpacked(file)
    import docx
    from docx.table import Table

    for block in docx.Document(file).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield _unit_text("\t".join(cell.text.replace("\n", " ") for cell in row.cells))
        elif block.text.strip():
            yield _unit_text(block.text)


def _pptx(file: IO[bytes]) -> Iterator[_Unit]:
    _unpacked(file)
    import pptx

    def text(slide: Any) -> str:
        lines = list(_shapes(slide.shapes))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(f"notes: {slide.notes_slide.notes_text_frame.text}")
        return "\n".join(lines)

    for slide in pptx.Presentation(file).slides:
        yield _unit_text(text(slide))


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes)
        elif getattr(shape, "has_table", False):
            yield from ("\t".join(cell.text for cell in row.cells) for row in shape.table.rows)
        elif shape.has_text_frame and shape.text_frame.text.strip():
            yield shape.text_frame.text


def _xlsx(file: IO[bytes]) -> Iterator[_Unit]:
    _unpacked(file)
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # what the file says of its size need not be so
        for row in sheet.iter_rows(values_only=True):
            if any(value is not None for value in row):
                yield _unit_text(_row("" if value is None else str(value) for value in row), sheet.title)


def _odf(file: IO[bytes]) -> Iterator[_Unit]:
    with _unpacked(file) as archive:
        if b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise _DocumentRejected("it is encrypted with a password")
        from lxml import etree

        with archive.open("content.xml") as content:
            tree = etree.parse(content, etree.XMLParser(resolve_entities=False, no_network=True))
    body = next(tree.iter("{*}body"))[0]
    match etree.QName(body).localname:
        case "spreadsheet":
            for table in body.iter("{*}table"):
                name = next((v for k, v in table.attrib.items() if k.endswith("}name")), "")
                for row in table.iter("{*}table-row"):
                    cells = _row(text for cell in row for text in [_paragraphs(cell)] * _repeated(cell))
                    for _ in range(_repeated(row) if cells else 0):
                        yield _unit_text(cells, name)
        case "presentation":
            for page in body.iter("{*}page"):
                yield _unit_text(_paragraphs(page))
        case _:
            for changes in list(body.iter("{*}tracked-changes")):  # what was deleted
                changes.getparent().remove(changes)
            for paragraph in body.iter("{*}p", "{*}h"):
                if text := _plain(paragraph).strip():
                    yield _unit_text(text)


def _paragraphs(element: Any) -> str:
    return "\n".join(filter(None, (_plain(paragraph).strip() for paragraph in element.iter("{*}p", "{*}h"))))


def _plain(paragraph: Any) -> str:
    """Return the text of a paragraph, in which spaces may be elements."""
    blanks = {"s": " ", "tab": "\t", "line-break": "\n"}
    out = [paragraph.text or ""]
    for child in paragraph:
        name = str(child.tag).rpartition("}")[2]
        out += [blanks[name] if name in blanks else _plain(child), child.tail or ""]
    return "".join(out)


def _repeated(element: Any) -> int:
    for name, value in element.attrib.items():
        if name.endswith(("}number-columns-repeated", "}number-rows-repeated")):
            return max(1, min(int(value), MOST_REPEATED))
    return 1


def _row(cells: Iterable[str]) -> str:
    return "\t".join(cell.replace("\n", " ") for cell in cells).rstrip("\t")


def _ipynb(file: IO[bytes]) -> Iterator[_Unit]:
    book = json.load(file)
    for cell in book["cells"]:
        kind, lines = cell["cell_type"], [_joined(cell["source"])]
        for output in islice(cell.get("outputs", ()), 50):
            text = _output(output).rstrip("\n")
            over = len(text) - OUTPUT_CHARS
            lines.append(f"[output]\n{text[:OUTPUT_CHARS]}" + (f"… [{over:,} more characters]" if over > 0 else ""))
        yield _unit_text(f"[{kind}]\n" + "\n".join(lines))


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    if "text" in output:
        return _joined(output["text"])
    data = output.get("data", {})
    others = [f"[{name}, not shown]" for name in data if not name.startswith("text/")]
    plain = data.get("text/plain", data.get("text/markdown", ""))
    return "\n".join([_joined(plain), *others])


def _unit_text(text: str, part: str = "") -> _Unit:
    return _Unit(lambda: text, part)


_KINDS: dict[str, Callable[[IO[bytes]], Iterator[_Unit]]] = {
    "pdf": _pdf,
    "docx": _docx,
    "docm": _docx,
    "pptx": _pptx,
    "pptm": _pptx,
    "xlsx": _xlsx,
    "xlsm": _xlsx,
    "odt": _odf,
    "ods": _odf,
    "odp": _odf,
    "ipynb": _ipynb,
}
UNITS = {
    "pdf": "page",
    "pptx": "slide",
    "pptm": "slide",
    "odp": "slide",
    "xlsx": "row",
    "xlsm": "row",
    "ods": "row",
    "ipynb": "cell",
    "docx": "paragraph",
    "docm": "paragraph",
    "odt": "paragraph",
}
"""The unit of each kind of document, by file ending."""
