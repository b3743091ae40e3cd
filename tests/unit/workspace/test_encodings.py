"""What is read, patched and written over keeps its encoding, byte order mark and line ends."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.workspace.text_forms import decode_text

FORMS = {
    "utf-8": ("", "utf-8", b""),
    "utf-8-sig": ("utf-8-sig", "utf-8", codecs.BOM_UTF8),
    "utf-16 little": ("utf-16", "utf-16-le", codecs.BOM_UTF16_LE),
    "utf-16 big": ("utf-16", "utf-16-be", codecs.BOM_UTF16_BE),
    "utf-32": ("utf-32", "utf-32-le", codecs.BOM_UTF32_LE),
    "latin-1": ("latin-1", "latin-1", b""),
}


@pytest.fixture(params=FORMS)
def form(request):
    """Name that `read_file` gives, codec, byte order mark."""
    return FORMS[request.param]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "unended"])
def test_a_file_is_read_patched_and_replaced_in_its_form(workplace, form, end, last):
    name, codec, bom = form
    path = workplace.cwd / "a.txt"

    def stored(*lines: str) -> bytes:
        return bom + (end.join(lines) + end * last).encode(codec)

    path.write_bytes(stored("grün", "zwei", "drei"))
    read = workplace.call("read_file", path="a.txt")
    assert read["content"] == "1|grün\n2|zwei\n3|drei\n"
    assert (read.get("encoding", ""), read.get("line_ends")) == (name, "crlf" if end == "\r\n" else None)

    assert "error" not in workplace.call(
        "patch", mode="replace", path="a.txt", old_string="grün\nzwei", new_string="ü\n2"
    )
    assert path.read_bytes() == stored("ü", "2", "drei")
    change = "*** Begin Patch\n*** Update File: a.txt\n@@\n-ü\n+é\n 2\n-drei\n+3\n+4\n*** Move to: b.txt\n*** End Patch"
    assert "error" not in workplace.call("patch", mode="patch", patch=change)
    path = path.with_name("b.txt")
    assert path.read_bytes() == stored("é", "2", "3", "4")

    workplace.call("read_file", path="b.txt")
    written = workplace.call("write_file", path="b.txt", content="à\nneu" + "\n" * last)
    assert path.read_bytes() == stored("à", "neu")
    assert (written.get("encoding", ""), written.get("line_ends")) == (name, "crlf" if end == "\r\n" else None)
    assert "note" not in written


def test_a_character_that_the_encoding_lacks_changes_nothing_in_a_patch_and_is_told_when_a_file_is_replaced(workplace):
    path = workplace.cwd / "a.txt"
    path.write_bytes("grün\r\n".encode("latin-1"))

    error = workplace.call("patch", mode="replace", path="a.txt", old_string="grün", new_string="5 €")["error"]
    assert error.startswith("nothing was changed: a.txt: latin-1 has no character '€' (U+20AC)")
    assert path.read_bytes() == "grün\r\n".encode("latin-1")
    written = workplace.call("write_file", path="a.txt", content="5 €\n")
    assert path.read_bytes() == "5 €\r\n".encode()
    assert written["note"] == "the file was latin-1, and latin-1 has no character '€' (U+20AC): it is utf-8 now"


def test_a_byte_that_is_not_utf_8_late_in_a_file_is_neither_lost_nor_shown_as_something_else(workplace):
    path = workplace.cwd / "a.txt"
    data = b"ascii\n" * 3_000 + "grün\n".encode("latin-1")
    path.write_bytes(data)

    read = workplace.call("read_file", path="a.txt", offset=3_001)
    assert (read["content"], read["encoding"]) == ("3001|grün\n", "latin-1")
    workplace.call("patch", mode="replace", path="a.txt", old_string="grün", new_string="blau")
    assert path.read_bytes() == data.replace("grün".encode("latin-1"), b"blau")


def test_line_ends_of_both_kinds_stay_and_are_named(workplace):
    path = workplace.cwd / "a.txt"
    path.write_bytes(b"one\r\ntwo\nthree\r\n")

    assert workplace.call("read_file", path="a.txt")["line_ends"] == "mixed"
    workplace.call("patch", mode="replace", path="a.txt", old_string="one", new_string="1")
    workplace.call("patch", mode="replace", path="a.txt", old_string="three\n", new_string="3\n4\n")
    assert path.read_bytes() == b"1\r\ntwo\n3\r\n4\r\n"


def test_lines_that_end_with_two_carriage_returns_are_patched_and_stay(workplace):
    path = workplace.cwd / "a.txt"
    path.write_bytes(b"one\r\r\ntwo\r\r\n")
    assert "error" not in workplace.call("patch", mode="replace", path="a.txt", old_string="two", new_string="2")
    assert path.read_bytes() == b"one\r\r\n2\r\r\n"


def test_damaged_and_binary_files_are_not_patched_and_what_is_damaged_is_marked(workplace):
    path = workplace.cwd / "a.txt"
    for data, reason in (
        (codecs.BOM_UTF16_LE + "ab".encode("utf-16-le") + b"\x00\xd8c\x00x", "its utf-16 is damaged at byte 6"),
        (b"\x7fELF\x00\xff\x01", "it is binary"),
    ):
        path.write_bytes(data)
        assert reason in workplace.call("patch", mode="replace", path="a.txt", old_string="a", new_string="b")["error"]
        assert path.read_bytes() == data
    path.write_bytes(codecs.BOM_UTF16_LE + "ab".encode("utf-16-le") + b"x")
    assert "are shown as \ufffd" in workplace.call("read_file", path="a.txt")["note"]


def test_the_content_of_a_new_file_and_of_one_that_was_binary_is_written_as_it_is(workplace):
    for before in (None, b"\x00\xff\x00", b""):
        path = workplace.cwd / f"{before!r}.txt".replace("\\", "")
        if before is not None:
            path.write_bytes(before)
        written = workplace.call("write_file", path=path.name, content="grün\r\nzwei\n")
        assert path.read_bytes() == "grün\r\nzwei\n".encode()
        assert "encoding" not in written and "line_ends" not in written


def test_a_long_file_is_judged_by_its_beginning(workplace):
    path = workplace.cwd / "a.txt"
    path.write_bytes(codecs.BOM_UTF16_LE + ("é𝄞\r\n" * 1_300_000).encode("utf-16-le"))
    written = workplace.call("write_file", path="a.txt", content="é\n")

    assert path.read_bytes() == codecs.BOM_UTF16_LE + "é\r\n".encode("utf-16-le")
    assert written["encoding"] == "utf-16" and "lines_removed" not in written


@given(st.one_of(st.binary(max_size=60), st.text(max_size=30).map(lambda text: text.encode("utf-16", "surrogatepass"))))
def test_what_can_be_read_is_given_back_byte_for_byte(data):
    try:
        text, form = decode_text(data)
    except ValueError:
        return
    assert form.encode(form.plain(text)) == data
