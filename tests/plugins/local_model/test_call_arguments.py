"""Arguments in the values that a tool takes."""

from __future__ import annotations

from typing import Any

import pytest

from local_model import drop_empty, ground_paths, nearest, normalise_arguments

CONVERT = {
    "type": "object",
    "properties": {
        "value": {"type": "number"},
        "from_unit": {"type": "string", "description": "e.g. km, F, TB"},
        "to_unit": {"type": "string"},
    },
    "required": ["value", "from_unit", "to_unit"],
}
TEXTS = ("Convert between units: m km mi, kg lb, C F K, KB MB GB TB.", "e.g. km, F, TB")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("fahrenheit", "F"),
        ("degrees Celsius", "C"),
        ("kilometers", "km"),
        ("Pounds", "lb"),
        ("gigabytes", "GB"),
        ("gb", "GB"),
        ("km", "km"),
        ("furlongs", "furlongs"),
        ("ounces", "ounces"),
    ],
)
def test_a_unit_becomes_the_abbreviation_that_the_tool_lists(given: str, taken: str) -> None:
    arguments = {"value": 5, "from_unit": given, "to_unit": "K"}
    assert normalise_arguments(arguments, CONVERT, TEXTS)["from_unit"] == taken


def test_a_unit_that_the_tool_lists_as_a_word_stays() -> None:
    texts = ("Convert temperatures: fahrenheit, celsius (F, C).",)
    arguments = {"value": 5, "from_unit": "fahrenheit", "to_unit": "C"}
    assert normalise_arguments(arguments, CONVERT, texts) == arguments


SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "dark-blue", "orange"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "is_new": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["urgent", "private"]}},
        "label": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"colour": "Red"}, {"colour": "red"}),
        ({"colour": "dark blue"}, {"colour": "dark-blue"}),
        ({"colour": "ornage"}, {"colour": "orange"}),
        ({"colour": "green"}, {"colour": "green"}),
        ({"count": "1,204"}, {"count": 1204}),
        ({"count": 3.0}, {"count": 3}),
        ({"count": "many"}, {"count": "many"}),
        ({"ratio": "0.5"}, {"ratio": 0.5}),
        ({"is_new": "True"}, {"is_new": True}),
        ({"tags": ["Urgent", "privat"]}, {"tags": ["urgent", "private"]}),
        ({"label": 7}, {"label": "7"}),
        ({"Colour": "red"}, {"colour": "red"}),
        ({"cuont": 4}, {"count": 4}),
        ({"other": 4}, {"other": 4}),
    ],
)
def test_names_values_and_types_become_those_of_the_schema(given: dict[str, Any], taken: dict[str, Any]) -> None:
    assert normalise_arguments(given, SCHEMA, ()) == taken


def test_a_value_between_two_others_stands_for_none() -> None:
    assert nearest("hate", ["gate", "hare"]) is None
    assert nearest("ab", ["ac"]) is None


def test_an_invented_directory_is_left_out_and_a_named_file_is_looked_for_by_its_name() -> None:
    sources = ("Which file has the word owl? Read plan.txt and /home/ann/list.txt",)
    assert ground_paths({"pattern": "owl", "path": "/home/user"}, ["pattern"], sources) == {"pattern": "owl"}
    assert ground_paths({"path": "/path/to/plan.txt"}, ["path"], sources) == {"path": "plan.txt"}
    for named in ("/home/ann/list.txt", "/etc/hostname", "docs/plan.txt", "/home/user"):
        assert ground_paths({"path": named}, ["path"], sources) == {"path": named}


def test_optional_parameters_that_are_filled_in_with_nothing_are_left_out() -> None:
    given = {"path": "", "offset": 0, "limit": 5, "all": False, "tags": [], "name": None}
    assert drop_empty(given, ["path"]) == {"path": "", "limit": 5, "all": False}


def test_a_power_is_written_with_the_operator_that_the_tool_lists() -> None:
    schema = {"type": "object", "properties": {"expression": {"type": "string"}}}
    given = {"expression": "2^16 + 1"}
    assert normalise_arguments(given, schema, ["Evaluate: + - * / **"]) == {"expression": "2**16 + 1"}
    for texts in (["Evaluate: + - * / ^, ** too"], ["Search for a pattern."]):
        assert normalise_arguments(given, schema, texts) == given
