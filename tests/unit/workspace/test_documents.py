"""`read_file` of documents: what a person would see of them, in bounds, and no harm by a hostile one."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import zipfile
import zlib

import pytest

from builtin_context import context_of
from contracts.terminal_places import program
from hermes_agent import config
from hermes_agent.core.errors import ToolFailed
from hermes_agent.tools import ToolRegistry
from hermes_agent.workspace import feature
from hermes_agent.workspace.read_file import read_document

docx = pytest.importorskip("docx")
openpyxl = pytest.importorskip("openpyxl")
pptx = pytest.importorskip("pptx")
pypdf = pytest.importorskip("pypdf")

ODF = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
    ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body>{}</office:body>'
    "</office:document-content>"
)


def pdf(*pages: str, content: bytes | None = None) -> bytes:
    """Return a PDF whose pages say this."""
    objects = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        stream = content or zlib.compress(f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode())
        kids.append(len(objects) + 1)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (len(objects) + 2)
        )
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(stream) + stream + b"\nendstream")
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    listed = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (listed, len(kids))
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def odf(body: str, manifest: str = "<m/>") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/manifest.xml", manifest)
        archive.writestr("content.xml", ODF.format(body))
    return data.getvalue()


def saved(document) -> bytes:
    data = io.BytesIO()
    document.save(data)
    return data.getvalue()


def test_a_pdf_is_read_by_pages_as_text_of_a_stranger(workplace):
    (workplace.cwd / "a.pdf").write_bytes(pdf("first", "second", "third"))

    result = workplace.call("read_file", path="a.pdf", offset=2, limit=1)
    assert result == {
        "path": "a.pdf",
        "content": '<foreign-text from="a.pdf">\n--- page 2 ---\nsecond\n</foreign-text>',
        "unit": "page",
        "total": 3,
        "next_offset": 3,
    }


def test_a_pdf_is_known_by_what_is_in_it_and_a_text_that_is_called_one_is_a_text(workplace):
    (workplace.cwd / "download").write_bytes(pdf("first"))
    (workplace.cwd / "a.pdf").write_text("not really\n")
    (workplace.cwd / "a.docx").write_text("not really\n")

    assert "first" in workplace.call("read_file", path="download")["content"]
    assert workplace.call("read_file", path="a.pdf")["content"] == "1|not really\n"
    assert workplace.call("read_file", path="a.docx")["content"] == "1|not really\n"


def test_pages_without_text_are_said_to_be_pictures_perhaps(workplace):
    (workplace.cwd / "a.pdf").write_bytes(pdf("", ""))

    assert "pictures" in workplace.call("read_file", path="a.pdf")["note"]


def test_a_word_document_gives_paragraphs_and_tables_in_their_order(workplace):
    document = docx.Document()
    document.add_heading("Title")
    table = document.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "a", "b"
    document.add_paragraph("after grün")
    (workplace.cwd / "a.docx").write_bytes(saved(document))

    result = workplace.call("read_file", path="a.docx")
    assert "\n1|Title\n2|a\tb\n3|after grün\n" in result["content"]
    assert (result["unit"], result["total"]) == ("paragraph", 3)


def test_a_workbook_gives_rows_and_says_where_its_sheets_begin(workplace):
    book = openpyxl.Workbook()
    book.active.title = "One"
    book.active.append(["name", "count"])
    book.active.append([])
    book.active.append(["x", 3])
    book.create_sheet("Two").append(["y", None, 2.5])
    (workplace.cwd / "a.xlsx").write_bytes(saved(book))

    result = workplace.call("read_file", path="a.xlsx", offset=2)
    assert "\n2|x\t3\n3|y\t\t2.5\n" in result["content"]
    assert (result["unit"], result["total"], result["sheets"]) == ("row", 3, {"One": 1, "Two": 3})


def test_slides_come_with_tables_and_notes(workplace):
    show = pptx.Presentation()
    for title in ("Hello", "World"):
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"say {title}"
    (workplace.cwd / "a.pptx").write_bytes(saved(show))

    content = workplace.call("read_file", path="a.pptx")["content"]
    assert "--- slide 1 ---\nHello\nnotes: say Hello\n--- slide 2 ---\nWorld\n" in content


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        (
            "a.odt",
            "<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
            "<text:h>Title</text:h><text:p>a<text:tab/>b<text:span> c</text:span></text:p></office:text>",
            "1|Title\n2|a\tb c\n",
        ),
        (
            "a.ods",
            '<office:spreadsheet><table:table table:name="S"><table:table-row>'
            '<table:table-cell table:number-columns-repeated="2"><text:p>x</text:p></table:table-cell>'
            '<table:table-cell table:number-columns-repeated="16000"/></table:table-row>'
            '<table:table-row table:number-rows-repeated="1048576"><table:table-cell/></table:table-row>'
            "</table:table></office:spreadsheet>",
            "1|x\tx\n",
        ),
        (
            "a.odp",
            "<office:presentation><draw:page><text:p>Hello</text:p></draw:page></office:presentation>",
            "--- slide 1 ---\nHello\n",
        ),
    ],
)
def test_open_documents_are_read(workplace, name, body, expected):
    (workplace.cwd / name).write_bytes(odf(body))

    result = workplace.call("read_file", path=name)
    assert f">\n{expected}</" in result["content"]
    assert result["total"] == expected.count("|") or result["total"] == 1


def test_a_notebook_comes_as_cells_with_bounded_outputs(workplace):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "text": ["x" * 9_000]},
                {"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": "A" * 100_000}},
                {"output_type": "error", "ename": "KeyError", "evalue": "'k'", "traceback": ["\x1b[31m"]},
            ],
        },
    ]
    (workplace.cwd / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))

    result = workplace.call("read_file", path="a.ipynb")
    assert result["content"].startswith("--- cell 1 ---\n[markdown]\n# Title\ntext\n--- cell 2 ---\n[code]\nprint(1)\n")
    assert (
        "… [4,000 more characters]\n[output]\n<Figure>\n[image/png, not shown]\n[output]\nKeyError: 'k'\n"
        in result["content"]
    )
    assert len(result["content"]) < 6_000


def test_a_long_document_is_read_on_at_the_next_offset(workplace):
    document = docx.Document()
    for number in range(300):
        document.add_paragraph(f"{number} " + "x" * 1_000)
    (workplace.cwd / "a.docx").write_bytes(saved(document))

    first = workplace.call("read_file", path="a.docx")
    assert len(first["content"]) < 101_500 and first["total"] == 300
    second = workplace.call("read_file", path="a.docx", offset=first["next_offset"], limit=1)
    assert f"\n{first['next_offset']}|{first['next_offset'] - 1} x" in second["content"]
    assert workplace.call("read_file", path="a.docx", offset=900)["note"] == "offset 900 is after the end"


def test_encrypted_documents_say_so(workplace):
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("first")))
    writer.encrypt("password", algorithm="RC4-128")
    with (workplace.cwd / "a.pdf").open("wb") as file:
        writer.write(file)
    (workplace.cwd / "a.odt").write_bytes(odf("<office:text/>", "<m><encryption-data/></m>"))
    (workplace.cwd / "a.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))

    for name in ("a.pdf", "a.odt", "a.docx"):
        assert "encrypted" in workplace.call("read_file", path=name)["error"], name


def test_a_damaged_document_is_said_to_be(workplace):
    (workplace.cwd / "a.pdf").write_bytes(b"%PDF-1.7\n" + b"\xff" * 500)
    (workplace.cwd / "a.docx").write_bytes(b"PK\x03\x04" + bytes(100))
    (workplace.cwd / "a.ipynb").write_text('{"cells": 1}')

    for name in ("a.pdf", "a.docx", "a.ipynb"):
        assert "its text cannot be extracted" in workplace.call("read_file", path=name)["error"], name


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(workplace, monkeypatch):
    (workplace.cwd / "a.pdf").write_bytes(pdf("first"))
    monkeypatch.setattr("sys.path", [place for place in sys.path if "site-packages" not in place])

    error = workplace.call("read_file", path="a.pdf")["error"]
    assert "the Python package pypdf is not installed" in error and "[documents]" in error


@pytest.mark.parametrize(
    ("declared", "error"), [(400_000_000, "it unpacks to 400,000,000 bytes"), (100, "it is damaged: BadZipFile")]
)
def test_an_archive_that_unpacks_to_too_much_is_not_unpacked_whatever_it_says(workplace, declared, error):
    with zipfile.ZipFile(workplace.cwd / "a.odt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("META-INF/manifest.xml", bytes(10_000_000))
        archive.filelist[0].file_size = declared

    assert error in workplace.call("read_file", path="a.odt")["error"]


def test_a_bomb_in_a_page_of_a_pdf_is_not_unpacked_either(workplace):
    (workplace.cwd / "a.pdf").write_bytes(pdf("x", content=zlib.compress(bytes(80_000_000))))

    result = workplace.call("read_file", path="a.pdf")
    assert "cannot be extracted" in result.get("error", "") or result["note"]


def test_entities_that_multiply_are_not_resolved(workplace):
    data = io.BytesIO()
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    text = f'<!DOCTYPE x [<!ENTITY e0 "x">{entities}]><x><y><z>&e11;</z></y></x>'
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("META-INF/manifest.xml", "<m/>")
        archive.writestr("content.xml", text)
    (workplace.cwd / "a.odt").write_bytes(data.getvalue())

    assert len(workplace.outcome("read_file", {"path": "a.odt"}).result) < 1_000


def test_a_reader_that_does_not_end_is_ended():
    loop = b"BT /F1 12 Tf " + b"1 0 0 1 0 0 Tm (x) Tj\n" * 3_000_000
    data = pdf("x", content=zlib.compress(loop))
    more = {"environ": os.environ, "cancelled": threading.Event(), "limit_s": 0.2}

    with pytest.raises(ToolFailed, match=r"^a\.pdf is a document, .*takes over 0\.2 s"):
        read_document(io.BytesIO(data), "pdf", shown="a.pdf", size=len(data), page=(1, 9, 999), **more)


def test_an_interrupt_ends_the_reader(workplace):
    (workplace.cwd / "a.pdf").write_bytes(pdf("first"))
    workplace.cancelled.set()

    assert workplace.call("read_file", path="a.pdf") == {"error": "interrupted by the user"}


def test_nothing_of_the_working_directory_is_imported(workplace, monkeypatch):
    (workplace.cwd / "a.pdf").write_bytes(pdf("first"))
    (workplace.cwd / "pypdf.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(workplace.cwd)
    monkeypatch.setattr("sys.path", ["", *sys.path])

    assert "first" in workplace.call("read_file", path="a.pdf")["content"]


def test_documents_of_another_machine_are_fetched_and_read_here(workplace, tmp_path):
    environ = program(tmp_path, "docker") | {"HOME": str(workplace.cwd.parent)}
    (workplace.home / "config.yaml").write_text("terminal: {backend: docker}\n")
    fresh = ToolRegistry()
    shells = feature.register_tools(
        context_of(fresh), config.load(workplace.home), workplace.home, workplace.cwd, environ=environ
    )
    workplace.registry.restore(fresh.snapshot())
    (workplace.cwd / "a.pdf").write_bytes(pdf("first"))

    assert "first" in workplace.call("read_file", path=str(workplace.cwd / "a.pdf"))["content"]
    shells.close_all()
