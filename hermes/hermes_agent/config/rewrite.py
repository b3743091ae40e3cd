"""Candidate texts of a changed config file. Whoever takes one reads it back and compares before writing it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from hermes_agent.config.effective import dump
from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.schema import MISSING, lookup
from hermes_agent.config.yamlfile import read_text

__all__ = ["appended", "rewritten", "without_lines"]

_LIST_ITEM = re.compile(r"^( *)[^\s#][^\n]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ", re.MULTILINE)


def appended(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key as a new block at its end, which leaves every line of it as it is."""
    nested: Any = value
    for part in reversed(path):
        nested = {part: nested}
    separator = "" if not text or text.endswith("\n") else "\n"
    yield text + separator + dump(nested)


def without_lines(text: str, line: int) -> Iterator[str]:
    """Yield `text` without the key that begins in `line` (from 1), taking ever more of the lines that follow."""
    lines = text.splitlines(keepends=True)
    for end in range(line, len(lines) + 1):
        yield "".join(lines[: line - 1] + lines[end:])


def rewritten(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield `text` with the key set (`MISSING`: removed), comments and order kept."""
    # ruamel.yaml costs 100 ms to import and is needed for nothing but this
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = 100_000
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
        here[path[-1]] = _in_style(value, here.get(path[-1]))
    buffer = io.StringIO()
    editor.dump(root, buffer)
    yield buffer.getvalue()


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
        return CommentedMap((key, _in_style(item, None)) for key, item in value.items())
    return value


def _reads_back(text: str) -> bool:
    """Say whether `text` without quotes is the same text for a YAML 1.1 reader too."""
    return read_text(f"k: {text}\n", "").value == {"k": text} and "\n" not in text
