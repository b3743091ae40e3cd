"""Styled text: pieces with a style name, their width and wrapping, and the colour themes.

A style is a name of a theme, or several with blanks between them; "" is plain. A line has no line break. Themes use
the terminal's own 16 colours, so that they follow the user's palette. `NO_COLOR` and the theme `none` leave bold,
italic, underlined and reversed text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

from hermes_agent.core.lazy_types import LazyNamedTuple


class Piece(LazyNamedTuple):
    """Text of one style."""

    style: str
    text: str


Line = tuple[Piece, ...]

_UNIT = re.compile(
    r"\s+|[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]|[^\s\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]+"
)
"""A run of blanks, a character of a script without blanks between words, or a word."""


def line(text: str, style: str = "") -> Line:
    """Return a line of one style."""
    return (Piece(style, text),)


def printable(text: str) -> str:
    """Return `text` without control characters: text of a model or a tool must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def plain(pieces: Iterable[Piece]) -> str:
    """Return the text without its styles."""
    return "".join(piece.text for piece in pieces)


_NARROW = re.compile(
    r"[\x20-\u02ff\u2010-\u2027\u2190-\u22ff\u2500-\u25fc\u2713\u2717\u276f\u2800-\u28ff\u2212\u2022]*"
)
"""Characters of one cell; others are looked up in a table."""


def width_of(text: str) -> int:
    """Return the number of terminal cells of a text."""
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # only for other scripts and emoji

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    """Return the beginning of a text that is wider than `width` cells."""
    if _NARROW.fullmatch(text):
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def cells(pieces: Iterable[Piece]) -> int:
    """Return the number of terminal cells of pieces."""
    return sum(width_of(piece.text) for piece in pieces)


def fit(text: str, width: int) -> str:
    """Return a text of at most `width` cells; `…` stands for what is left out."""
    if width_of(text) <= width:
        return text
    return _cut(text, max(width - 1, 0)).rstrip() + "…" if width > 0 else ""


def crop(pieces: Iterable[Piece], width: int) -> Line:
    """Return the beginning of a line, with `…` where it is longer than `width` cells."""
    pieces = tuple(pieces)
    if cells(pieces) <= width:
        return pieces
    kept: list[Piece] = []
    room = width - 1
    for piece in pieces:
        size = width_of(piece.text)
        if size > room:
            kept.append(Piece(piece.style, _cut(piece.text, max(room, 0))))
            break
        kept.append(piece)
        room -= size
    return (*kept, Piece("dim", "…"))


def split_lines(pieces: Iterable[Piece]) -> Iterator[Line]:
    """Yield the lines of pieces that may contain line breaks."""
    current: list[Piece] = []
    for style, text in pieces:
        first, *more = text.split("\n")
        current.append(Piece(style, first))
        for part in more:
            yield tuple(current)
            current = [Piece(style, part)]
    yield tuple(current)


def wrap(pieces: Sequence[Piece], width: int, first: Line = (), following: Line | None = None) -> list[Line]:
    """Return pieces as lines of at most `width` cells, broken between words.

    Args:
        first: put before the first line; its cells count.
        following: put before the other lines; None puts blanks of the width of `first`.
    """
    if following is None:
        indent = cells(first)
        following = line(" " * indent) if indent else ()
    lines: list[Line] = []
    for part in split_lines(pieces):
        for found in _wrap_line(part, width, cells(following if lines else first), cells(following)):
            lines.append((*(following if lines else first), *found))
    return lines


def _wrap_line(pieces: Line, width: int, first_indent: int, indent: int) -> Iterator[Line]:
    text = plain(pieces)
    room = max(width - first_indent, 1)
    if width_of(text) <= room:
        yield pieces
        return
    ends = list(accumulate(len(piece.text) for piece in pieces))
    start, used, stop = 0, 0, 0
    """Where the line begins, its cells, and where its last unit ends."""
    for match in _UNIT.finditer(text):
        unit = match[0]
        if unit.isspace():
            if used == 0 and start:  # no line but the first begins with blanks
                start = stop = match.end()
            else:
                used += width_of(unit)
            continue
        size = width_of(unit)
        if used + size > room and used:
            yield _slice(pieces, ends, start, stop)
            start, used, room = match.start(), 0, max(width - indent, 1)
        place = match.start()
        while size > room:  # a word that is longer than a line
            count = max(len(_cut(text[place : match.end()], room).rstrip()), 1)
            yield _slice(pieces, ends, place, place + count)
            place += count
            start, room = place, max(width - indent, 1)
            size = width_of(text[place : match.end()])
        used, stop = used + size, match.end()
    if stop > start:
        yield _slice(pieces, ends, start, stop)


def _slice(pieces: Line, ends: Sequence[int], start: int, stop: int) -> Line:
    found: list[Piece] = []
    begin = 0
    for piece, end in zip(pieces, ends, strict=True):
        if end > start and begin < stop:
            text = piece.text[max(start - begin, 0) : stop - begin]
            if text:
                found.append(Piece(piece.style, text))
        begin = end
    return tuple(found)


