"""Tool schemas in the form that each provider accepts.

Unsupported parts are removed, rewritten or expanded, since one rejected schema makes a provider reject the whole
request. The result allows at least what the original allows, as far as the provider can express it. Arguments that the
original forbids may pass; the tool rejects them. Source: plugin contract §4.7 (4).
"""

from __future__ import annotations

import functools
import marshal
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple

Schema = dict[str, Any]
DEEPEST = 24
"""Levels of a schema; deeper ones allow any value."""
MOST_PARTS = 10_000
"""Parts of an expanded schema: references that double with each level would make millions from a few lines."""

_PLAIN = frozenset(
    {
        *("type", "description", "title", "enum", "default", "format", "pattern", "nullable", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"),
        *("uniqueItems", "minProperties", "maxProperties", "additionalProperties"),
    }
)
_NUMBERS = frozenset({k for k in _PLAIN if k.startswith(("min", "max", "exclusive"))} | {"multipleOf"})
_OF_TYPE = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
_OF_TYPE["integer"] = _OF_TYPE["number"]
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


class SchemaDialect(LazyNamedTuple):
    """The JSON schema subset of a provider."""

    refused: frozenset[str] = frozenset()
    """Keywords that are removed."""
    open_api: bool = False
    """`nullable` instead of null, one type each, enumerations of texts, no object and no array without content."""
    formats: frozenset[str] | None = None
    """Allowed values of `format`; None allows all."""
    whole_patterns: bool = False
    """Patterns become a grammar: anchored ones without look-around."""
    most: float = float("inf")
    """Highest value of `maxLength` and similar keywords."""
    names: re.Pattern[str] | None = None
    """Allowed names of properties."""


OPENAI = SchemaDialect()
"""Chat completions and Responses."""
ANTHROPIC = SchemaDialect(names=re.compile(r"[A-Za-z0-9_.-]{1,64}"))
GEMINI = SchemaDialect(
    refused=frozenset({"default", "title", "pattern", "uniqueItems", "additionalProperties", "multipleOf"})
    | {"exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties"},
    open_api=True,
    formats=frozenset({"date-time", "int32", "int64", "float", "double"}),
)
GRAMMAR = SchemaDialect(
    refused=frozenset({"default", "title", "uniqueItems", "multipleOf", "minProperties", "maxProperties"}),
    formats=frozenset({"date", "time", "date-time", "uuid"}),
    whole_patterns=True,
    most=2_000,
)
"""llama.cpp and servers on top of it, which make a grammar of a schema."""


BY_NAME = {"openai": OPENAI, "gemini": GEMINI, "grammar": GRAMMAR}
"""Dialects by the value of `schemas` in a provider profile."""


def adapt_schema(parameters: Any, dialect: SchemaDialect) -> Schema:
    """Return the schema of a tool's parameters with an object at the top; the given schema is not changed.

    Results are cached by the content of the schema, since most lists of tools repeat them.
    """
    root = parameters if isinstance(parameters, dict) else {}
    try:
        given = marshal.dumps(root, 2)  # without references, so that equal schemas are equal bytes
    except ValueError:  # not JSON, or nested too deeply
        return _adapt(root, dialect)
    found: Schema = marshal.loads(_adapt_cached(given, dialect))
    return found


@functools.lru_cache(maxsize=1024)
def _adapt_cached(given: bytes, dialect: SchemaDialect) -> bytes:
    return marshal.dumps(_adapt(marshal.loads(given), dialect), 2)


def _adapt(root: Schema, dialect: SchemaDialect) -> Schema:
    found = _Cleaner(root, dialect).node(root, (), 0)
    found = _open_api(found) if dialect.open_api else found
    if found.get("type") == "string":  # an object without content, in OpenAPI
        found = {}
    found = _one_object(found)
    return {**found, "type": "object", "properties": found.get("properties") or {}}


def _one_object(schema: Schema) -> Schema:
    """Merge the alternatives at the top into one object; no provider accepts alternatives there."""
    branches = [_one_object(b) for b in schema.get("anyOf", ()) if b.get("type", "object") == "object"]
    own = {k: v for k, v in schema.items() if k not in ("anyOf", "enum", "nullable", "type", "items")}
    if not branches:
        return own
    offered: dict[str, list[Schema]] = {}
    for branch in branches:
        for name, value in branch.get("properties", {}).items():
            seen = offered.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    merged = {name: values[0] if len(values) == 1 else _any_of(values) for name, values in offered.items()}
    common = set.intersection(*(set(b.get("required", ())) for b in branches))
    required = list(dict.fromkeys([*own.pop("required", ()), *(n for n in offered if n in common)]))
    closed = own.pop("additionalProperties", None)
    if closed is None and all(b.get("additionalProperties") is False for b in branches):
        closed = False
    own["properties"] = {**merged, **own.get("properties", {})}
    return (
        own
        | ({"required": required} if required else {})
        | ({} if closed is None else {"additionalProperties": closed})
    )


def _any_of(values: Sequence[Schema]) -> Schema:
    flat = [branch for value in values for branch in (value["anyOf"] if set(value) == {"anyOf"} else [value])]
    return {"anyOf": [b for i, b in enumerate(flat) if b not in flat[:i]]}


class _Cleaner:
    def __init__(self, root: Schema, dialect: SchemaDialect) -> None:
        self._root = root
        self._dialect = dialect
        self._parts = 0

    def node(self, schema: Any, within: tuple[str, ...], depth: int) -> Schema:
        """Return one schema.

        Args:
            within: the references that led here; a reference to itself becomes "anything".
        """
        self._parts += 1
        if not isinstance(schema, dict) or depth > DEEPEST or self._parts > MOST_PARTS:
            return {}
        if "$ref" in schema:
            reference = str(schema["$ref"])
            rest = {k: v for k, v in schema.items() if k != "$ref"}
            target = None if reference in within else self._target(reference)
            within = (*within, reference)
            schema = {**target, **rest} if isinstance(target, dict) else rest
            if "$ref" in schema:
                return self.node(schema, within, depth + 1)
        schema = self._merged(schema, within, depth)
        out: Schema = {k: v for k, v in schema.items() if k in _PLAIN and self._fits(k, v)}
        if isinstance(out.get("additionalProperties"), dict):
            out["additionalProperties"] = self.node(out["additionalProperties"], within, depth + 1)
        self._type(out, schema)
        self._object(out, schema, within, depth)
        self._array(out, schema, within, depth)
        branches = [*_list(schema, "anyOf"), *_list(schema, "oneOf")]
        if branches:
            out["anyOf"] = [self.node(branch, within, depth + 1) for branch in branches]
            if schema.get("nullable") is True and "type" not in out:
                out["anyOf"].append({"type": "null"})
        return out

    def _target(self, reference: str) -> Any:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else ("?",):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _merged(self, schema: Schema, within: tuple[str, ...], depth: int) -> Schema:
        """Merge the parts of `allOf`; of contradicting parts the first counts."""
        parts = [self.node(part, within, depth + 1) for part in _list(schema, "allOf")]
        if not parts:
            return schema
        merged = {k: v for k, v in schema.items() if k != "allOf"}
        for part in parts:
            listed = {*merged.get("properties", {})} if isinstance(merged.get("properties"), dict) else set()
            merged["properties"] = {**part.get("properties", {}), **{n: merged["properties"][n] for n in listed}}
            merged["required"] = [*_list(merged, "required"), *part.get("required", ())]
            merged = {**{k: v for k, v in part.items() if k != "anyOf"}, **merged}
            if "anyOf" in part and "anyOf" not in merged and "oneOf" not in merged:
                merged["anyOf"] = part["anyOf"]
        return {k: v for k, v in merged.items() if v or k not in ("properties", "required")}

    def _fits(self, keyword: str, value: Any) -> bool:
        dialect = self._dialect
        if keyword in dialect.refused:
            return False
        if keyword in _NUMBERS:
            counts = keyword.startswith(("minL", "maxL", "minI", "maxI", "minP", "maxP"))
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and not (counts and value > dialect.most)
        if keyword == "format":
            return isinstance(value, str) and (dialect.formats is None or value in dialect.formats)
        if keyword == "pattern":
            return isinstance(value, str) and (not dialect.whole_patterns or _is_whole(value))
        if keyword in ("description", "title"):
            return isinstance(value, str)
        if keyword == "enum":
            return isinstance(value, list) and bool(value)
        if keyword in ("uniqueItems", "nullable"):
            return isinstance(value, bool)
        return keyword != "additionalProperties" or isinstance(value, bool | dict)

    def _type(self, out: Schema, schema: Schema) -> None:
        kind = schema.get("type")
        kinds = [k for k in ([kind] if isinstance(kind, str) else _list(schema, "type")) if k in _TYPES]
        if "const" in schema and "enum" not in out:
            out["enum"] = [schema["const"]]
        if not kinds and isinstance(schema.get("properties"), dict):
            kinds = ["object"]
        elif not kinds and "items" in schema:
            kinds = ["array"]
        if out.pop("nullable", False) and kinds and "null" not in kinds:
            kinds.append("null")
        out.pop("type", None)
        if kinds:
            out["type"] = kinds[0] if len(kinds) == 1 else list(dict.fromkeys(kinds))
        if "null" in kinds and "enum" in out and None not in out["enum"] and schema.get("nullable") is True:
            out["enum"] = [*out["enum"], None]

    def _object(self, out: Schema, schema: Schema, within: tuple[str, ...], depth: int) -> None:
        properties = schema.get("properties")
        given = len(properties) if isinstance(properties, dict) else 0
        if isinstance(properties, dict):
            names = self._dialect.names
            taken = {str(n): v for n, v in properties.items() if names is None or names.fullmatch(str(n))}
            out["properties"] = {name: self.node(value, within, depth + 1) for name, value in taken.items()}
        elif _has(out, "object"):
            out["properties"] = {}
        offered = out.get("properties", {})
        known = [n for n in _list(schema, "required") if isinstance(n, str) and n in offered]
        if known:
            out["required"] = list(dict.fromkeys(known))
        if "patternProperties" in schema or len(offered) < given:
            out.pop("additionalProperties", None)

    def _array(self, out: Schema, schema: Schema, within: tuple[str, ...], depth: int) -> None:
        if "items" in schema or _has(out, "array"):
            plain = isinstance(schema.get("items"), dict) and "prefixItems" not in schema
            out["items"] = self.node(schema["items"], within, depth + 1) if plain else {}


def _open_api(schema: Schema) -> Schema:
    """Return the schema in OpenAPI 3.0, as Gemini expects it."""
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else list(schema.get("type") or ())
    branches = [_open_api(b) for b in schema.get("anyOf", ()) if b.get("type") != "null"]
    nullable = "null" in kinds or len(branches) < len(schema.get("anyOf", ()))
    kinds = [k for k in kinds if k != "null"]
    out = {k: v for k, v in schema.items() if k not in ("anyOf", "type")}
    if len(kinds) > 1:
        branches = [_open_api({"type": t, **{k: out[k] for k in out if k in _OF_TYPE.get(t, ())}}) for t in kinds]
        out = {k: v for k, v in out.items() if not any(k in keywords for keywords in _OF_TYPE.values())}
    elif kinds:
        out["type"] = kinds[0]
    if "properties" in out:
        out["properties"] = {name: _open_api(value) for name, value in out["properties"].items()}
    if "items" in out:
        out["items"] = _open_api(out["items"])
    if len(branches) == 1 and not kinds:
        out = {**branches[0], **out}
    elif branches:
        out["anyOf"] = branches
    if nullable:
        out["nullable"] = True
    return _without_nothing(out)


def _without_nothing(out: Schema) -> Schema:
    """Remove what an OpenAPI schema cannot express.

    These are enumerations of other types than text, and objects and arrays without content.
    """
    values = out.get("enum")
    if values is not None:
        texts = [v for v in values if isinstance(v, str)]
        out = {k: v for k, v in out.items() if k != "enum"}
        if None in values:
            out["nullable"] = True
        if len(texts) == len([v for v in values if v is not None]) and out.get("type", "string") == "string":
            out |= {"type": "string", "enum": texts}
    if "type" not in out and "anyOf" not in out:
        out.pop("nullable", None)  # any value is allowed, null as well
    if out.get("type") == "array" and not out.get("items"):
        out["items"] = {"type": "string"}
    if out.get("type") == "object" and not out.get("properties") and "anyOf" not in out:
        # the text becomes an object again when the call's arguments are coerced
        about = f"{out.get('description', '')} (a JSON object, as text)".strip()
        kept = {k: v for k, v in out.items() if k == "nullable"}
        return {"type": "string", "description": about, **kept}
    return out


def _list(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _has(out: Mapping[str, Any], kind: str) -> bool:
    given = out.get("type")
    return given == kind or (isinstance(given, list) and kind in given)


def _is_whole(pattern: str) -> bool:
    return pattern.startswith("^") and pattern.endswith("$") and not re.search(r"\(\?|\\[bBAZzpP1-9]", pattern)
