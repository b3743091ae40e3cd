"""A builder of documents from the events of the YAML parser, and the sentences about syntax errors.

It has its own stack, so that nesting costs no recursion, aliases cannot multiply, and duplicate keys are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import yaml

from hermes_agent.config.schema import render_path
from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding, Position


def describe_syntax_error(error: yaml.YAMLError, text: str, name: str) -> ConfigFinding:
    """Return the finding for a text that cannot be parsed, at the position that the user has to correct."""
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
    """Return the sentence, and whether the position is where the construct began."""
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
"""A part of the parser's message, the sentence for it, and whether the position is where the construct began."""


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
"""A part of the parser's message, and the function that makes the sentence from line and column (from 0)."""


MAX_DEPTH = 64
"""Levels of mappings and lists."""
MAX_VALUES = 100_000
"""Keys and values after aliases are followed."""

_CORE = "tag:yaml.org,2002:"
_MERGE = _CORE + "merge"
_SCALARS = {_CORE + name for name in ("null", "bool", "int", "float", "timestamp", "str")}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Frame:
    """An open mapping or list."""

    __slots__ = ("container", "drops_value", "is_key", "is_merge", "key", "key_spot", "merges", "size")

    def __init__(self, container: dict[str, Any] | list[Any], *, is_key: bool = False) -> None:
        self.container = container
        self.size = 1
        self.key: str | None = None
        self.key_spot: Position | None = None
        self.is_merge = False
        self.merges: list[Any] = []
        self.is_key = is_key
        """It stands in place of a key, so it is dropped."""
        self.drops_value = False
        """Its key was rejected, so the value is dropped."""


class _Stop(Exception):
    """Raised if the rest of the file is not worth reading."""


