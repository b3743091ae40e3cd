"""Say in plain words what the YAML parser stumbled over."""

from __future__ import annotations

import yaml

from hermes_agent.config.findings import Finding

__all__ = ["explain_syntax"]


def explain_syntax(error: yaml.YAMLError, text: str, name: str) -> Finding:
    """Return the finding for a text that does not parse, at the place where a person has to look."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        return Finding(name, line, column, "", f"the control character U+{code:04X} may not stand in a config")
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
    return Finding(name, line + 1, column + 1, "", sentence)


def _sentence(problem: str, context: str, current: str, column: int) -> tuple[str, bool]:
    """Return the sentence, and whether the place is where the construct began."""
    indent = current[: len(current) - len(current.lstrip())]
    character = current[column : column + 1]
    if "cannot start any token" in problem:
        if "\t" in indent or character == "\t":
            return "the line is indented with a tab; YAML wants spaces", False
        return f"a value cannot begin with `{character}`; put the text in quotes", False
    if "end of stream" in problem or "document indicator" in problem:
        return "the quote that begins here is never closed", True
    if "mapping values are not allowed" in problem:
        return _second_colon(current, column), False
    if "',' or ']'" in problem:
        return "the `[` that begins here is never closed, or a comma is missing", True
    if "',' or '}'" in problem:
        return "the `{` that begins here is never closed, or a comma is missing", True
    if "unknown escape character" in problem:
        return f"`\\{character}` is no escape inside double quotes; use single quotes", False
    if "expected '-' indicator" in problem:
        return "a list item was expected here; a key cannot follow list items at the same depth", False
    if "expected key" in problem:
        if character in ("'", '"') or current[:column].rstrip().endswith(("'", '"')):
            return "the quoted text ended before this place; quote the whole text, with the other kind of quotes", False
        return "this line is indented unlike the keys above it", False
    if "could not find expected ':'" in problem:
        return "a `:` is missing after the key that begins here", True
    return (f"is not YAML: {problem} ({context})" if context else f"is not YAML: {problem}"), False


def _second_colon(current: str, column: int) -> str:
    if ": " in current[:column]:
        return "a second `: ` in one line; put the text in quotes"
    return "this key is indented unlike the keys above it, or the line above lacks a `:`"
