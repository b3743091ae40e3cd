from __future__ import annotations

import json

import pytest

from hermes_agent.models.wire_protocol import repair_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ('{"a": [1, 2,], "b": "x,}",}', {"a": [1, 2], "b": "x,}"}),
        ("{'a': True, 'b': None}", {"a": True, "b": None}),
        ('{"a": {"b": [1', {"a": {"b": [1]}}),
        ('{"a": "it is \\"so\\"",', {"a": 'it is "so"'}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)
def test_what_is_wrong_in_form_alone_is_put_right(text: str, value: dict[str, object]) -> None:
    assert json.loads(repair_json(text)) == value


@pytest.mark.parametrize("text", ['{"path": "/etc/pass', "no json at all", "[1, 2]", '"text"', "", "__import__('os')"])
def test_what_nobody_can_know_stays_as_it_is(text: str) -> None:
    assert repair_json(text) == text


def test_arguments_that_are_right_keep_their_bytes() -> None:
    assert repair_json('{ "b":1,  "a":2 }') == '{ "b":1,  "a":2 }'
