"""Candidate texts of a changed config file. Whoever takes one reads it back and compares before writing it."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from hermes_agent.config.document import ConfigDocument, Position
from hermes_agent.config.effective import dump_yaml
from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.schema import MISSING, lookup
from hermes_agent.config.values import find_value
from hermes_agent.config.yamlfile import read_text

__all__ = ["MOST_CANDIDATES", "append_key", "insert_key", "replace_key", "edited_text", "remove_lines"]

MOST_CANDIDATES = 400
"""Lines that a value may have; each more costs a reading of the file."""
_WIDE = 100_000

_LIST_ITEM = re.compile(r"^( *)[^\s#][^\n]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", re.MULTILINE)


def append_key(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key as a new block at its end."""
    yield _with_end(text) + dump_yaml(_nested(path, value), width=_WIDE)


def insert_key(text: str, document: ConfigDocument, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key after the last one of the mapping it belongs to, ever further down."""
    depth = next(d for d in range(len(path), -1, -1) if isinstance(find_value(document.value, path[:d]), dict))
    siblings = document.keys.get(id(find_value(document.value, path[:depth])), {}).values()
    if not siblings:
        return
    last = max(siblings, key=lambda spot: spot.line)
    block = _block(_with_end(text), last, _nested(path[depth:], value))
    if block is None:
        return
    lines = _with_end(text).splitlines(keepends=True)
    for end in range(last.line, min(len(lines), last.line + MOST_CANDIDATES) + 1):
        yield "".join([*lines[:end], block, *lines[end:]])


def replace_key(text: str, document: ConfigDocument, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the lines of the key at `path` written anew, ever more of those that follow."""
    spot = document.position(path)
    if spot is None or (block := _block(text, spot, {path[-1]: value})) is None:
        return
    lines = text.splitlines(keepends=True)
    for end in range(spot.line, min(len(lines), spot.line + MOST_CANDIDATES) + 1):
        yield "".join([*lines[: spot.line - 1], block, *lines[end:]])


def remove_lines(text: str, line: int) -> Iterator[str]:
    """Yield `text` without the key that begins in `line` (from 1), taking ever more of the lines that follow."""
    lines = text.splitlines(keepends=True)
    for end in range(line, min(len(lines), line + MOST_CANDIDATES) + 1):
        yield "".join(lines[: line - 1] + lines[end:])


def _nested(path: KeyPath, value: Any) -> Any:
    for part in reversed(path):
        value = {part: value}
    return value


def _with_end(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _block(text: str, spot: Position, mapping: Any) -> str | None:
    """Return `mapping` as lines that are indented like the key at `spot`; None when that does not begin its line."""
    before = text.splitlines()[spot.line - 1][: spot.column - 1]
    return textwrap.indent(dump_yaml(mapping, width=_WIDE), before) if not before.strip() else None


def edited_text(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key set (`MISSING`: removed) by an editor that keeps comments and order."""
    # ruamel.yaml costs 100 ms to import and is needed for nothing but this
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = _WIDE
    editor.explicit_start = text.startswith("---")
    editor.indent(mapping=2, sequence=2 + _list_offset(text), offset=_list_offset(text))
    try:
        root = editor.load(text)
    except YAMLError:
        return
    here = root if root is not None else CommentedMap()
    root = here
    for depth, part in enumerate(path[:-1], 1):
        below = here.get(part)
        if not isinstance(below, CommentedMap):
            below = _spelled_out(path[:depth], below)
            here[part] = below
        here = below
    if value is MISSING:
        del here[path[-1]]
    else:
        key = path[-1] if path[-1] in here else _in_style(path[-1], None)
        here[key] = _in_style(value, here.get(path[-1]))
    buffer = io.StringIO()
    editor.dump(root, buffer)
    # comments below a value go with it when it is replaced
    if _comments(text) == _comments(buffer.getvalue()):
        yield buffer.getvalue()


def _comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _spelled_out(path: KeyPath, value: Any) -> Any:
    """Return a mapping for a value that stands for one (`model: name`), or an empty one."""
    from ruamel.yaml.comments import CommentedMap

    spelled = CommentedMap()
    node = lookup(path) or {}
    if isinstance(value, str) and "x-text-is" in node:
        spelled[node["x-text-is"]] = value
    return spelled


def _list_offset(text: str) -> int:
    """Return how far the lists of the file are indented below their key: that of the first one, else 2."""
    match = _LIST_ITEM.search(text)
    return max(0, len(match[2]) - len(match[1])) if match else 2


def _in_style(value: Any, before: Any) -> Any:
    """Return `value` for ruamel, written like the value it replaces where that is possible."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString

    if isinstance(value, str):
        if isinstance(before, ScalarString) and "\n" not in value and "\n" not in before:
            return type(before)(value)
        return value if _reads_back(value) else DoubleQuotedScalarString(value)
    if isinstance(value, list):
        sequence = CommentedSeq(_in_style(item, None) for item in value)
        if not isinstance(before, CommentedSeq) or before.fa.flow_style():
            sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, dict):
        return CommentedMap((_in_style(key, None), _in_style(item, None)) for key, item in value.items())
    return value


def _reads_back(text: str) -> bool:
    """Say whether `text` without quotes is the same text for a YAML 1.1 reader too, as a value and as a key."""
    return "\n" not in text and read_text(f"k: {text}\n{text}: 1\n", "").value == {"k": text, text: 1}
