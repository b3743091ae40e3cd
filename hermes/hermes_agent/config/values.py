"""Pure operations on config values: walk, merge, expand, normalise, fill in defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from hermes_agent.config.keypath import KeyPath
from hermes_agent.config.schema import MISSING, OPEN, Node, child, default, load_schema, resolve, types

__all__ = [
    "expand",
    "fill_defaults",
    "find_value",
    "has_variable",
    "merge",
    "nested",
    "normalise",
    "variables",
    "walk",
    "expand_shorthand",
]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def walk(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value below `value` that is not a mapping or list with something in it, with its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))
    else:
        yield path, value


def find_value(value: Any, path: KeyPath) -> Any:
    """Return the value at `path`; `MISSING` when there is none."""
    for part in path:
        if isinstance(part, int):
            if not isinstance(value, list) or part >= len(value):
                return MISSING
        elif not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def nested(path: KeyPath, value: Any) -> Any:
    """Return the mapping of mappings in which `value` stands at `path`."""
    for part in reversed(path):
        value = {part: value}
    return value


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return both mappings as one: mappings are merged key by key, anything else of `over` replaces."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def has_variable(text: object) -> bool:
    """Say whether a text refers to a variable as `${NAME}`."""
    return isinstance(text, str) and _VARIABLE.search(text) is not None


def variables(text: str) -> list[str]:
    """Return the names that `text` refers to."""
    return _VARIABLE.findall(text)


def expand(value: Any, look_up: Callable[[str], str | None]) -> Any:
    """Return `value` with `${NAME}` in texts replaced; a variable that is not set stays as written."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda m: m[0] if (v := look_up(m[1])) is None else v, value) if "${" in value else value
    if isinstance(value, dict):
        return {key: expand(item, look_up) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, look_up) for item in value]
    return value


def expand_shorthand(value: Any, node: Node) -> Any:
    """Return the text that true or false stands for at this key; the value itself where it stands for none."""
    return node.get("x-true-is" if value else "x-false-is", value) if isinstance(value, bool) else value


def normalise(value: Any, node: Node | None = None) -> Any:
    """Return a valid `value` with each shorthand written out (`x-text-is`, `x-false-is`, `x-true-is`, 90.0 for 90)."""
    node = resolve(load_schema() if node is None else node)
    if node is OPEN:
        return value
    if isinstance(value, bool):
        return expand_shorthand(value, node)
    if isinstance(value, str) and "x-text-is" in node:
        return {node["x-text-is"]: value}
    if isinstance(value, float) and "integer" in types(node) and "number" not in types(node):
        return int(value)
    if isinstance(value, dict):
        return {key: normalise(item, child(node, key) or OPEN) for key, item in value.items()}
    if isinstance(value, list):
        return [normalise(item, child(node, index) or OPEN) for index, item in enumerate(value)]
    return value


def fill_defaults(value: Any, node: Node | None = None) -> Any:
    """Return a normalised `value` with the defaults of every declared key that is not there."""
    node = resolve(load_schema() if node is None else node)
    if not isinstance(value, dict) or node is OPEN:
        return value
    filled = {key: fill_defaults(item, child(node, key) or OPEN) for key, item in value.items()}
    for key, sub in node.get("properties", {}).items():
        if key not in filled and (given := default(resolve(sub))) is not MISSING:
            filled[key] = given
    return filled
