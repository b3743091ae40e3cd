"""Renders Markdown as styled lines for a terminal.

Code is neither indented nor padded and links show their address, so that copied text is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_agent.console.markdown_blocks import Block, BlockSplitter
from hermes_agent.console.styled import Line, Piece, cells, line, plain, printable, width_of, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer

MAX_WIDTH = 120
"""Columns of running text; a wider terminal does not make longer lines."""
NARROW_CELL = 6
"""A table of columns that would be narrower is shown as one record for each row."""
CONTEXT_CHARS = 2_000
"""Code before a line that the highlighter reads again to know where the line stands."""


class MarkdownView:
    """Renders one answer while it grows. Not for concurrent use."""

    def __init__(self, *, is_raw: bool = False) -> None:
        self._is_raw = is_raw
        """Whether lines are shown as they are."""
        self._splitter = BlockSplitter()
        self._half_line = ""
        self._code: _CodeView | None = None
        self._columns: list[int] | None = None
        """Column widths of the table that was cut."""
        self._pending: list[str] = []
        self._blocks: Iterator[Block] | None = None

    def feed(self, text: str) -> None:
        """Take more of the answer."""
        self._pending.append(printable(text.expandtabs(4) if "\t" in text else text))

    def finished(self, width: int) -> Iterator[list[Line]]:
        """Yield the lines of each block that is finished; the caller may stop between two and continue later."""
        while True:
            if self._blocks is None:
                if not self._pending:
                    return
                if self._is_raw:
                    *complete, self._half_line = (self._half_line + "".join(self._pending)).split("\n")
                    self._pending = []
                    yield [line(each) for each in complete]
                    return
                text, self._pending = "".join(self._pending), []
                self._blocks = self._splitter.feed(text)
            for block in self._blocks:
                yield self._render(block, width)
            self._blocks = None

    def rest(self, width: int) -> list[Line]:
        """Return the lines of the unfinished block."""
        if self._blocks is not None:
            return []
        lines: list[Line] = []
        for block in self._splitter.rest():
            if block.kind == "code" and self._code is not None:
                lines += self._code.render(block, keep=False)
            else:
                lines += _render_text(block, width, list(self._columns) if self._columns else None)
        return lines

    def finish(self, width: int) -> Iterator[list[Line]]:
        """Yield the lines of what remains at the end of the answer."""
        yield from self.finished(width)
        if self._half_line:
            yield [line(self._half_line)]
        for block in self._splitter.finish():
            yield self._render(block, width)

    def _render(self, block: Block, width: int) -> list[Line]:
        if block.kind == "code_start":
            self._code, self._columns = _CodeView(block.text), None
            return [()] if block.has_gap else []
        if block.kind == "code":
            return self._code.render(block) if self._code is not None else [line(block.text)]
        if block.kind == "code_end":
            self._code = None
            return []
        if block.kind == "table":
            self._columns = [] if self._columns is None else self._columns
        else:
            self._columns = None
        return _render_text(block, width, self._columns)


def render_markdown(text: str, width: int) -> list[Line]:
    """Return the lines of a whole text."""
    view = MarkdownView()
    view.feed(text)
    return [each for lines in view.finish(width) for each in lines]


def _render_text(block: Block, width: int, columns: list[int] | None) -> list[Line]:
    width = max(min(width, MAX_WIDTH) - block.indent, 10)
    lines: list[Line] = [()] if block.has_gap else []
    if block.kind == "table" or (columns and "|" in block.text):
        body = _table(block.text, width, columns)
    else:
        body = _Writer(width).write(_parser().parse(block.text))
    margin = line(" " * block.indent) if block.indent else ()
    return lines + [(*margin, *each) for each in body]


_cached_parser: list[MarkdownIt] = []


def _parser() -> MarkdownIt:
    if not _cached_parser:
        from markdown_it import MarkdownIt  # 40 ms; the first answer needs it, the prompt does not

        _cached_parser.append(MarkdownIt("commonmark", {"html": False}).enable("strikethrough"))
    return _cached_parser[0]


def load_renderer() -> None:
    """Import what the first answer needs; from a worker, while the user types."""
    _parser().parse("`x`")
    _CodeView("python").render(Block("code", "x = 1"))


class _Writer:
    """Writes the tokens of one block."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lines: list[Line] = []
        self._margins: list[Line] = []
        """What goes before each line: bars of quotes, indentation of items."""
        self._marker: Line = ()
        """Mark of a list item of which no line is written yet."""
        self._is_fresh = False
        """Whether a quote has just begun."""
        self._numbers: list[int | None] = []
        """The next number of each open list; None for bullets."""

    def write(self, tokens: Sequence[Token]) -> list[Line]:
        """Return the lines of tokens."""
        style = ""
        for token in tokens:
            kind = token.type
            if kind == "heading_open":
                style = "heading"
            elif kind == "heading_close":
                style = ""
            elif kind == "paragraph_open" and not token.hidden and self._margins and self._lines and not self._marker:
                if self._lines[-1] and not self._is_fresh:
                    self._add([()])
            elif kind == "inline":
                self._add(wrap(inline(token.children or (), style), self._room()))
            elif kind in ("fence", "code_block"):
                view = _CodeView(token.info.split()[0] if token.info.strip() else "")
                for text in token.content.rstrip("\n").split("\n"):
                    self._add(view.render(Block("code", text)))
            elif kind == "hr":
                self._add([line("─" * min(self._room(), 40), "rule")])
            elif kind == "html_block":
                self._add(wrap((Piece("", token.content.rstrip("\n")),), self._room()))
            else:
                self._nest(kind, token)
        return self._lines

    def _nest(self, kind: str, token: Token) -> None:
        if kind == "blockquote_open":
            self._margins.append(line("│ ", "quote"))
            self._is_fresh = True
        elif kind == "bullet_list_open":
            self._numbers.append(None)
        elif kind == "ordered_list_open":
            self._numbers.append(int(token.attrs.get("start", 1)))
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self._numbers.pop()
        elif kind == "list_item_open":
            number = self._numbers[-1]
            mark = "• " if number is None else f"{number}. "
            if number is not None:
                self._numbers[-1] = number + 1
            self._marker = line(mark, "marker")
            self._margins.append(line(" " * width_of(mark)))
        elif kind in ("blockquote_close", "list_item_close"):
            if kind == "list_item_close" and self._marker:
                self._add([()])
            self._margins.pop()

    def _room(self) -> int:
        return max(self._width - sum(cells(margin) for margin in self._margins), 10)

    def _add(self, lines: list[Line]) -> None:
        self._is_fresh = False
        for each in lines:
            margins = list(self._margins)
            if self._marker:
                margins[-1], self._marker = self._marker, ()
            self._lines.append((*(piece for margin in margins for piece in margin), *each))


