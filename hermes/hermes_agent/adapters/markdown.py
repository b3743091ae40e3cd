"""Markdown of models in the markup of a platform.

`render` parses a text with markdown-it and writes it in a `Dialect`, which is a table of marks. Lines stay lines, and
blank lines between blocks stay. Importing this module imports markdown-it (60 ms), so callers import it at first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape as escape_html
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from hermes_agent.core.lazy_types import LazyNamedTuple

__all__ = ["MATRIX", "PLAIN", "TELEGRAM", "XMPP", "Dialect", "bullet_lists", "render"]

_TELEGRAM_RESERVED = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_TELEGRAM_CODE = re.compile(r"([`\\])")
_TELEGRAM_ADDRESS = re.compile(r"([)\\])")
_BARE_ADDRESS = re.compile(r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]']")
_SAFE_ADDRESS = re.compile(r"(?:https?|mailto|matrix):")
_OFF = ("entity", "html_block", "html_inline", "lheading", "reference")
"""Rules of CommonMark that would change texts of chats: entities, HTML, underlined headings, references."""


class Dialect(LazyNamedTuple):
    """The marks of a platform; each pair is an opening and a closing mark."""

    text: Callable[[str], str]
    """Escapes plain text."""
    code: Callable[[str], str]
    """Escapes text in code."""
    link: Callable[[str, str, str], str]
    """Returns a link; the arguments are the label in the dialect, the plain label and the address."""
    fence: Callable[[str, str], str]
    """Returns a code block of language and escaped code."""
    strong: tuple[str, str] = ("", "")
    em: tuple[str, str] = ("", "")
    s: tuple[str, str] = ("", "")
    inline_code: tuple[str, str] = ("", "")
    heading: tuple[str, str] = ("", "")
    """Marks around a heading."""
    quote: str = ""
    """Prefix of each line of a quote."""
    bullet: str = "- "
    shows_images: bool = True
    """Whether an image is shown as a link, instead of its alternative text."""
    is_html: bool = False
    """Whether blocks are HTML elements instead of lines."""


class _InlineState(StateInline):
    """Inline parser state in which `*` within a word is text: `2*3*4`."""

    def scanDelims(self, start: int, canSplitWord: bool) -> Any:
        return super().scanDelims(start, False)


class _InlineParser(ParserInline):
    """Inline parser with `_InlineState`."""

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        state = _InlineState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark")
    parser.inline = _InlineParser()
    parser.configure("commonmark").enable(["strikethrough", "table"]).disable(_OFF)
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # a dialect decides about addresses
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    return parser


_PARSER = _parser()


def render(text: str, dialect: Dialect) -> str:
    """Return a Markdown text in a dialect."""
    tokens = _PARSER.parse(text.replace("\0", ""))  # the parser would replace NUL by another character
    shown = _html(tokens, dialect) if dialect.is_html else _Lines(dialect).render(tokens)
    return shown if shown.strip() or not text.strip() else dialect.text(text)  # marks without content, such as `>`


def bullet_lists(text: str) -> str:
    """Return a Markdown text with its tables as lists, and everything else unchanged."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # the lines that the parser counts
    tokens = _PARSER.parse(text)
    lines = text.split("\n")
    for index, token in reversed(list(enumerate(tokens))):
        if token.type == "table_open" and token.map and token.level == 0:
            rows = _table(tokens[index:], lambda cell: cell.content)
            lines[token.map[0] : token.map[1]] = [f"• {row}" for row in rows]
    return "\n".join(lines)


def _table(tokens: Sequence[Token], cell_text: Callable[[Token], str]) -> Iterator[str]:
    """Yield `column: value` texts of the rows of a table, which begins at the first token."""
    head: list[str] = []
    row: list[str] = []
    count = 0
    for token in tokens:
        if token.type == "inline":
            row.append(cell_text(token).replace("\\|", "|"))
        elif token.type == "tr_open":
            row = []
        elif token.type == "thead_close":
            head = row
        elif token.type == "tr_close" and head:
            count += 1
            yield "; ".join(f"{name}: {cell}" if name else cell for name, cell in zip(head, row, strict=False) if cell)
        elif token.type == "table_close":
            if not count:
                yield "; ".join(cell for cell in head if cell)
            return


