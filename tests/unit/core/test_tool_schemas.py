"""Schemas of tools as providers take them."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.core.tool_schemas import ANTHROPIC, GEMINI, GRAMMAR, OPENAI, SchemaDialect, adapt_schema
from hermes_agent.tools.arguments import coerce_arguments

DIALECTS = {"openai": OPENAI, "anthropic": ANTHROPIC, "gemini": GEMINI, "grammar": GRAMMAR}
NAMES = st.sampled_from(["a", "b", "c", "long_name"])
Pair = tuple[Any, Any]
"""A schema, and a value that it allows."""

LEAVES: list[Pair] = [
    ({"type": "string", "format": "uri", "default": "x"}, "https://example.org"),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 100_000}, "abc"),
    ({"type": "string", "pattern": "(?=b)b"}, "b"),
    ({"type": "string", "enum": ["x", "y"]}, "x"),
    ({"enum": [1, 2]}, 2),
    ({"enum": ["x", None]}, None),
    ({"const": "only"}, "only"),
    ({"type": ["string", "null"]}, None),
    ({"type": ["integer", "string"], "minimum": 2, "maxLength": 3}, 4),
    ({"type": "integer", "nullable": True}, 3),
    ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}, 1.5),
    ({"type": "boolean"}, True),
    ({"$ref": "#/$defs/name"}, "Anna"),
    ({"$ref": "#/$defs/tree"}, {"child": {"child": {}}}),
    ({"$ref": "https://example.org/other.json"}, [1]),
    ({"$ref": "#/nowhere"}, "x"),
    ({"type": "string", "if": {"minLength": 3}, "then": {"maxLength": 5}, "x-order": 1, "readOnly": True}, "abcd"),
    ({"not": {"type": "null"}}, 1),
    (True, "anything"),
    ({}, {"free": [1]}),
    ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, ["x"]),
    ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, ["x", 1]),
    ({"type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"xa": "y"}),
]
DEFS = {
    "name": {"type": "string", "minLength": 1},
    "tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}},
}


@st.composite
def below(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    kind = draw(st.sampled_from(["object", "array", "anyOf", "oneOf", "allOf", "nullable"]))
    if kind == "array":
        schema, value = draw(inner)
        return {"type": "array", "items": schema}, [value]
    if kind in ("anyOf", "oneOf"):
        pairs = draw(st.lists(inner, min_size=1, max_size=3))
        return {kind: [schema for schema, _ in pairs], "description": "d"}, pairs[0][1]
    if kind == "nullable":
        return {"anyOf": [draw(inner)[0], {"type": "null"}]}, None
    return draw(objects(inner)) if kind == "object" else draw(all_of(inner))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    pairs = draw(st.dictionaries(NAMES, inner, max_size=3))
    schema: dict[str, Any] = {"type": "object", "properties": {name: pair[0] for name, pair in pairs.items()}}
    schema |= {"required": [*sorted(pairs), "stranger"]} if draw(st.booleans()) else {"required": True}
    schema |= {"additionalProperties": False} if draw(st.booleans()) else {}
    return schema, {name: pair[1] for name, pair in pairs.items()}


@st.composite
def all_of(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    first, one = draw(objects(inner))
    rest = {n: draw(inner) for n in ("z1", "z2")}
    first.pop("additionalProperties", None)
    second = {"properties": {name: pair[0] for name, pair in rest.items()}, "required": ["z1"]}
    return {"allOf": [first, second]}, {**one, **{name: pair[1] for name, pair in rest.items()}}


PAIRS = st.recursive(st.sampled_from(LEAVES), below, max_leaves=8)
TOPS = (
    objects(PAIRS)
    | all_of(PAIRS)
    | st.lists(objects(PAIRS), min_size=1, max_size=3).map(
        lambda pairs: ({"anyOf": [schema for schema, _ in pairs]}, pairs[0][1])
    )
)


def plain(schema: Any) -> Any:
    """Return an OpenAPI schema in the words of JSON Schema."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {k: v if k in ("enum", "default") else plain(v) for k, v in schema.items() if k != "nullable"}
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


def keywords(schema: Any) -> set[str]:
    """Return the keywords in a schema."""
    found: set[str] = set()
    if isinstance(schema, dict):
        found |= set(schema)
        below_ = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), schema.get("items")]
        for part in [*below_, schema.get("additionalProperties")]:
            found |= keywords(part)
    return found