def inline(tokens: Sequence[Token], style: str = "") -> list[Piece]:
    """Return the pieces of inline Markdown."""
    pieces: list[Piece] = []
    styles = [style] if style else []
    link_at: list[tuple[int, str]] = []
    for token in tokens:
        kind = token.type
        now = " ".join(styles)
        if kind in ("text", "html_inline", "text_special"):
            pieces.append(Piece(now, token.content))
        elif kind == "code_inline":
            pieces.append(Piece(f"{now} code".strip(), token.content))
        elif kind in ("softbreak", "hardbreak"):  # models end a line where they mean it
            pieces.append(Piece(now, "\n"))
        elif kind in ("strong_open", "em_open", "s_open", "link_open"):
            styles.append({"strong_open": "strong", "em_open": "emphasis", "s_open": "struck"}.get(kind, "link"))
            if kind == "link_open":
                link_at.append((len(pieces), str(token.attrs.get("href", ""))))
        elif kind in ("strong_close", "em_close", "s_close", "link_close"):
            styles.pop()
            if kind == "link_close" and link_at:
                start, address = link_at.pop()
                if address.removeprefix("mailto:") != plain(pieces[start:]) and address:
                    pieces.append(Piece("dim", f" ({address})"))
        elif kind == "image":
            pieces.append(Piece(f"{now} link".strip(), token.content or "image"))
            pieces.append(Piece("dim", f" ({token.attrs.get('src', '')})"))
    return [Piece(style, printable(text)) for style, text in pieces]


