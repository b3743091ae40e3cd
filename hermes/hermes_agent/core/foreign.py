"""Text of strangers (a web page, a mail, a file from elsewhere), marked as data for the model."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["TAG", "TextPiece", "mark_untrusted", "split_marked"]

TAG = "foreign-text"
"""In every mark."""
_LETTERS = TAG.replace("-", "")
_BRACKET = re.compile(r"[<＜﹤‹〈⟨〈《«˂≺❮❰⧼](?=(.{0,80}))", re.DOTALL)
_MARK = re.compile(rf'<{TAG} from="([^"]*)">\n?|\n?</{TAG}>')


class TextPiece(NamedTuple):
    """A part of a text."""

    text: str
    source: str | None
    """Where a stranger's text comes from; None: it stands between no marks. Empty: it is nobody's."""


def mark_untrusted(text: str, source: str) -> str:
    """Return `text` between marks that it cannot close.

    Whatever could pass for a mark, to us or to a reader who is not strict, loses its bracket.

    Args:
        source: where it comes from, in a few characters; no place for quotes or line ends. Empty: it is nobody's, such
            as a report of the agent's own, and not the person's either.
    """
    safe = _BRACKET.sub(" ", re.sub(r'[\s"<>]+', " ", source))
    return f'<{TAG} from="{safe}">\n{_BRACKET.sub(_escape_bracket, text)}\n</{TAG}>'


def _escape_bracket(match: re.Match[str]) -> str:
    """Return the bracket, or a sign that opens nothing when what follows reads like our tag."""
    after = unicodedata.normalize("NFKC", match[1]).casefold()
    letters = [c for c in after if c.isalpha()][: len(_LETTERS)]
    alike = sum(a == b for a, b in zip(letters, _LETTERS, strict=False))
    return "·" if alike >= len(_LETTERS) - 4 else match[0]


def split_marked(text: str) -> list[TextPiece]:
    """Take a text apart at the marks; texts inside of a JSON document count one by one.

    A mark without its fellow counts to the end, or from the beginning: a text that was cut stays foreign.
    """
    found: list[TextPiece] = []
    for part in _texts(text) if TAG in text else [text]:
        found += _split(part)
    return found


def _split(text: str) -> Iterator[TextPiece]:
    source, begin = None, 0
    for mark in _MARK.finditer(text):
        closes = mark[1] is None
        yield TextPiece(text[begin : mark.start()], ("cut off" if source is None else source) if closes else source)
        source, begin = None if closes else mark[1], mark.end()
    yield TextPiece(text[begin:], source)


def _texts(text: str) -> Iterator[str]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text))
            return
        except (ValueError, RecursionError):  # cut, or followed by a notice: read what was escaped as it was meant
            text = text.replace('\\"', '"').replace("\\n", "\n")
    yield text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _texts(value) if TAG in value else [value]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
