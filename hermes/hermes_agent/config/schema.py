"""The schema of the config: `schema.json`, and what it says about the key at a path.

The subset of JSON Schema 2020-12 that the file uses is `KEYWORDS`; our own annotations are `ANNOTATIONS`:

    x-unit      unit of the number, in words
    x-effect    "used", or the sentence why the key has no effect in this release; holds for all keys below
    x-protects  of a key without effect that asks for protection: a start "warn"s, or "refuse"s
    x-idle      values of a key without effect that ask for nothing, besides null and what is empty
    x-secret    whether the value is a secret; without it the key's name decides
    x-open      plugins keep keys of their own in this mapping
    x-what      what is expected, in words, where the type says too little
    x-text-is   a text in place of this mapping stands for the key named here
    x-false-is  YAML reads an unquoted `off` as false; this is the text that it stands for
    x-true-is   the same for `on` and true
    x-owner     the plugin that declares keys of this mapping
    x-absent    the mapping has no default: it is there only when the config has it

The last two stand only in what `extended` returns.

Functions with a `schema` take the whole schema, which may be one with options of plugins; None is `schema.json`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hermes_agent.config.keypath import KeyPath

__all__ = [
    "ANNOTATIONS",
    "KEYWORDS",
    "MISSING",
    "OPEN",
    "USED",
    "Node",
    "child",
    "default",
    "effect",
    "extended",
    "is_secret",
    "leaves",
    "load_schema",
    "lookup",
    "resolve",
    "types",
]

Node = Mapping[str, Any]
"""One schema: a JSON object."""

KEYWORDS = frozenset(
    {"$schema", "$defs", "$ref", "title", "description", "type", "default", "enum", "minimum", "maximum"}
    | {"minLength", "pattern", "items", "properties", "additionalProperties"}
)
ANNOTATIONS = frozenset(
    {
        "x-unit",
        "x-effect",
        "x-protects",
        "x-idle",
        "x-secret",
        "x-open",
        "x-what",
        "x-text-is",
        "x-false-is",
        "x-true-is",
    }
)

OPEN: Final[Node] = {}
"""The schema of a key that nothing declares, in a place where such keys are kept."""
MISSING: Final = object()
"""No default."""
USED = "used"


@functools.cache
def load_schema() -> dict[str, Any]:
    """Return the whole schema; nobody may change it."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_bytes())
    return loaded


def resolve(node: Node) -> Node:
    """Return `node` with its `$ref` replaced by what it points at; keywords beside the `$ref` win."""
    target = node.get("$ref")
    if target is None:
        return node
    shared = load_schema()["$defs"][target.removeprefix("#/$defs/")]
    own = {key: value for key, value in node.items() if key != "$ref"}
    properties = {**shared.get("properties", {}), **own.get("properties", {})}
    return {**shared, **own, "properties": properties}


def types(node: Node) -> tuple[str, ...]:
    """Return the JSON types that `node` allows; empty for `OPEN`."""
    kind = node.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


def child(node: Node, key: str | int) -> Node | None:
    """Return the schema of a key of a mapping or of an item of a list; None when it is refused."""
    if node is OPEN:
        return OPEN
    if isinstance(key, int):
        return resolve(node.get("items", OPEN)) if "array" in types(node) else None
    if "object" not in types(node):
        return None
    known = node.get("properties", {}).get(key)
    if known is not None:
        return resolve(known)
    other = node.get("additionalProperties", True)
    return resolve(other) if isinstance(other, dict) else OPEN if other else None


def extended(path: KeyPath, options: Mapping[str, Node], owner: str, schema: Node | None = None) -> Node:
    """Return a copy of the whole schema in which `owner` declares `options` in the mapping at `path`.

    A key that the mapping declares already keeps its own schema.
    """
    whole = load_schema() if schema is None else schema
    return _with_options(whole, path, options, owner)


def _with_options(node: Node, path: KeyPath, options: Mapping[str, Node], owner: str) -> dict[str, Any]:
    node = resolve(node)
    declared: Mapping[str, Any] = node.get("properties", {})
    if not path:
        mapping = node or {"type": "object", "additionalProperties": True}
        both = {key: {**options[key], **resolve(declared[key])} for key in options.keys() & declared.keys()}
        return {
            **mapping,
            "properties": {**options, **declared, **both},
            "x-open": True,
            "x-owner": owner,
            "x-absent": True,
        }
    name = str(path[0])
    below = child(node, name) or OPEN
    inner = _with_options(below, path[1:], options, owner)
    if name not in declared:
        inner = {**inner, "x-absent": True}
    return {**node, "properties": {**declared, name: inner}}


def lookup(path: KeyPath, schema: Node | None = None) -> Node | None:
    """Return the schema at `path`: `OPEN` for a plugin's own key, None for one that is refused."""
    node: Node | None = load_schema() if schema is None else schema
    for part in path:
        if node is None:
            return None
        node = child(node, part)
    return node


def effect(path: KeyPath) -> str:
    """Return `USED`, or the sentence why the key at `path` has no effect in this release."""
    node: Node | None = load_schema()
    said = USED
    for part in path:
        node = child(node, part) if node is not None else None
        said = (node or {}).get("x-effect", said)
    return said


def is_secret(path: KeyPath, schema: Node | None = None) -> bool:
    """Say whether a value at `path` is never shown: the schema says so, or a name on the way does."""
    from hermes_agent.core.redact import looks_like_secret_name  # only where values are shown

    node: Node | None = load_schema() if schema is None else schema
    secret = False
    for part in path:
        node = child(node, part) if node is not None else None
        said = (node or {}).get("x-secret")
        if said is not None:
            secret = bool(said)
        elif not (node and "description" in node) and isinstance(part, str):
            secret = secret or looks_like_secret_name(part)
    return secret


def default(node: Node) -> Any:
    """Return the default of `node`, that of a mapping from its keys; `MISSING` when there is none."""
    if "x-absent" in node:
        return MISSING
    if "default" in node:
        value = node["default"]
        return list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value
    if "object" not in types(node) or "properties" not in node:
        return {} if types(node) == ("object",) else MISSING
    filled = {key: default(resolve(sub)) for key, sub in node["properties"].items()}
    return {key: value for key, value in filled.items() if value is not MISSING}


def leaves(node: Node | None = None, path: KeyPath = ()) -> list[tuple[KeyPath, Node]]:
    """Return every declared key that is not a mapping of declared keys, `<name>` for a name of one's own."""
    node = resolve(load_schema() if node is None else node)
    found: list[tuple[KeyPath, Node]] = []
    for key, sub in node.get("properties", {}).items():
        found += leaves(sub, (*path, key))
    other = node.get("additionalProperties")
    if isinstance(other, dict):
        found += leaves(other, (*path, "<name>"))
    return found or [(path, node)]
