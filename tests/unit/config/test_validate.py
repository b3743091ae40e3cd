"""Our validator and the `jsonschema` library give the same verdict."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.config.schema import OPEN, load_schema, resolve, types
from hermes_agent.config.validate import validate
from hermes_agent.config.yaml_reader import read_file

DATA = Path(__file__).parents[2] / "data" / "config"
LIBRARY = jsonschema.Draft202012Validator(load_schema())

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "auto", "off", "local", "http://x", "x" * 70, "${A}", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "enabled", "model"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def _fits(node: Any, rng: random.Random, depth: int = 0) -> Any:
    """Return a value that is likely, not sure, to fit `node`."""
    node = resolve(node)
    if node is OPEN or not types(node):
        return rng.choice([1, "x", None, {"k": [1]}])
    if "enum" in node and rng.random() < 0.9:
        return rng.choice(node["enum"])
    match rng.choice(types(node)):
        case "object":
            declared = node.get("properties", {})
            keys = rng.sample(list(declared), min(len(declared), rng.randint(0, 4)))
            value = {key: _fits(declared[key], rng, depth + 1) for key in keys}
            other = node.get("additionalProperties")
            if isinstance(other, dict):
                value |= {f"own{n}": _fits(other, rng, depth + 1) for n in range(rng.randint(0, 2))}
            return value
        case "array":
            return [_fits(node.get("items", OPEN), rng, depth + 1) for _ in range(rng.randint(0, 3))]
        case "string":
            return rng.choice(["", "x", "http://localhost/v1", "NAME", "two words"])
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "integer":
            return rng.choice([0, 1, 5, 4096, 70000, 3.0, rng.randint(-5, 10**6)])
        case _:
            return rng.choice([0, 0.5, 1, 30, 1e9, -1])


def _spoil(value: Any, rng: random.Random, item: Any) -> Any:
    """Put `item` somewhere into `value`."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: _spoil(value[key], rng, item)}
    if isinstance(value, dict) and rng.random() < 0.5:
        return {**value, rng.choice(["unheard_of", "enabled", "timeout"]): item}
    return item


def _agrees(value: Any) -> bool:
    ours = [violation for violation in validate(value) if violation.kind != "near_miss"]
    return (not ours) == LIBRARY.is_valid(value)


@settings(max_examples=400)
@given(st.integers(0, 2**32), ANYTHING, st.booleans())
def test_the_verdict_is_that_of_the_library_on_generated_configs(seed: int, item: Any, spoiled: bool) -> None:
    rng = random.Random(seed)
    value = _fits(load_schema(), rng)
    if spoiled:
        value = _spoil(value, rng, item)
    assert _agrees(value), json.dumps(value)


@settings(max_examples=200)
@given(ANYTHING, st.sampled_from(sorted(load_schema()["properties"])))
def test_the_verdict_is_that_of_the_library_on_anything_under_a_known_key(item: Any, key: str) -> None:
    assert _agrees({key: item})


@pytest.mark.parametrize("value", [True, 1, 1.0, 1.5, 0, False, None, "1", [], {}])
@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "string", "null", "array", "object"])
def test_types_are_told_apart_as_json_does(value: Any, kind: str) -> None:
    assert (validate(value, {"type": kind}) == []) == jsonschema.Draft202012Validator({"type": kind}).is_valid(value)


@pytest.mark.parametrize("choice", [0, 1, False, True, "off", 1.0])
@pytest.mark.parametrize("value", [0, 1, False, True, "off", 1.0, None])
def test_choices_are_compared_as_json_does(value: Any, choice: Any) -> None:
    schema = {"enum": [choice]}
    assert (validate(value, schema) == []) == jsonschema.Draft202012Validator(schema).is_valid(value)


def _readable() -> list[Path]:
    files = [path for path in sorted(DATA.glob("*/*")) if path.suffix in (".yaml", ".json")]
    return [path for path in files if not read_file(path).findings]


@pytest.mark.parametrize("path", _readable(), ids=lambda path: path.name)
def test_the_verdict_is_that_of_the_library_on_the_files(path: Path) -> None:
    assert _agrees(read_file(path).value)