# -- tables --------------------------------------------------------------------------------------------------------


_CELL_BORDER = re.compile(r"(?<!\\)\|")


def _table(text: str, width: int, columns: list[int] | None) -> list[Line]:
    """Return the lines of a table.

    Args:
        columns: widths of the columns; an empty list is filled. A table that has widths already continues another.
    """
    source = [row.strip() for row in text.split("\n") if row.strip()]
    continues = bool(columns)
    header = [] if continues else _row(source[0])
    rows = [_row(row) for row in (source if continues else source[2:])]
    alignment = [] if continues else _row(source[1])
    count = len(columns) if continues and columns else len(header)
    rows = [[*row, *([[]] * (count - len(row)))][:count] for row in rows]
    if not continues or columns is None:
        widths = _column_widths([header, *rows], width)
        if columns is not None:
            columns[:] = widths
    else:
        widths = columns
    if count and min(widths) < NARROW_CELL and sum(widths) + 3 * (count - 1) > width:
        return _records(header, rows, width)
    right = [plain(cell).strip().endswith(":") and not plain(cell).strip().startswith(":") for cell in alignment]
    lines: list[Line] = []
    if header:
        lines += _table_row([[Piece("strong", p.text) if not p.style else p for p in cell] for cell in header], widths)
        lines.append(line("─┼─".join("─" * size for size in widths), "rule"))
    for row in rows:
        lines += _table_row(row, widths, right)
    return lines


def _row(text: str) -> list[list[Piece]]:
    cellsof = _CELL_BORDER.split(text.strip().removeprefix("|"))
    if text.rstrip().endswith("|") and len(cellsof) > 1:
        cellsof.pop()
    found = []
    for cell in cellsof:
        tokens = _parser().parseInline(cell.strip().replace("\\|", "|"))
        found.append(inline(tokens[0].children or () if tokens else ()))
    return found


