from __future__ import annotations

import pytest

from hermes_agent.commands import normalise_name, parse_command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", ("help", "")),
        ("  /help  ", ("help", "")),
        ("/Help Me  now ", ("help", "Me  now")),
        ("/scan\nline one\nline two", ("scan", "line one\nline two")),
        ("/scan@my_bot args", ("scan", "args")),
        ("/my-plugin:do x", ("my-plugin:do", "x")),
        ("/set_home", ("set_home", "")),
        ("/etc/hosts", None),
        ("/etc/hosts is a file", None),
        ("/", None),
        ("/ help", None),
        ("//help", None),
        ("/1st", None),
        ("help", None),
        ("say /help", None),
        ("", None),
    ],
)
def test_what_is_a_command_and_what_is_not(text, expected):
    assert parse_command(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("Scan", "scan"), (" /scan ", "scan"), ("my scan", "my-scan"), ("//x", "x"), ("/", "")]
)
def test_a_name_is_brought_into_one_form(name, expected):
    assert normalise_name(name) == expected