@settings(max_examples=150)
@given(TOPS, st.sampled_from(["openai", "anthropic", "grammar"]))
def test_what_the_original_allows_is_allowed_still(pair: Pair, name: str) -> None:
    schema, value = {**pair[0], "$defs": DEFS}, pair[1]
    before = copy.deepcopy(schema)
    found = adapt_schema(schema, DIALECTS[name])

    assert schema == before
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(value, plain(found))
    assert found["type"] == "object" and isinstance(found["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(found)
    assert not {"$ref", "$defs", "oneOf", "allOf", "not", "const", "patternProperties", "if"} & keywords(found)
    json.dumps(found)


@settings(max_examples=150)
@given(TOPS, st.sampled_from(sorted(DIALECTS)))
def test_a_sanitised_schema_stays_as_it_is(pair: Pair, name: str) -> None:
    once = adapt_schema({**pair[0], "$defs": DEFS}, DIALECTS[name])
    assert adapt_schema(once, DIALECTS[name]) == once


@settings(max_examples=150)
@given(TOPS)
def test_gemini_gets_no_word_that_it_does_not_know_and_one_type_each(pair: Pair) -> None:
    found = adapt_schema({**pair[0], "$defs": DEFS}, GEMINI)
    known = {"type", "description", "properties", "required", "items", "anyOf", "enum", "nullable", "format"}
    assert keywords(found) <= known | {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}

    def look(schema: dict[str, Any]) -> None:
        assert schema.get("type") != "null" and not isinstance(schema.get("type"), list)
        assert schema.get("type") != "object" or schema["properties"] or schema is found
        assert schema.get("type") != "array" or schema["items"]
        assert all(isinstance(value, str) for value in schema.get("enum", ()))
        for part in [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items")]:
            if part:
                look(part)

    look(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*("type", "properties", "items", "required", "enum", "anyOf", "allOf", "oneOf", "$ref", "const", "a")]
            ),
            inner | st.sampled_from(["object", "array", "string", "#", "#/properties/a", "#/anyOf/0"]),
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=200)
@given(JSON, st.sampled_from(sorted(DIALECTS)))
def test_no_schema_however_broken_makes_it_fail(schema: Any, name: str) -> None:
    found = adapt_schema(schema, DIALECTS[name])
    assert found["type"] == "object"


def test_what_is_made_of_a_schema_is_nobody_else_s_and_follows_every_change() -> None:
    given = {"type": "object", "properties": {"a": {"type": "string", "default": object}}}  # a class is no JSON
    for default in (object, "x"):
        given["properties"]["a"]["default"] = default
        first = adapt_schema(given, OPENAI)
        first["properties"]["a"]["type"] = first["properties"]["b"] = "changed"
        assert adapt_schema(given, OPENAI)["properties"] == {"a": {"type": "string", "default": default}}
    given["properties"]["a"]["default"] = True
    assert adapt_schema(given, OPENAI)["properties"]["a"]["default"] is True
    given["properties"]["a"]["default"] = 1
    assert adapt_schema(given, OPENAI)["properties"]["a"]["default"] is not True


def test_an_optional_value_is_one_nullable_value() -> None:
    schema = {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "A"}}}
    assert adapt_schema(schema, GEMINI)["properties"]["a"] == {"type": "integer", "nullable": True}


def test_a_reference_to_itself_ends_and_others_are_written_out() -> None:
    found = adapt_schema({"properties": {"t": {"$ref": "#/$defs/tree"}}, "$defs": DEFS}, OPENAI)
    assert found["properties"]["t"]["properties"]["child"] == {}
    assert adapt_schema({"$ref": "#"}, OPENAI) == {"type": "object", "properties": {}}


def test_alternatives_at_the_top_become_one_object() -> None:
    by_path = {"properties": {"path": {"type": "string"}, "n": {"type": "integer"}}, "required": ["path", "n"]}
    by_url = {"properties": {"url": {"type": "string"}, "n": {"type": "string"}}, "required": ["url", "n"]}
    assert adapt_schema({"type": "object", "oneOf": [by_path, by_url]}, ANTHROPIC) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "n": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "url": {"type": "string"},
        },
        "required": ["n"],
    }


def test_what_gemini_is_told_is_a_text_becomes_the_object_again_that_the_tool_wants() -> None:
    schema = {"type": "object", "properties": {"headers": {"type": "object", "description": "Headers"}}}
    told = adapt_schema(schema, GEMINI)["properties"]["headers"]
    assert told == {"type": "string", "description": "Headers (a JSON object, as text)"}
    assert coerce_arguments({"headers": '{"a": "b"}'}, schema) == {"headers": {"a": "b"}}


@pytest.mark.parametrize(
    ("dialect", "schema", "expected"),
    [
        (OPENAI, {"type": "array"}, {"type": "array", "items": {}}),
        (OPENAI, {"type": "object"}, {"type": "object", "properties": {}}),
        (OPENAI, {"type": "string", "required": True}, {"type": "string"}),
        (GRAMMAR, {"type": "string", "pattern": "a+"}, {"type": "string"}),
        (GRAMMAR, {"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}),
        (GRAMMAR, {"type": "string", "maxLength": 60_000, "format": "uri"}, {"type": "string"}),
        (GEMINI, {"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        (GEMINI, {"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        (GEMINI, {"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
    ],
)
def test_each_provider_is_told_what_it_takes(dialect: SchemaDialect, schema: Any, expected: Any) -> None:
    assert adapt_schema({"properties": {"x": schema}}, dialect)["properties"]["x"] == expected


def test_a_property_that_anthropic_cannot_name_is_left_out_and_others_may_be_given() -> None:
    schema = {"properties": {"$filter": {}, "top": {}}, "required": ["$filter", "top"], "additionalProperties": False}
    assert adapt_schema(schema, ANTHROPIC) == {"type": "object", "properties": {"top": {}}, "required": ["top"]}


def test_references_that_double_with_each_level_do_not_make_millions_of_parts() -> None:
    below: dict[str, Any] = {"type": "string"}
    defs = {f"d{n}": _pair(n + 1) for n in range(18)} | {"d18": below}
    found = adapt_schema({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d0"}, "y": below}}, OPENAI)
    assert len(json.dumps(found)) < 2_000_000
    assert found["properties"]["x"]["type"] == "object"


def _pair(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{number}"} for name in "ab"}}
