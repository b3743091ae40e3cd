"""Definitions of tools; names and arguments of calls, coerced to the schema's types.

A value that cannot be coerced stays as it is; the handler decides about it. Source: plugin contract §4.1, §4.5, §4.6.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from hermes_agent.contracts.tool import ToolEntry
from hermes_agent.hooks.catalog import TOOL_ALIASES

MAX_NAME_CHARS = 200
"""A longer text is no name; a comparison would take seconds."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The function names that providers accept."""
_CUT = re.compile(r"[\"'<>]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SUFFIX = re.compile(r"[_-]?tool$")


def name_problem(name: object) -> str | None:
    """Return why `name` is no valid name of a tool, or None."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"tool name {name!r:.120} cannot be used: expected 1 to 64 letters, digits, `_` and `-`"


def repair_name(name: str, valid: Collection[str]) -> str | None:
    """Return the valid name that a misspelled one stands for, or None."""
    if name in valid:
        return name
    if (other := TOOL_ALIASES.get(name)) is not None and other in valid:
        return other
    if len(name) > MAX_NAME_CHARS:
        return None
    plain = _CAMEL.sub("_", _CUT.split(name.strip(), maxsplit=1)[0])
    plain = plain.lower().replace("-", "_").replace(" ", "_")
    for _ in range(3):
        if plain in valid:
            return plain
        plain = _SUFFIX.sub("", plain)
    import difflib  # most names are correct

    close = difflib.get_close_matches(plain, valid, n=1, cutoff=0.7)
    return close[0] if close else None


Schema = dict[str, Any]

MOST_DIGITS = 300
"""A number with more digits exceeds every float."""
_KEEP = object()
_BRANCHES = ("anyOf", "oneOf", "allOf")
"""Keywords for alternatives of a schema, in the order in which they are tried."""


def coerce_arguments(args: dict[str, Any], parameters: Schema) -> dict[str, Any]:
    """Coerce `args` in place to the JSON schema of the parameters, and return it."""
    properties = parameters.get("properties")
    if isinstance(properties, dict):
        for name, value in args.items():
            schema = properties.get(name)
            if isinstance(schema, dict):
                args[name] = _coerce(value, schema)
    return args


def _coerce(value: Any, schema: Schema) -> Any:
    kind = schema.get("type")
    if (
        type(value) is str
        and type(kind) is str
        and "null" not in value
        and not ("anyOf" in schema or "oneOf" in schema or "allOf" in schema)  # a loop would cost as much as the rest
    ):
        if kind == "string":
            return value
        if kind in _PLAIN:
            fresh = _PLAIN[kind](value)
            return value if fresh is _KEEP else fresh
    types = _types(schema)
    if isinstance(value, str):
        if "null" in value and value.strip() == "null" and (schema.get("nullable") is True or "null" in types):
            return None
        for kind in types:
            fresh = _from_text(value, kind)
            if fresh is not _KEEP:
                return _inside(fresh, schema)
    if value is not None and not isinstance(value, list) and "array" in types and not _fits(value, types):
        return [value]
    return _inside(value, schema)


def _inside(value: Any, schema: Schema) -> Any:
    """Coerce items and properties of a list or mapping."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_coerce(item, schema["items"]) for item in value]
    if isinstance(value, dict):
        return coerce_arguments(value, schema)
    return value


def _branches(schema: Schema) -> Iterable[Schema]:
    for key in _BRANCHES:
        for branch in schema.get(key) or ():
            if isinstance(branch, dict):
                yield branch


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type")
    own = [kind] if isinstance(kind, str) else [k for k in kind or () if isinstance(k, str)]
    if not any(key in schema for key in _BRANCHES):
        return own
    return own + [k for branch in _branches(schema) for k in _types(branch)]


def _fits(value: Any, types: list[str]) -> bool:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}
    name = names.get(type(value), "")
    return name in types or (name == "integer" and "number" in types)


def _from_text(text: str, kind: str) -> Any:
    """Return the value of `text` as a JSON type, or `_KEEP`."""
    if kind in _PLAIN:
        return _PLAIN[kind](text)
    if kind in ("array", "object"):
        return _json(text, list if kind == "array" else dict)
    return _KEEP


def _boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text.strip().lower(), _KEEP)


def _number(text: str, *, integral: bool = False) -> Any:
    if text.isdecimal() and len(text) < MOST_DIGITS:
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return _KEEP
    if not math.isfinite(number):
        return _KEEP
    if number.is_integer():
        try:
            return int(text)  # exact beyond 2**53
        except ValueError:
            return int(number)
    return _KEEP if integral else number


_PLAIN: dict[str, Callable[[str], Any]] = {
    "integer": partial(_number, integral=True),
    "number": _number,
    "boolean": _boolean,
}


def _json(text: str, wanted: type) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return _KEEP
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _KEEP
    return value if isinstance(value, wanted) else _KEEP


logger = logging.getLogger(__name__)

BROWSER = "browser_navigate"
"""A tool of plugins that cannot adapt its description."""
WEB = ("web_search", "web_extract")


def schema_problem(name: str, schema: object) -> str | None:
    """Return what is wrong with the types of a tool's schema, or None."""
    if not isinstance(schema, dict):
        return f"Tool {name!r}: schema must be a dict, got {type(schema).__name__}"
    parameters = schema.get("parameters")
    if parameters is None or isinstance(parameters, dict):
        return None
    return f"Tool {name!r}: schema['parameters'] must be an object (a dict), got {type(parameters).__name__}"


def without_missing_tools(function: dict[str, Any], usable: Collection[str]) -> dict[str, Any]:
    """Remove the sentences of a browser's description that name web tools without a definition (§4.7)."""
    absent = [] if function["name"] != BROWSER else [name for name in WEB if name not in usable]
    if not absent:
        return function
    sentences = re.split(r"(?<=[.!?])\s+", function["description"])
    kept = [sentence for sentence in sentences if not any(name in sentence for name in absent)]
    return {**function, "description": " ".join(kept)}


def function_definition(entry: ToolEntry) -> dict[str, Any]:
    """Return the definition of a tool for a model: `name`, `description` and `parameters`."""
    schema = entry.schema
    if entry.dynamic_schema_overrides is not None:
        try:
            schema = {**schema, **entry.dynamic_schema_overrides()}
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001 - a plugin's function; the static schema stands in
            logger.warning("tool %s: schema overrides failed: %s", entry.name, exc)
    parameters = schema.get("parameters") or {}
    if not isinstance(parameters.get("properties"), dict):
        parameters = {**parameters, "type": "object", "properties": {}}
    return {
        "name": entry.name,
        "description": schema.get("description") or entry.description,
        "parameters": parameters,
    }
