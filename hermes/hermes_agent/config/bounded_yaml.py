"""A YAML reader for untrusted files, with limits on size, depth and aliases.

PyYAML's C composer recurses for each level, and ends the process with a segmentation fault at about ten thousand
levels. So the depth is measured on the events first, without recursion.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from typing import Any

import yaml

from hermes_agent.core.lazy_types import LazyNamedTuple

MAX_BYTES = 64 * 1024
MAX_DEPTH = 60
MAX_NODES = 20_000
"""Nodes after every alias is followed; a "billion laughs" file has 10**9."""
MANY_BRACKETS = 100
NULL = "tag:yaml.org,2002:null"
LONG_TEXT = 8 * 1024
"""Each level of block nesting needs one more column, so a text of this size cannot be too deep."""

Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlRejected(Exception):
    """A YAML file that is not used, with the reason.

    Args:
        line: counted from 1; 0 for the whole file.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message, self.line = message, line


class BoundedDocument(LazyNamedTuple):
    """The mapping in a file."""

    values: dict[str, Any]
    """The requested top-level keys as plain Python values."""
    scalars: dict[str, str]
    """Top-level keys with a scalar value other than null, as written: `1.10` stays `1.10`."""
    lines: dict[str, int]
    """Line of each top-level key, from 1."""


def read_yaml(path: str, wanted: Collection[str]) -> BoundedDocument:
    """Read the mapping in the file at `path`; an empty file is an empty mapping.

    Args:
        wanted: top-level keys to build; the others are only checked.

    Raises:
        YamlRejected: the file is too large, too deep, grows by aliases, or is no YAML mapping.
        OSError: the file cannot be read.
    """
    return parse_yaml(_text(path), wanted)


def parse_yaml(text: str, wanted: Collection[str]) -> BoundedDocument:
    """Read the mapping in `text`, as `read_yaml`; the caller limits the length.

    Raises:
        YamlRejected: as `read_yaml`.
    """
    try:
        _check_depth(text)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if node is None or node.tag == NULL:
                return BoundedDocument({}, {}, {})
            if not isinstance(node, yaml.MappingNode):
                given = "list" if isinstance(node, yaml.SequenceNode) else "str"
                raise YamlRejected(f"top level must be a mapping, got {given}", 1)
            if "*" in text:  # without aliases the values are no larger than the text
                _measure(node, {})
            loader.flatten_mapping(node)
            return _document(loader, node, wanted)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        raise YamlRejected(exc.problem or str(exc), mark.line + 1 if mark else 0) from exc
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        # ValueError: a scalar that looks like a date and is none (`2024-13-45`)
        raise YamlRejected(" ".join(str(exc).split())) from exc


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not block the start
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise YamlRejected("is not a regular file")
        if info.st_size > MAX_BYTES:
            raise YamlRejected(f"has {info.st_size} bytes: at most {MAX_BYTES} are read")
        data = os.read(fd, MAX_BYTES)
    finally:
        os.close(fd)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise YamlRejected(f"is not UTF-8: {exc.reason}", data[: exc.start].count(b"\n") + 1) from exc


def _check_depth(text: str) -> None:
    brackets = text.count("[") + text.count("{") + text.count("- ") + text.count("? ")
    if brackets <= MANY_BRACKETS and len(text) <= LONG_TEXT:
        return
    depth = 0
    loader = Loader(text)
    try:
        while loader.check_event():
            event = loader.get_event()
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    mark = event.start_mark
                    raise YamlRejected(f"is nested more than {MAX_DEPTH} deep", mark.line + 1 if mark else 0)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    finally:
        loader.dispose()


def _measure(node: Any, known: dict[int, int]) -> int:
    """Return the number of nodes under `node` with every alias followed.

    An anchor precedes its aliases, so a shared node is measured before its alias. The recursion is as deep as the text,
    not as the aliases.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    mark = id(node)
    if mark in known:
        if known[mark] == 0:
            raise YamlRejected("has an alias inside its own anchor", node.start_mark.line + 1)
        return known[mark]
    known[mark] = 0
    pairs = isinstance(node, yaml.MappingNode)
    children = [part for pair in node.value for part in pair] if pairs else node.value
    total = 1 + sum(_measure(child, known) for child in children)
    if total > MAX_NODES:
        raise YamlRejected(f"grows to more than {MAX_NODES} nodes by its aliases", node.start_mark.line + 1)
    known[mark] = total
    return total


def _document(loader: Any, node: Any, wanted: Collection[str]) -> BoundedDocument:
    document = BoundedDocument({}, {}, {})
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        name = key.value
        document.lines[name] = key.start_mark.line + 1
        document.scalars.pop(name, None)
        if isinstance(value, yaml.ScalarNode) and value.tag != NULL:
            document.scalars[name] = value.value
        if name in wanted:
            document.values[name] = loader.construct_object(value, deep=True)
    return document
