"""Encoding and line ends of text files: found when a file is read, kept when it is changed. Pure functions."""

from __future__ import annotations

import codecs
from typing import NamedTuple

__all__ = ["SAMPLE_BYTES", "UTF8", "TextForm", "decode_text", "guess_encoding", "guess_form"]

SAMPLE_BYTES = 8_192
"""Bytes at the beginning of a file that tell its encoding, and whether it is text."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig", "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "utf-32-le"),  # before UTF-16: it begins with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32", "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16", "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16", "utf-16-be"),
)


class TextForm(NamedTuple):
    """How a text is stored."""

    encoding: str = "utf-8"
    """As `read_file` reports it."""
    codec: str = "utf-8"
    """For what follows the byte order mark."""
    bom: bytes = b""
    ends: str = "lf"
    """`lf`, `crlf`, or `mixed`, which stays as it is."""

    def plain(self, text: str) -> str:
        """Return the text with LF alone, where all of its lines end with CR and LF."""
        return text.replace("\r\n", "\n") if self.ends == "crlf" else text

    def encode(self, text: str) -> bytes:
        """Return the bytes of a plain text in this form.

        Raises:
            ValueError: the encoding has no such character, or the text holds a lone surrogate.
        """
        if self.ends == "crlf":
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return self.bom + text.encode(self.codec)
        except UnicodeEncodeError as exc:
            character = text[exc.start]
            if "\ud800" <= character <= "\udfff":
                raise ValueError(f"the new text holds half a character (a lone surrogate) at {exc.start}") from exc
            raise ValueError(f"{self.encoding} has no character {character!r} (U+{ord(character):04X})") from exc


UTF8 = TextForm()


def decode_text(data: bytes) -> tuple[str, TextForm]:
    """Return a file's text, without byte order mark and with its own line ends, and its form.

    The form gives back exactly these bytes for the plain text.

    Raises:
        ValueError: it is no text: binary, or damaged.
    """
    bom, encoding, codec = _bom(data)
    body = data[len(bom) :]
    try:
        text = body.decode(codec)
    except UnicodeDecodeError as exc:
        if codec != "utf-8":
            raise ValueError(f"its {encoding} is damaged at byte {len(bom) + exc.start:,}") from exc
        if b"\0" in data:
            raise ValueError("it is binary") from exc
        bom, encoding, codec, text = b"", "latin-1", "latin-1", data.decode("latin-1")
    form = TextForm(encoding, codec, bom, _line_ends(text))
    if form.encode(form.plain(text)) != data:  # Python's decoders take nothing else today
        raise ValueError(f"its {encoding} is damaged")
    return text, form


def guess_encoding(sample: bytes) -> str | None:
    """Return the encoding of a text by its first bytes, or None for a binary file."""
    bom, encoding, _ = _bom(sample)
    if bom:
        return encoding
    if b"\0" in sample:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def guess_form(beginning: bytes) -> TextForm | None:
    """Return the form of a text by its first bytes, or None for a binary file."""
    encoding = guess_encoding(beginning)
    if encoding is None:
        return None
    bom, _, codec = _bom(beginning)
    codec = codec if bom else encoding
    text = codecs.getincrementaldecoder(codec)("replace").decode(beginning[len(bom) :])
    return TextForm(encoding, codec, bom, _line_ends(text))


def _line_ends(text: str) -> str:
    """Return `crlf` when all lines end so, `lf` when none does, else `mixed`; also for two CR before an LF."""
    crlf = text.count("\r\n")
    if not crlf:
        return "lf"
    return "crlf" if crlf == text.count("\n") and "\r\r\n" not in text else "mixed"


def _bom(data: bytes) -> tuple[bytes, str, str]:
    return next((entry for entry in _BOMS if data.startswith(entry[0])), (b"", "utf-8", "utf-8"))
