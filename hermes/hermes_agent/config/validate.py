"""Validate a value against the schema, without the `jsonschema` package (importing that costs 60 ms).

Understands exactly `schema.KEYWORDS`. A test compares the verdict with `jsonschema` on generated values. On top
of the schema comes one rule that JSON Schema cannot say: a key that nobody declares, in a place where plugins
keep theirs, is refused when it is a near miss of a declared one (`kind == "near_miss"`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.nearness import is_near_miss
from hermes_agent.config.schema import OPEN, Node, child, load_schema, resolve, types

__all__ = ["Violation", "has_type", "near_miss", "validate"]

Kind = Literal["type", "enum", "minimum", "maximum", "minLength", "pattern", "unknown", "near_miss"]


class Violation(NamedTuple):
    """One value that the schema refuses."""

    path: KeyPath
    kind: Kind
    node: Node
    """The schema that it breaks; for `unknown` and `near_miss` that of the mapping."""
    value: Any
    meant: str | None = None
    """The declared key that a `near_miss` is near to."""


def validate(value: object, node: Node | None = None, path: KeyPath = ()) -> list[Violation]:
    """Return everything that is wrong with `value`, in its own order.

    Args:
        node: its schema; None is the whole config's.
        path: where the value stands, for the violations' paths.
    """
    return list(_violations(value, load_schema() if node is None else node, path))


def near_miss(path: KeyPath) -> tuple[KeyPath, str] | None:
    """Return the path down to the first undeclared key, and the declared key that it is a near miss of, if any."""
    node: Node | None = load_schema()
    for index, part in enumerate(path):
        below = child(node, part) if node is not None else None
        if below is OPEN and node is not None:
            meant = _meant(str(part), None, node.get("properties", {}))
            return None if meant is None else (path[: index + 1], meant)
        node = below
    return None


def has_type(value: object, name: str) -> bool:
    """Say whether `value` is of the JSON type `name`; 2.0 is an integer, true is not."""
    match name:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return (isinstance(value, int) and not isinstance(value, bool)) or (
                isinstance(value, float) and value.is_integer()
            )


def _violations(value: object, node: Node, path: KeyPath) -> Iterator[Violation]:
    node = resolve(node)
    allowed = types(node)
    if allowed and not any(has_type(value, name) for name in allowed):
        yield Violation(path, "type", node, value)
        return
    if "enum" in node and not any(_is_same(value, choice) for choice in node["enum"]):
        yield Violation(path, "enum", node, value)
        return
    match value:
        case str():
            yield from _in_text(value, node, path)
        case bool():
            return
        case int() | float():
            yield from _in_number(value, node, path)
        case list():
            if "items" in node:
                for index, item in enumerate(value):
                    yield from _violations(item, node["items"], (*path, index))
        case dict():
            yield from _in_mapping(value, node, path)


def _is_same(left: object, right: object) -> bool:
    """Compare as JSON does: true is not 1, 1 is 1.0."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _in_text(value: str, node: Node, path: KeyPath) -> Iterator[Violation]:
    if len(value) < node.get("minLength", 0):
        yield Violation(path, "minLength", node, value)
    elif "pattern" in node and re.search(node["pattern"], value) is None:
        yield Violation(path, "pattern", node, value)


def _in_number(value: float, node: Node, path: KeyPath) -> Iterator[Violation]:
    if "minimum" in node and value < node["minimum"]:
        yield Violation(path, "minimum", node, value)
    elif "maximum" in node and value > node["maximum"]:
        yield Violation(path, "maximum", node, value)


def _in_mapping(value: Mapping[str, object], node: Node, path: KeyPath) -> Iterator[Violation]:
    declared = node.get("properties", {})
    other = node.get("additionalProperties", True)
    for key, item in value.items():
        if key in declared:
            yield from _violations(item, declared[key], (*path, key))
        elif other is False:
            yield Violation((*path, key), "unknown", node, item)
        elif isinstance(other, dict):
            yield from _violations(item, other, (*path, key))
        elif (meant := _meant(key, item, declared)) is not None:
            yield Violation((*path, key), "near_miss", node, item, meant)


def _meant(key: str, value: object, declared: Mapping[str, Node]) -> str | None:
    """Return the declared key that `key` is a near miss of."""
    for known, node in declared.items():
        if is_near_miss(key, known, looks_alike=_looks_like(value, resolve(node))):
            return known
    return None


def _looks_like(value: object, node: Node) -> bool:
    """Say whether a mapping has a key that the schema declares."""
    return isinstance(value, dict) and not value.keys().isdisjoint(node.get("properties", {}))