class ValueBuilder:
    """Builds the value of a document from the events of the parser."""

    def __init__(self, document: ConfigDocument) -> None:
        self.document = document
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.total = 0
        self.root: Any = None
        self.has_root = False

    def build(self, text: str) -> None:
        """Fill the document; errors become its findings."""
        loader = None
        try:
            loader = _Loader(text)
            self._read(loader)
        except yaml.YAMLError as error:
            self.document.findings.append(describe_syntax_error(error, text, self.document.name))
        except _Stop:
            return
        finally:
            if loader is not None:
                loader.dispose()
        self._finish()

    def _finish(self) -> None:
        if isinstance(self.root, dict):
            self.document.value = self.root
        elif self.root is not None and not self.document.findings:
            got = "a list" if isinstance(self.root, list) else "a single value"
            self._add_finding(Position(1, 1), f"expected a mapping of keys like `model:` at the top, got {got}")

    def _read(self, loader: Any) -> None:
        documents = 0
        while loader.check_event():
            event = loader.get_event()
            match type(event).__name__:
                case "DocumentStartEvent":
                    documents += 1
                    if documents > 1:
                        self._add_finding(
                            _position_of(event), "a second document begins here; a config is a single one"
                        )
                        return
                case "ScalarEvent":
                    self._scalar(event, loader)
                case "MappingStartEvent":
                    self._open(event, {})
                case "SequenceStartEvent":
                    self._open(event, [])
                case "MappingEndEvent" | "SequenceEndEvent":
                    self._close()
                case "AliasEvent":
                    self._alias(event)

    def _add_finding(self, spot: Position, message: str, key: str = "") -> None:
        self.document.findings.append(ConfigFinding(self.document.name, spot.line, spot.column, key, message))

    def _refuse(self, spot: Position, message: str) -> None:
        self._add_finding(spot, message)
        raise _Stop

    def _path(self, *more: str) -> str:
        """Return the path of the key in progress."""
        parts: list[str | int] = []
        for frame in self.stack:
            if isinstance(frame.container, list):
                parts.append(len(frame.container))
            elif frame.key is not None:
                parts.append(frame.key)
        return render_path((*parts, *more))

    # values

    def _scalar(self, event: Any, loader: Any) -> None:
        spot = _position_of(event)
        self._count(1 + len(event.value) // 100, spot)
        tag = event.tag
        if tag is None or tag == "!":
            tag = _CORE + "str"
            if event.implicit[0]:
                tag = loader.resolve(yaml.ScalarNode, event.value, (True, False))
        if self._is_key_next():
            self._key(event.value, tag, spot)
            return
        value = event.value if tag == _CORE + "str" else self._construct(tag, event, loader, spot)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        self._add(value, 1, spot)

    def _construct(self, tag: str, event: Any, loader: Any, spot: Position) -> Any:
        if tag not in _SCALARS:
            if event.implicit[0]:  # `=` and `<<` as values are plain texts
                return event.value
            self._add_finding(spot, f"{self._path()}: the tag `{_short(tag)}` is not allowed", self._path())
            return None
        node = yaml.ScalarNode(tag, event.value)
        try:
            value = loader.yaml_constructors[tag](loader, node)
        except (ValueError, KeyError, yaml.YAMLError):
            self._add_finding(
                spot, f"{self._path()}: this is no {_short(tag)}; quote it if a text is meant", self._path()
            )
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._add_finding(spot, f"{self._path()}: `.inf` and `.nan` are no values of a setting", self._path())
            return None
        return value

    def _open(self, event: Any, container: Any) -> None:
        spot = _position_of(event)
        if event.tag is not None and event.tag not in ("!", _CORE + "map", _CORE + "seq"):
            self._add_finding(spot, f"{self._path()}: the tag `{_short(event.tag)}` is not allowed", self._path())
        if len(self.stack) >= MAX_DEPTH:
            self._refuse(spot, f"is nested more than {MAX_DEPTH} levels deep, which no config is")
        self._count(1, spot)
        frame = _Frame(container)
        if self._is_key_next():
            outer = self._path()
            where = f"{outer}: " if outer else ""
            self._add_finding(
                spot, f"{where}a list or a mapping cannot be a key; quote `{{{{ … }}}}` if a text is meant", outer
            )
            frame.is_key = True
        if event.anchor is not None:
            self.anchors[event.anchor] = container
        self.document.keys[id(container)] = {}
        self.document.scalars[id(container)] = {}
        self.stack.append(frame)

    def _close(self) -> None:
        frame = self.stack.pop()
        for source in frame.merges:
            self._merge(frame.container, source)
        self.sizes[id(frame.container)] = frame.size
        if frame.is_key:
            self.stack[-1].key, self.stack[-1].drops_value = "", True
            return
        self._add(frame.container, frame.size, None)

    def _alias(self, event: Any) -> None:
        spot = _position_of(event)
        if event.anchor not in self.anchors:
            self._refuse(
                spot, f"the alias `*{event.anchor}` names nothing above it; quote the text if no alias is meant"
            )
        value = self.anchors[event.anchor]
        if any(frame.container is value for frame in self.stack):
            self._refuse(spot, f"the alias `*{event.anchor}` stands inside of what it names")
        size = self.sizes.get(id(value), 1)
        self._count(size, spot)
        if self._is_key_next():
            self._key(
                value if isinstance(value, str) else "", _CORE + "str" if isinstance(value, str) else "alias", spot
            )
            return
        self._add(value, size, spot)

    def _count(self, size: int, spot: Position) -> None:
        self.total += size
        if self.total > MAX_VALUES:
            self._refuse(spot, f"holds more than {MAX_VALUES} values once aliases are followed")

    # keys

    def _is_key_next(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].container, dict) and self.stack[-1].key is None

    def _key(self, text: str, tag: str, spot: Position) -> None:
        frame = self.stack[-1]
        assert isinstance(frame.container, dict)
        frame.key, frame.key_spot, frame.is_merge = text, spot, tag == _MERGE
        if frame.is_merge:
            return
        outer = render_path(tuple(f.key for f in self.stack[:-1] if f.key is not None))
        where = f"{outer}: " if outer else ""
        if tag not in (_CORE + "str", _CORE + "value"):
            self._add_finding(spot, where + _not_text(text, tag), outer)
            frame.drops_value = True
        elif text in frame.container:
            first = self.document.keys[id(frame.container)][text].line
            path = self._path()
            self._add_finding(spot, f"{path}: is here a second time, first in line {first}; keep one", path)

    def _add(self, value: Any, size: int, spot: Position | None) -> None:
        if not self.stack:
            self.root, self.has_root = value, True
            return
        frame = self.stack[-1]
        frame.size += size
        if frame.drops_value:
            frame.key, frame.drops_value = None, False
            return
        place: str | int
        if isinstance(frame.container, list):
            place = len(frame.container)
            frame.container.append(value)
            key_spot = spot or self._first_inside(value)
        else:
            assert frame.key is not None
            place, key_spot = frame.key, frame.key_spot
            frame.key = None
            if frame.is_merge:
                self._plan_merge(frame, value, key_spot)
                return
            if place not in frame.container:
                frame.container[place] = value
        if key_spot is not None:
            self.document.keys[id(frame.container)].setdefault(place, key_spot)
        if spot is not None or key_spot is not None:
            self.document.scalars[id(frame.container)].setdefault(place, spot or key_spot or Position(1, 1))

    def _first_inside(self, value: Any) -> Position | None:
        return next(iter(self.document.keys.get(id(value), {}).values()), None)

    def _plan_merge(self, frame: _Frame, value: Any, spot: Position | None) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self._add_finding(spot or Position(1, 1), "`<<` takes an alias of a mapping, or a list of such")
            return
        frame.merges += sources

    def _merge(self, container: Any, source: dict[str, Any]) -> None:
        for spots in (self.document.keys, self.document.scalars):
            mine = spots[id(container)]
            for key, spot in spots[id(source)].items():
                if key not in container:
                    mine[key] = spot
        for key, value in source.items():
            container.setdefault(key, value)


def _position_of(event: Any) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1, getattr(event, "value", "") or "")


def _short(tag: str) -> str:
    return tag.replace(_CORE, "!!") if tag.startswith(_CORE) else tag


def _not_text(text: str, tag: str) -> str:
    kind = tag.removeprefix(_CORE)
    if kind == "bool":
        meaning = "true" if text.lower() in ("yes", "on", "true") else "false"
        return f'the key `{text}` is read as {meaning}; write it in quotes: "{text}":'
    if kind == "null":
        return f"the key `{text}` is read as null; a key is a text" if text else "a key is missing before the `:`"
    if kind in ("int", "float", "timestamp"):
        what = "a date" if kind == "timestamp" else "a number"
        return f'the key `{text}` is read as {what}; write it in quotes: "{text}":'
    return "a key must be a text"
