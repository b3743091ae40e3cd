"""Splits growing Markdown into blocks, so that each finished block is rendered once.

A block is finished when nothing that follows can change how it looks: a paragraph at its blank line, a list item when
the next begins, a line of code at its line break. What follows the last finished block is the *rest*; only the rest is
rendered again while the answer grows. Blocks that become very long are cut, so that the rest stays short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from hermes_agent.core.lazy_types import LazyNamedTuple

Kind = Literal["text", "code_start", "code", "code_end", "table"]

MAX_REST_CHARS = 3_000
"""A longer paragraph or list item is cut at a line break or a blank."""
MAX_TABLE_ROWS = 30
"""A longer table is cut; its columns keep their widths."""

_FENCE = re.compile(r"( {0,12})(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_RULE = re.compile(r" {0,3}(?:(?:-\s*){3,}|(?:_\s*){3,}|(?:\*\s*){3,})$")
_DELIMITER_ROW = re.compile(r" *\|?(?: *:?-+:? *\|)* *:?-+:? *\|? *")


class Block(LazyNamedTuple):
    """A piece of the answer that is rendered by itself."""

    kind: Kind
    text: str
    """Markdown of a text or table; one line of code; the language of a code block that starts."""
    has_gap: bool = False
    """Whether an empty line goes before it."""
    indent: int = 0
    """Columns by which it is indented, in a list item."""


class BlockSplitter:
    """Splits one answer."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        """Complete lines of the current block."""
        self._partial = ""
        """The last line, as far as it arrived."""
        self._fence = ""
        """Mark of the open code block, or ""."""
        self._fence_indent = 0
        self._item_indent: int | None = None
        """Column of the text of the current list item; None outside a list."""
        self._previous = ""
        """What the last block was: "" at the beginning, `text`, `heading`, `code` or `table`."""
        self._is_after_blank = False
        self._began_after_blank = False
        self._is_table = False
        self._size = 0

    def feed(self, text: str) -> Iterator[Block]:
        """Take more of the answer and yield the blocks that it finishes."""
        *complete, self._partial = (self._partial + text).split("\n")
        for line in complete:
            yield from self._add(line.rstrip("\r"))
        while not self._fence and self._size + len(self._partial) > MAX_REST_CHARS:
            room = max(MAX_REST_CHARS - self._size, 1)
            cut = self._partial.rfind(" ", 0, room) + 1 or room
            line, self._partial = self._partial[:cut], self._partial[cut:]
            yield from self._add(line)

    def rest(self) -> list[Block]:
        """Return the unfinished part as blocks, without finishing it."""
        if self._fence:
            return [Block("code", self._dedent(self._partial), indent=self._fence_indent)] if self._partial else []
        lines, after_blank = list(self._lines), self._began_after_blank if self._lines else self._is_after_blank
        if self._partial.strip() and not self._partial.strip().startswith(("```", "~~~")):
            lines.append(self._partial)
        return [self._block(lines, after_blank)] if any(line.strip() for line in lines) else []

    def finish(self) -> Iterator[Block]:
        """Yield what remains at the end of the answer."""
        partial, self._partial = self._partial, ""
        if partial:
            yield from self._add(partial)
        if self._fence:
            yield Block("code_end", "", indent=self._fence_indent)
            self._fence = ""
        yield from self._flush()

    def _add(self, line: str) -> Iterator[Block]:
        if self._fence:
            yield from self._add_code(line)
            return
        if not line.strip():
            if self._item_indent is None:
                yield from self._flush()
            elif self._lines:
                self._lines.append("")
            self._is_after_blank = True
            return
        fence = _FENCE.fullmatch(line)
        if fence and (len(fence[1]) < 4 or self._item_indent is not None):
            yield from self._open_fence(fence)
            return
        if self._begins_block(line):
            yield from self._flush()
        self._append(line)
        is_whole = _HEADING.match(line) or (len(self._lines) == 1 and _RULE.fullmatch(line))
        is_long = self._size > MAX_REST_CHARS or (self._is_table and len(self._lines) > MAX_TABLE_ROWS)
        if is_whole or is_long:
            yield from self._flush()

    def _append(self, line: str) -> None:
        if not self._lines:
            self._began_after_blank = self._is_after_blank
            item = _ITEM.match(line)
            is_rule = _RULE.fullmatch(line) is not None
            if item and not is_rule:
                self._item_indent = item.end() if item[3] else item.end() + 1
            elif self._item_indent is not None and (_indent(line) < min(self._item_indent, 2) or is_rule):
                self._item_indent = None
        self._is_after_blank = False
        self._lines.append(line)
        self._size += len(line) + 1
        if len(self._lines) == 2 and "|" in line and "|" in self._lines[0] and _DELIMITER_ROW.fullmatch(line):
            self._is_table = True

    def _begins_block(self, line: str) -> bool:
        """Return whether a line begins another block than the current one."""
        if not self._lines:
            return False
        if _HEADING.match(line):
            return True
        item = None if _RULE.fullmatch(line) else _ITEM.match(line)
        if self._item_indent is not None:
            if item and len(item[1]) < self._item_indent:
                return True
            return self._is_after_blank and _indent(line) < self._item_indent
        if self._is_table:
            return "|" not in line
        return item is not None and item[2] in ("-", "*", "+", "1.", "1)")  # others may be a number in a sentence

    def _open_fence(self, fence: re.Match[str]) -> Iterator[Block]:
        item_indent = self._item_indent if len(fence[1]) >= min(self._item_indent or 0, 2) else None
        yield from self._flush()
        has_gap = bool(self._previous) and (self._is_after_blank or item_indent is None)
        self._item_indent, self._fence, self._fence_indent = item_indent, fence[2], item_indent or 0
        self._previous, self._is_after_blank = "code", False
        yield Block("code_start", fence[3], has_gap, self._fence_indent)

    def _add_code(self, line: str) -> Iterator[Block]:
        mark = line.strip()
        if mark.startswith(self._fence) and not mark.strip(self._fence[0]):
            self._fence = ""
            yield Block("code_end", "", indent=self._fence_indent)
        else:
            yield Block("code", self._dedent(line), indent=self._fence_indent)

    def _dedent(self, line: str) -> str:
        return line[min(_indent(line), self._fence_indent) :]

    def _flush(self) -> Iterator[Block]:
        """Yield the current block and begin another one."""
        if any(line.strip() for line in self._lines):
            block = self._block(self._lines, self._began_after_blank)
            self._previous = "heading" if _HEADING.match(block.text) else block.kind
            yield block
        self._lines, self._size, self._is_table = [], 0, False

    def _block(self, lines: list[str], is_after_blank: bool) -> Block:
        text = "\n".join(lines).rstrip("\n")
        item = _ITEM.match(text)
        indent = 0
        if not item and self._item_indent is not None and _indent(text) >= min(self._item_indent, 2):
            indent = self._item_indent
            text = "\n".join(line[min(_indent(line), indent) :] for line in lines).rstrip("\n")
        kind: Kind = "table" if self._is_table else "text"
        needs_gap = not indent and ("heading" in (self._previous, "heading" if _HEADING.match(text) else ""))
        has_gap = is_after_blank or needs_gap or (not indent and self._previous in ("code", "table"))
        return Block(kind, text, has_gap and bool(self._previous), indent)


class CodeBlock(LazyNamedTuple):
    """A code block of an answer."""

    language: str
    text: str


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the code blocks of Markdown, in order."""
    splitter, found = BlockSplitter(), list[CodeBlock]()
    for block in (*splitter.feed(text), *splitter.finish()):
        if block.kind == "code_start":
            found.append(CodeBlock(block.text, ""))
        elif block.kind == "code":
            found[-1] = found[-1]._replace(text=f"{found[-1].text}{block.text}\n")
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