_DARK: Final[Mapping[str, str]] = {
    "answer": "",
    "dim": "bright-black",
    "strong": "bold",
    "emphasis": "italic",
    "struck": "strike",
    "heading": "bold cyan",
    "code": "cyan",
    "link": "blue underline",
    "quote": "bright-black italic",
    "rule": "bright-black",
    "marker": "cyan",
    "prompt": "bold cyan",
    "user": "bold",
    "tool": "bright-black",
    "verb": "bold",
    "ok": "green",
    "failed": "red",
    "error": "red",
    "warning": "yellow",
    "added": "green",
    "removed": "red",
    "hunk": "cyan",
    "spinner": "cyan",
    "status": "bright-black",
    "alert": "bold yellow",
    "selected": "reverse",
    "command": "bold yellow",
    "queued": "bright-black italic",
    "hl-keyword": "magenta",
    "hl-string": "green",
    "hl-number": "cyan",
    "hl-comment": "bright-black italic",
    "hl-name": "blue",
    "hl-class": "bold blue",
    "hl-builtin": "cyan",
    "hl-operator": "",
    "hl-error": "",
}
_LIGHT: Final[Mapping[str, str]] = {
    **_DARK,
    "heading": "bold blue",
    "code": "blue",
    "marker": "blue",
    "prompt": "bold blue",
    "spinner": "blue",
    "hunk": "blue",
    "warning": "magenta",
    "alert": "bold magenta",
    "command": "bold magenta",
    "hl-number": "blue",
    "hl-builtin": "blue",
}
_HIGH_CONTRAST: Final[Mapping[str, str]] = {
    **_DARK,
    "dim": "",
    "heading": "bold underline",
    "code": "bold",
    "link": "underline",
    "quote": "italic",
    "rule": "",
    "marker": "bold",
    "prompt": "bold",
    "tool": "",
    "ok": "bold bright-green",
    "failed": "bold bright-red",
    "error": "bold bright-red",
    "warning": "bold bright-yellow",
    "added": "bright-green",
    "removed": "bright-red",
    "hunk": "bold",
    "status": "",
    "spinner": "bold",
    "queued": "italic",
    "hl-comment": "italic",
}

THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "dark": _DARK,
    "light": _LIGHT,
    "high-contrast": _HIGH_CONTRAST,
    "none": {},
}
DEFAULT_THEME = "dark"


_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ATTRIBUTES = {"bold": "1", "italic": "3", "underline": "4", "reverse": "7", "strike": "9"}
_LOOK = re.compile(rf"(?:{'|'.join(_ATTRIBUTES)}|(?:bright-)?(?:{'|'.join(_COLOURS)})|#[0-9a-fA-F]{{6}})?")
_COLOURLESS = {"bold", "italic", "underline", "reverse", "strike"}
_PLAIN_THEME = {style: " ".join(word for word in look.split() if word in _COLOURLESS) for style, look in _DARK.items()}


def is_look(text: str) -> bool:
    """Return whether a text is the look of a style: attributes, terminal colours, `#rrggbb`."""
    return all(_LOOK.fullmatch(word) for word in text.split())


class Theme:
    """The looks of one theme.

    Args:
        name: a name of `THEMES`, or that of a skin.
        has_colour: False leaves what is no colour: bold, italic, underlined, reversed.
        looks: the looks of a skin; None takes those of `THEMES`.
    """

    def __init__(
        self, name: str = DEFAULT_THEME, *, has_colour: bool = True, looks: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.may_colour = has_colour
        """Whether another theme may have colours."""
        self.has_colour = has_colour and name != "none"
        chosen = THEMES[name] if looks is None else looks
        self._looks = chosen if self.has_colour else _PLAIN_THEME
        self._codes = lru_cache(maxsize=None)(self._find_codes)

    def ansi(self, line: Line) -> str:
        """Return a line with the escape sequences of its styles."""
        out = []
        for style, text in line:
            codes = self._codes(style)
            out.append(f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text)
        return "".join(out)

    def rules(self) -> list[tuple[str, str]]:
        """Return the styles as rules of prompt_toolkit."""
        return [(style, _toolkit_style(look)) for style, look in self._looks.items()]

    def _find_codes(self, style: str) -> str:
        words = " ".join(self._looks.get(name, "") for name in style.split()).split()
        return ";".join(_code(word) for word in words)


def _code(word: str) -> str:
    if word in _ATTRIBUTES:
        return _ATTRIBUTES[word]
    if word.startswith("#"):
        return f"38;2;{int(word[1:3], 16)};{int(word[3:5], 16)};{int(word[5:7], 16)}"
    base, name = (90, word.removeprefix("bright-")) if word.startswith("bright-") else (30, word)
    return str(base + _COLOURS.index(name))


def _toolkit_style(look: str) -> str:
    words = []
    for word in look.split():
        if word in _ATTRIBUTES or word.startswith("#"):
            words.append(word)
        else:
            bright, name = word.startswith("bright-"), word.removeprefix("bright-")
            toolkit = {"black": "black", "white": "gray"} if not bright else {"black": "brightblack", "white": "white"}
            words.append("ansi" + toolkit.get(name, f"bright{name}" if bright else name))
    return " ".join(words)
