from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.tools.arguments import coerce_arguments

INTEGER, NUMBER, BOOLEAN = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
ARRAY, OBJECT, STRING = {"type": "array"}, {"type": "object"}, {"type": "string"}
MAYBE = {"type": ["integer", "null"]}
NESTED = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object"}}}}


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        (INTEGER, "42", 42),
        (INTEGER, "1.0", 1),
        (INTEGER, "-7", -7),
        (INTEGER, "9007199254740993", 9007199254740993),
        (INTEGER, "1.5", "1.5"),
        (INTEGER, "forty", "forty"),
        (INTEGER, "", ""),
        (INTEGER, 3, 3),
        (NUMBER, "3.0", 3),
        (NUMBER, "3.5", 3.5),
        (NUMBER, "nan", "nan"),
        (NUMBER, "inf", "inf"),
        (NUMBER, "1e999", "1e999"),
        (BOOLEAN, "true", True),
        (BOOLEAN, " FALSE ", False),
        (BOOLEAN, "1", "1"),
        (BOOLEAN, "yes", "yes"),
        (ARRAY, '["a", 1]', ["a", 1]),
        (ARRAY, "a", ["a"]),
        (ARRAY, 5, [5]),
        (ARRAY, {"a": 1}, [{"a": 1}]),
        (ARRAY, None, None),
        (ARRAY, ["a"], ["a"]),
        (ARRAY, "[broken", ["[broken"]),
        (OBJECT, '{"a": 1}', {"a": 1}),
        (OBJECT, "[1]", "[1]"),
        (OBJECT, "{broken", "{broken"),
        ({"type": ["integer", "boolean"]}, "true", True),
        ({"type": ["integer", "string"]}, "x", "x"),
        ({"type": ["array", "string"]}, "x", "x"),
        (MAYBE, "null", None),
        (MAYBE, "5", 5),
        ({"type": "integer", "nullable": True}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, "6", 6),
        (INTEGER, "null", "null"),
        (STRING, "42", "42"),
        (STRING, "null", "null"),
        (STRING, '{"a": 1}', '{"a": 1}'),
        ({}, "42", "42"),
        ({"description": "no type"}, "[1]", "[1]"),
        (NESTED, {"items": '[{"a": 1}]'}, {"items": [{"a": 1}]}),
        (NESTED, {"items": ['{"a": 1}']}, {"items": [{"a": 1}]}),
        (NESTED, '{"items": "[{}]"}', {"items": [{}]}),
        ({"anyOf": [{"type": "array"}, {"type": "object"}]}, '{"a": 1}', {"a": 1}),
        ({"allOf": [{"type": "array"}]}, "[1]", [1]),
    ],
)
def test_the_rows_of_the_contract(schema, given, expected):
    args = {"value": copy.deepcopy(given)}
    result = coerce_arguments(args, {"type": "object", "properties": {"value": schema}})

    assert result is args
    assert args == {"value": expected}
    assert type(args["value"]) is type(expected)


def test_arguments_that_no_schema_names_stay_as_they_are():
    assert coerce_arguments({"other": "42"}, {"properties": {"value": INTEGER}}) == {"other": "42"}
    assert coerce_arguments({"other": "42"}, {}) == {"other": "42"}
    assert coerce_arguments({"a": "42"}, {"properties": {"a": "integer"}}) == {"a": "42"}


def test_json_that_is_nested_too_deeply_stays_text():
    deep = "[" * 100_000

    assert coerce_arguments({"a": deep}, {"properties": {"a": OBJECT}}) == {"a": deep}


TYPES = st.sampled_from(["integer", "number", "boolean", "array", "object", "string", "null"])
SCHEMAS = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"type": TYPES}),
        st.fixed_dictionaries({"type": st.lists(TYPES, max_size=3)}),
        st.just({}),
        st.fixed_dictionaries({"type": TYPES, "nullable": st.booleans()}),
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("ab"), inner)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["42", "1.0", "true", "null", "[1]", '{"a": "2"}', "[", "nan", "1e999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_coercion_never_fails_and_a_second_one_of_plain_types_changes_nothing(schema, value):
    parameters = {"properties": {"x": schema}}
    once = coerce_arguments({"x": copy.deepcopy(value), "other": "7"}, parameters)
    assert once["other"] == "7"
    json.dumps(once)
    if isinstance(schema.get("type"), str) and schema["type"] in ("integer", "number", "boolean", "string"):
        assert coerce_arguments(copy.deepcopy(once), parameters) == once


@given(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.lists(st.integers(), max_size=3)
)
def test_what_is_written_as_text_arrives_as_it_was_meant(whole, real, truth, items):
    properties = {"i": INTEGER, "n": NUMBER, "b": BOOLEAN, "a": ARRAY, "s": STRING}
    written = {"i": str(whole), "n": repr(real), "b": str(truth), "a": json.dumps(items), "s": str(whole)}
    found = coerce_arguments(written, {"properties": properties})
    assert found == {"i": whole, "n": real, "b": truth, "a": items, "s": str(whole)}


@given(SCHEMAS, st.integers() | st.booleans() | st.text(max_size=3))
def test_a_value_of_the_right_type_is_left_alone(schema, value):
    kind = {bool: "boolean", int: "integer", str: "string"}[type(value)]
    assert coerce_arguments({"x": value}, {"properties": {"x": {**schema, "type": kind, "anyOf": []}}}) == {"x": value}