# -- inline ------------------------------------------------------------------------------------------------------------


def _inline(token: Token, dialect: Dialect, within: str = "") -> str:
    """Return inline content; a mark within one of the same kind is omitted.

    Args:
        within: kinds of the marks around it.
    """
    return _marked(token.children or [], dialect, within)


def _marked(children: Sequence[Token], dialect: Dialect, within: str) -> str:
    out: list[str] = []
    marks: list[str] = []
    at = 0
    while at < len(children):
        token = children[at]
        kind, _, end = token.type.rpartition("_")
        if token.type == "link_open":
            close = next(n for n in range(at, len(children)) if children[n].type == "link_close")
            inner = children[at + 1 : close]
            label = _marked(inner, dialect, within)
            out.append(dialect.link(label, _plain(inner), str(token.attrs.get("href", ""))))
            at = close
        elif token.type == "image":
            address = str(token.attrs.get("src", ""))
            label = dialect.text(token.content or address)
            out.append(dialect.link(label, token.content, address) if dialect.shows_images else label)
        elif end == "open":
            marks.append("" if kind in (*marks, *within.split()) else kind)
            out.append(getattr(dialect, marks[-1])[0] if marks[-1] else "")
        elif end == "close":
            closed = marks.pop()
            out.append(getattr(dialect, closed)[1] if closed else "")
        elif token.type == "code_inline":
            out.append(dialect.code(token.content).join(dialect.inline_code))
        elif token.type in ("softbreak", "hardbreak"):
            out.append("<br>" if dialect.is_html else "\n")
        else:
            out.append(dialect.text(token.content))
        at += 1
    return "".join(out)


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(token.content for token in tokens)


# -- blocks ------------------------------------------------------------------------------------------------------------


