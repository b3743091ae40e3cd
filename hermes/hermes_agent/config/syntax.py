"""Say in plain words what the YAML parser stumbled over."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from hermes_agent.config.findings import ConfigFinding

__all__ = ["describe_syntax_error"]


def describe_syntax_error(error: yaml.YAMLError, text: str, name: str) -> ConfigFinding:
    """Return the finding for a text that does not parse, at the place where a person has to look."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return ConfigFinding(name, line, column, "", f"the control character U+{code:04X} may not stand in a config")
    problem = str(getattr(error, "problem", None) or error)
    context = str(getattr(error, "context", None) or "")
    mark, context_mark = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    lines = text.splitlines()
    mark = mark or context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    current = lines[line] if line < len(lines) else ""
    sentence, at_context = _sentence(problem, context, current, column)
    if at_context and context_mark is not None:
        line, column = context_mark.line, context_mark.column
    return ConfigFinding(name, line + 1, column + 1, "", sentence)


def _sentence(problem: str, context: str, current: str, column: int) -> tuple[str, bool]:
    """Return the sentence, and whether the place is where the construct began."""
    for part, sentence, at_context in _FIXED:
        if part in problem:
            return sentence, at_context
    for part, compose in _COMPOSED:
        if part in problem:
            return compose(current, column), False
    return (f"is not YAML: {problem} ({context})" if context else f"is not YAML: {problem}"), False


_TAB = "the line is indented with a tab; YAML wants spaces"

_FIXED = (
    ("tab character", _TAB, False),
    ("end of stream", "the quote that begins here is never closed", True),
    ("document indicator", "the quote that begins here is never closed", True),
    ("',' or ']'", "the `[` that begins here is never closed, or a comma is missing", True),
    ("',' or '}'", "the `{` that begins here is never closed, or a comma is missing", True),
    ("expected '-'", "a list item was expected here; a key cannot follow list items at the same depth", False),
    ("could not find expected ':'", "a `:` is missing after the key that begins here", True),
    ("expected <document start>", "this line stands outside of the mapping that ended above it", False),
    ("expected node content", "a value was expected here; a bracket above it may never be closed", False),
    ("incompatible YAML", "the `%YAML` line asks for a version of YAML that is not read; remove it", False),
)
"""Part of the parser's words, our sentence, and whether the place is where the construct began."""


def _cannot_start(current: str, column: int) -> str:
    indent = current[: len(current) - len(current.lstrip())]
    character = current[column : column + 1]
    if "\t" in indent or character == "\t":
        return _TAB
    return f'a value cannot begin with "{character}"; put the text in quotes'


def _escape(current: str, column: int) -> str:
    return f"`{current[column : column + 2]}` is no escape inside double quotes; use single quotes"


def _no_key(current: str, column: int) -> str:
    character = current[column : column + 1]
    if character in ("'", '"') or current[:column].rstrip().endswith(("'", '"')):
        return "the quoted text ended before this place; quote the whole text, with the other kind of quotes"
    if character == ":":
        return "a key is missing before the `:`"
    return "this line is indented unlike the keys above it"


def _second_colon(current: str, column: int) -> str:
    if ": " in current[:column]:
        return "a second `: ` in one line; put the text in quotes"
    return "this key is indented unlike the keys above it, or the line above lacks a `:`"


_COMPOSED: tuple[tuple[str, Callable[[str, int], str]], ...] = (
    ("cannot start any token", _cannot_start),
    ("mapping values are not allowed", _second_colon),
    ("unknown escape character", _escape),
    ("expected key", _no_key),
)
"""Part of the parser's words, and who composes the sentence from the line and the column (from 0)."""
