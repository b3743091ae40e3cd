from __future__ import annotations

import pytest

from hermes_agent.tools.arguments import repair_name

VALID = ["read_file", "write_file", "search_files", "terminal", "web_search", "todo", "tool_search"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("read_file", "read_file"),
        ("Read_File", "read_file"),
        ("read-file", "read_file"),
        ("read file", "read_file"),
        (" readFile ", "read_file"),
        ("ReadFile", "read_file"),
        ("ReadFileTool", "read_file"),
        ("read_file_tool", "read_file"),
        ("read-file-tool_tool", "read_file"),
        ("todotool", "todo"),
        ("tool_search", "tool_search"),
        ('read_file"><parameter', "read_file"),
        ("read_file'", "read_file"),
        ("read_file<|x|>", "read_file"),
        ("read_fil", "read_file"),
        ("websearch", "web_search"),
        ("terminals", "terminal"),
        ("launch_missiles", None),
        ("", None),
        ('"', None),
        ("tool", None),
    ],
)
def test_a_name_that_is_nearly_right_is_repaired(given, meant):
    assert repair_name(given, VALID) == meant


def test_a_valid_name_is_never_changed():
    assert repair_name("Odd-Name_tool", ["Odd-Name_tool", "odd_name"]) == "Odd-Name_tool"


def test_a_name_of_any_length_is_answered():
    assert repair_name("x" * 1_000_000, VALID) is None