class _Lines:
    """Writer of blocks as lines."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._out: list[str] = []
        self._last_line = 0
        self._quotes = 0
        self._markers: list[str] = []
        """Markers of the list items around a block; "" once it is written."""

    def render(self, tokens: Sequence[Token]) -> str:
        """Return the text of the tokens."""
        heading, skipped = "", False
        for index, token in enumerate(tokens):
            if token.type == "table_close":
                skipped = False
            elif token.type == "table_open" and token.map:
                skipped = True
                rows = [f"• {row}" for row in _table(tokens[index:], lambda cell: _inline(cell, self._dialect))]
                self._write("\n".join(rows), token.map)
            elif skipped:
                continue
            elif token.type == "inline" and token.map:
                around = self._dialect.heading if heading and token.content else ("", "")
                within = "strong em s" if around[0] else ""
                shown = _inline(token, self._dialect, within) or self._dialect.text(heading)
                self._write(shown.join(around), token.map)
            elif token.type in ("fence", "code_block") and token.map:
                language = token.info.split()[0] if token.info.split() else ""
                code = self._dialect.code(token.content.removesuffix("\n"))
                self._write(self._dialect.fence(self._dialect.text(language), code), token.map)
            elif token.type == "hr" and token.map:
                self._write(self._dialect.text(token.markup), token.map)
            elif token.type in ("heading_open", "heading_close"):
                heading = token.markup if token.nesting == 1 else ""
            else:
                self._nest(token, tokens[index + 1 : index + 2])
        return "".join(self._out)

    def _nest(self, token: Token, following: Sequence[Token]) -> None:
        """Enter or leave a quote or a list item."""
        if token.type in ("blockquote_open", "blockquote_close"):
            self._quotes += token.nesting
        elif token.type == "list_item_open" and token.map:
            self._markers.append(f"{token.info}{token.markup} " if token.info else self._dialect.bullet)
            if following[0].type == "list_item_close":
                self._write("", token.map)
        elif token.type == "list_item_close":
            self._markers.pop()

    def _write(self, text: str, lines: Sequence[int]) -> None:
        if self._out:
            self._out.append("\n" * max(1, lines[0] - self._last_line + 1))
        self._last_line = lines[1]
        indent = "  " * max(0, len(self._markers) - 1)
        marker = self._markers[-1] if self._markers else ""
        if self._markers:
            self._markers[-1] = ""
        if marker != self._dialect.bullet:
            marker = self._dialect.text(marker)
        quote = self._dialect.quote if self._quotes else ""
        self._out.append("\n".join(quote + line for line in f"{indent}{marker}{text}".split("\n")))


def _html(tokens: Sequence[Token], dialect: Dialect) -> str:
    """Return blocks as HTML; paragraphs are lines with breaks between them."""
    out: list[str] = []
    is_line = skipped = False
    last_line = 0
    for index, token in enumerate(tokens):
        if token.type == "table_close":
            skipped = False
        elif token.type == "table_open":
            skipped, is_line = True, False
            rows = _table(tokens[index:], lambda cell: _inline(cell, dialect))
            out.append("<ul>" + "".join(f"<li>{row}</li>" for row in rows) + "</ul>")
        elif skipped:
            continue
        elif token.type == "paragraph_open" and token.map:
            out.append("<br>" * max(1, token.map[0] - last_line + 1) if is_line else "")
            last_line = token.map[1]
        elif token.type == "paragraph_close":
            is_line = True
        elif token.type == "inline":
            out.append(_inline(token, dialect))
        elif token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.split() else ""
            out.append(dialect.fence(language, dialect.code(token.content)))
            is_line = False
        elif token.type == "hr":
            out.append("<hr>")
            is_line = False
        elif token.nesting:
            start = f' start="{token.attrs["start"]}"' if "start" in token.attrs else ""
            out.append(f"<{token.tag}{start}>" if token.nesting == 1 else f"</{token.tag}>")
            is_line = False
    return "".join(out)


# -- dialects ----------------------------------------------------------------------------------------------------------


def _telegram_link(label: str, plain: str, address: str) -> str:
    escaped = _TELEGRAM_ADDRESS.sub(r"\\\1", address)
    return f"[{label}]({escaped})"


def _plain_link(label: str, plain: str, address: str) -> str:
    return address if plain in ("", address) else f"{label} ({address})"


def _html_text(text: str) -> str:
    """Return escaped text with links around bare addresses."""
    out, at = [], 0
    for found in _BARE_ADDRESS.finditer(text):
        shown = escape_html(found[0], quote=False)
        out += [escape_html(text[at : found.start()], quote=False), f'<a href="{escape_html(found[0])}">{shown}</a>']
        at = found.end()
    return "".join([*out, escape_html(text[at:], quote=False)])


def _html_link(label: str, plain: str, address: str) -> str:
    shown = escape_html(plain, quote=False) if "<a " in label else label  # no link within a link
    return f'<a href="{escape_html(address)}">{shown}</a>' if _SAFE_ADDRESS.match(address) else shown


def _html_fence(language: str, code: str) -> str:
    named = f' class="language-{escape_html(language)}"' if language else ""
    return f"<pre><code{named}>{code}</code></pre>"


PLAIN = Dialect(str, str, _plain_link, lambda language, code: code, shows_images=False)
"""Text without marks; links keep their addresses."""

TELEGRAM = Dialect(
    lambda text: _TELEGRAM_RESERVED.sub(r"\\\1", text),
    lambda text: _TELEGRAM_CODE.sub(r"\\\1", text),
    _telegram_link,
    lambda language, code: f"```{language}\n{code}\n```",
    strong=("*", "*"),
    em=("_", "_"),
    s=("~", "~"),
    inline_code=("`", "`"),
    heading=("*", "*"),
    quote=">",
    bullet="• ",
)
"""MarkdownV2. Source: core.telegram.org/bots/api#markdownv2-style."""

XMPP = Dialect(
    str,
    str,
    _plain_link,
    lambda language, code: f"```{language}\n{code}\n```",
    strong=("*", "*"),
    em=("_", "_"),
    s=("~", "~"),
    inline_code=("`", "`"),
    heading=("*", "*"),
    quote="> ",
)
"""Message styling. Source: XEP-0393."""

MATRIX = Dialect(
    _html_text,
    lambda text: escape_html(text, quote=False),
    _html_link,
    _html_fence,
    strong=("<strong>", "</strong>"),
    em=("<em>", "</em>"),
    s=("<del>", "</del>"),
    inline_code=("<code>", "</code>"),
    is_html=True,
)
"""HTML of `formatted_body`. Source: spec.matrix.org, m.room.message."""
