"""Validation of values against the schema, and the sentences about violations.

It supports the keywords that `schema.json` uses, without the `jsonschema` package, which takes 60 ms to import. A test
compares its results with `jsonschema` on generated values. JSON Schema cannot express one more rule: an undeclared
key, in a place where plugins keep theirs, is rejected if it is a near miss of a declared one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hermes_agent.config.schema import (
    OPEN,
    KeyPath,
    Node,
    child,
    has_variable,
    is_secret,
    leaves,
    load_schema,
    render_path,
    resolve,
    types,
    variables,
)
from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.secrecy import MASK
from hermes_agent.core.text import is_near_miss, nearest_name, shorten

Kind = Literal["type", "enum", "minimum", "maximum", "minLength", "pattern", "unknown", "near_miss"]


class Violation(LazyNamedTuple):
    """A value that the schema rejects."""

    path: KeyPath
    kind: Kind
    node: Node
    """The violated schema; for `unknown` and `near_miss` that of the mapping."""
    value: Any
    meant: str | None = None
    """The declared key that a `near_miss` resembles."""


def validate(value: object, node: Node | None = None, path: KeyPath = ()) -> list[Violation]:
    """Return all violations in `value`, in its own order.

    Args:
        node: its schema; None is that of the whole config.
        path: path of the value, for the violations.
    """
    return list(_violations(value, load_schema() if node is None else node, path))


def near_miss(path: KeyPath) -> tuple[KeyPath, str] | None:
    """Return the path down to the first undeclared key, and the declared key that it resembles, if any."""
    node: Node | None = load_schema()
    for index, part in enumerate(path):
        below = child(node, part) if node is not None else None
        if below is OPEN and node is not None:
            meant = _meant(str(part), None, node.get("properties", {}))
            return None if meant is None else (path[: index + 1], meant)
        node = below
    return None


def has_type(value: object, name: str) -> bool:
    """Return whether `value` has the JSON type `name`; 2.0 is an integer, true is not."""
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
    """Return whether a mapping has a key that the schema declares."""
    return isinstance(value, dict) and not value.keys().isdisjoint(node.get("properties", {}))


LONGEST_QUOTE = 60
"""Characters of a rejected text that are shown."""

_IN_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
}


def describe_violation(violation: Violation, document: ConfigDocument, schema: Node | None = None) -> ConfigFinding:
    """Return the finding for a violation in `document`.

    Args:
        schema: the whole schema; None is `schema.json`.
    """
    path = violation.path
    spot = document.position(path)
    if violation.kind in ("unknown", "near_miss"):
        message = describe_unknown(path, violation.node, violation.meant)
    else:
        written = document.raw_value(path)
        value = violation.value if written is None else written
        message = f"{render_path(path)}: {_wrong_value(violation, value, document.token(path), schema)}"
    from hermes_agent.core.redaction import redactor  # only for errors

    return ConfigFinding(
        document.name, spot.line if spot else None, spot.column if spot else None, render_path(path), redactor(message)
    )


def describe_unknown(path: KeyPath, parent: Node, meant: str | None = None) -> str:
    """Return the sentence about an unknown key at `path`; `parent` is the schema of its mapping."""
    name = str(path[-1])
    message = f"unknown key `{render_path(path)}`"
    if meant is not None:
        return f"{message} (did you mean `{render_path((*path[:-1], meant))}`?)"
    near = nearest_name(name, parent.get("properties", {}))
    if near is not None:
        return f"{message} (did you mean `{render_path((*path[:-1], near))}`?)"
    elsewhere = [other for other, _ in leaves() if other[-1] == name and "<name>" not in other]
    if len(elsewhere) == 1:
        return f"{message} (did you mean `{render_path(elsewhere[0])}`?)"
    known = list(parent.get("properties", {}))
    if known and len(known) <= 8:
        return f"{message}; known here: {', '.join(known)}"
    return message


def _wrong_value(violation: Violation, value: Any, token: str, schema: Node | None) -> str:
    node, path = violation.node, violation.path
    secret = is_secret(path, schema)
    got = _describe(value, token, secret=secret)
    if violation.kind == "type":
        hint = (
            "; a variable always gives text"
            if has_variable(value)
            else _what_to_write(node, path, value, secret=secret)
        )
        return f"expected {_expected(node)}, got {got}{hint}"
    got += _about_variables(value, violation.value)
    if violation.kind == "enum":
        choices = [choice for choice in node["enum"] if isinstance(choice, str) and choice]
        near = nearest_name(value, choices) if isinstance(value, str) and not secret else None
        suggestion = f" (did you mean `{near}`?)" if near else ""
        return f"expected one of {', '.join(f'`{choice}`' for choice in choices)}, got {got}{suggestion}"
    if violation.kind in ("minimum", "maximum"):
        return f"expected {_IN_WORDS[_number_type(node)]} {_range(node)}{_unit(node)}, got {got}"
    return f"expected {_expected(node)}, got {got}"


def _expected(node: Node) -> str:
    words = node.get("x-what") or " or ".join(_IN_WORDS[name] for name in types(node))
    return f"{words}{_unit(node)}"


def _unit(node: Node) -> str:
    return f" ({node['x-unit']})" if "x-unit" in node else ""


def _number_type(node: Node) -> str:
    return "integer" if "integer" in types(node) else "number"


def _range(node: Node) -> str:
    if "maximum" not in node:
        return f"of at least {node['minimum']}"
    if "minimum" not in node:
        return f"of at most {node['maximum']}"
    return f"from {node['minimum']} to {node['maximum']}"


def _about_variables(written: Any, expanded: Any) -> str:
    """Return the part of the sentence about variables in a rejected text; their values are not shown."""
    if not isinstance(written, str) or not (names := variables(written)):
        return ""
    unset = [name for name in names if isinstance(expanded, str) and f"${{{name}}}" in expanded]
    return f" (the variable {unset[0]} is not set)" if unset else f" (what {names[0]} holds does not fit)"


def _describe(value: Any, token: str, *, secret: bool) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            word = "true" if value else "false"
            return word if token.lower() in ("", word) else f"{word} (YAML reads an unquoted `{token}` as {word})"
        case int() | float():
            kind = "integer" if isinstance(value, int) else "number"
            return f"a number ({MASK})" if secret else f"the {kind} {value}"
        case str():
            return f"a text ({MASK})" if secret else f"the text {_quoted(value)}"
        case _:
            return f"a date (YAML reads an unquoted `{token}` as one)"


def _quoted(text: str) -> str:
    return json.dumps(shorten(text, LONGEST_QUOTE), ensure_ascii=False)


def _what_to_write(node: Node, path: KeyPath, value: Any, *, secret: bool) -> str:
    """Return `; write  key: value` if the right form of the value is known."""
    key, allowed = path[-1] if path else "", types(node)
    if value is None:
        return "; write a value or remove the line"
    if not isinstance(key, str) or secret:
        return ""
    plain = value if isinstance(value, str) else None
    if allowed == ("array",) and (plain is not None or isinstance(value, int | float)):
        item = _as_item(plain) if plain is not None else json.dumps(value)
        takes_text = "string" in types(child(node, 0) or load_schema())
        return f"; write  {key}: [{item}]" if takes_text else ""
    if plain is not None and allowed and set(allowed) <= {"integer", "number", "null"} and _is_number(plain, allowed):
        return f"; write  {key}: {plain.strip()}"
    if plain is not None and "boolean" in allowed and plain.lower() in ("true", "false", "yes", "no", "on", "off"):
        return f"; write  {key}: {'true' if plain.lower() in ('true', 'yes', 'on') else 'false'}"
    if "string" in allowed and isinstance(value, int | float) and not isinstance(value, bool):
        return f'; write  {key}: "{value}"'
    return ""


def _as_item(text: str) -> str:
    """Return the text as an item of `[…]`; separators of names become commas."""
    names = text.replace(",", " ").split()
    simple = all(name.replace("-", "").replace("_", "").replace("/", "").isalnum() for name in names)
    return ", ".join(names) if names and simple else json.dumps(text, ensure_ascii=False)


def _is_number(text: str, allowed: tuple[str, ...]) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return "number" in allowed or number.is_integer()