def _column_widths(rows: Sequence[Sequence[Sequence[Piece]]], width: int) -> list[int]:
    count = max((len(row) for row in rows), default=0)
    widths = [max(max((cells(row[i]) for row in rows if i < len(row)), default=1), 1) for i in range(count)]
    excess = sum(widths) + 3 * (count - 1) - width
    while excess > 0:  # take from the widest
        widest = max(widths)
        if widest <= NARROW_CELL:
            return [min(each, NARROW_CELL - 1) for each in widths]
        following = max((each for each in widths if each < widest), default=NARROW_CELL)
        at_top = [i for i, each in enumerate(widths) if each == widest]
        step = max(min(widest - max(following, NARROW_CELL), -(-excess // len(at_top))), 1)
        for i in at_top:
            taken = min(step, max(excess, 0))
            widths[i] -= taken
            excess -= taken
    return widths


def _table_row(row: Sequence[Sequence[Piece]], widths: Sequence[int], right: Sequence[bool] = ()) -> list[Line]:
    columns = [wrap(list(cell), size) for cell, size in zip(row, widths, strict=False)]
    lines = []
    for number in range(max((len(column) for column in columns), default=0)):
        pieces: list[Piece] = []
        for i, (column, size) in enumerate(zip(columns, widths, strict=False)):
            if i:
                pieces.append(Piece("rule", " │ "))
            content: Line = column[number] if number < len(column) else ()
            space = " " * (size - cells(content))
            is_right = i < len(right) and right[i]
            pieces += [Piece("", space), *content] if is_right else content
            if not is_right and i < len(widths) - 1:
                pieces.append(Piece("", space))
        lines.append(tuple(piece for piece in pieces if piece.text))
    return lines


def _records(header: Sequence[Sequence[Piece]], rows: Sequence[Sequence[Sequence[Piece]]], width: int) -> list[Line]:
    lines: list[Line] = []
    for number, row in enumerate(rows):
        if number:
            lines.append(())
        for i, cell in enumerate(row):
            name = plain(header[i]) if i < len(header) else ""
            first = line(f"{name}: ", "strong") if name else ()
            lines += wrap(list(cell), width, first, line("  "))
    return lines


# -- code ----------------------------------------------------------------------------------------------------------


class _CodeView:
    """Highlights a code block line by line."""

    def __init__(self, language: str) -> None:
        self._lexer = _find_lexer(language)
        self._context = ""
        """Code before the next line, from a line at which no string or comment is open."""

    def render(self, block: Block, *, keep: bool = True) -> list[Line]:
        """Return the line of a block. `keep`: whether the line is complete."""
        margin = line(" " * block.indent) if block.indent else ()
        if self._lexer is None:
            return [(*margin, Piece("", block.text))]
        pieces, is_open = self._highlight(block.text)
        if keep:
            starts_here = not is_open and block.text[:1] not in (" ", "\t", "")
            self._context = f"{block.text}\n" if starts_here else f"{self._context}{block.text}\n"
            if len(self._context) > CONTEXT_CHARS:
                self._context = "" if not is_open else self._context[-CONTEXT_CHARS // 2 :].partition("\n")[2]
        return [(*margin, *pieces)]

    def _highlight(self, text: str) -> tuple[list[Piece], bool]:
        """Return the pieces of a line, and whether a string or comment continues behind it."""
        assert self._lexer is not None
        pieces: list[Piece] = []
        place, start, is_open = 0, len(self._context), False
        for kind, value in self._lexer.get_tokens(f"{self._context}{text}\n"):
            end = place + len(value)
            if end > start:
                style = _highlight_style(str(kind))
                shown = value[max(start - place, 0) :].rstrip("\n")
                if shown:
                    pieces.append(Piece(style, shown))
                is_open = value.endswith("\n") and style in ("hl-string", "hl-comment")
            place = end
        return pieces, is_open


def _find_lexer(language: str) -> Lexer | None:
    if not language or not re.fullmatch(r"[\w+#.-]{1,30}", language):
        return None
    from pygments.lexers import get_lexer_by_name  # 40 ms; only for an answer with code
    from pygments.util import ClassNotFound

    options: dict[str, Any] = {"stripnl": False, "ensurenl": False}
    try:
        return get_lexer_by_name(language.lower(), **options)
    except ClassNotFound:
        return None


_HIGHLIGHTS = (
    ("Token.Keyword", "hl-keyword"),
    ("Token.Operator.Word", "hl-keyword"),
    ("Token.Literal.String", "hl-string"),
    ("Token.Literal.Number", "hl-number"),
    ("Token.Comment", "hl-comment"),
    ("Token.Name.Function", "hl-name"),
    ("Token.Name.Class", "hl-class"),
    ("Token.Name.Tag", "hl-class"),
    ("Token.Name.Attribute", "hl-name"),
    ("Token.Name.Builtin", "hl-builtin"),
    ("Token.Name.Decorator", "hl-builtin"),
    ("Token.Generic.Inserted", "added"),
    ("Token.Generic.Deleted", "removed"),
    ("Token.Generic.Heading", "hunk"),
    ("Token.Generic.Subheading", "hunk"),
)


def _highlight_style(kind: str) -> str:
    return next((style for prefix, style in _HIGHLIGHTS if kind.startswith(prefix)), "")
