"""Requests and the first call that each needs; `make eval` asks all of them, the tests one of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolbox import value_of

Right = Callable[[dict[str, Any]], bool]
Case = tuple[str, str, Right]


def has(key: str, *parts: str) -> Right:
    return lambda a: all(p in str(a.get(key, "")).lower() for p in parts)


def gives(number: float) -> Right:
    def right(arguments: dict[str, Any]) -> bool:
        try:
            return bool(abs(value_of(str(arguments.get("expression"))) - number) <= 1e-6 * abs(number))
        except (SyntaxError, ValueError):  # the tool would refuse it
            return False

    return right


WORDS = {"pounds": "lb", "kilograms": "kg", "miles": "mi", "kilometers": "km"}
"""Words for units that the plugin takes as well."""


def converts(value: float, source: str, target: str) -> Right:
    def unit(name: str) -> str:
        return WORDS.get(name.lower(), name.lower())

    return lambda a: (a["value"], unit(a["from_unit"]), unit(a["to_unit"])) == (value, source, target)


WITH_TOOL: list[Case] = [
    ("Compute (17 + 25) * 3", "calculate", gives(126)),
    ("What is 15% of 240?", "calculate", gives(36)),
    ("How much is 3 to the power of 11?", "calculate", gives(3**11)),
    ("How many miles is 42 km?", "unit_convert", converts(42, "km", "mi")),
    ("Convert 5 pounds to kilograms", "unit_convert", converts(5, "lb", "kg")),
    ("Show me the contents of /etc/hostname", "read_file", has("path", "/etc/hostname")),
    ("What does README.md say?", "read_file", has("path", "readme.md")),
    ("Open src/main.py and tell me what it does", "read_file", has("path", "src/main.py")),
    ("Find all files that contain the word TODO", "search_files", has("pattern", "todo")),
    ("Where is the function parse_config defined in this project?", "search_files", has("pattern", "parse_config")),
    ("Search for 'password' in the config directory", "search_files", has("pattern", "password")),
    ("Run the command uname -a", "terminal", has("command", "uname -a")),
    ("How much disk space is free on this machine?", "terminal", has("command", "df")),
    ("List the processes that use the most memory", "terminal", has("command", "ps")),
    ("Create a file notes.txt with the text hello world", "write_file", has("content", "hello world")),
    ("Write a Python script hello.py that prints Hello", "write_file", has("content", "print")),
]
WITHOUT_TOOL = [
    "Hello!",
    "Who are you?",
    "Thanks, that helped a lot.",
    "What is the capital of France?",
    "Explain in one sentence what a linked list is.",
    "Tell me a short joke.",
]
WITH_OTHER_TOOL: list[Case] = [
    (
        "Send a mail to office@example.org with subject Lunch saying let's meet at noon",
        "send_email",
        has("to", "office@"),
    ),
    ("Put 'dentist' on my calendar for 2026-12-03 at 9:30", "create_event", has("date", "2026-12-03")),
    ("What is on https://example.com/news ?", "http_get", has("url", "example.com/news")),
    ("Translate 'good morning' into French", "translate", has("text", "good morning")),
    ("Play something by Miles Davis", "play_music", has("query", "miles davis")),
    ("What's Apple trading at right now?", "get_stock_price", has("symbol", "aapl")),
    ("Set a timer for 12 minutes", "set_timer", lambda a: a["minutes"] == 12),
]


def find_wrong(call: tuple[str, Any], name: str, right: Right) -> str:
    """Return why a first call is not the needed one, or ""; its name is "" for a plain answer."""
    picked, arguments = call
    if picked != name:
        return f"{picked or 'no call'}, not {name or 'no call'}"
    return "" if not name or right(arguments) else f"other arguments: {str(arguments)[:160]}"
