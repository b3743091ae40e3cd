"""Which tool the embedded model picks, with real weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from toolbox import OTHERS, SYSTEM, step, value_of

from hermes_agent.contracts.model_client import ModelClient
from hermes_agent.core.messages import Message

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model"), pytest.mark.timeout(1200)]

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


def ask(runner: asyncio.Runner, model: ModelClient, question: str, tools: list[dict[str, Any]]) -> tuple[str, Any]:
    answer, _ = runner.run(step(model, [SYSTEM, Message("user", question)], tools))
    calls = answer.message.tool_calls
    return (calls[0].name, json.loads(calls[0].arguments)) if calls else ("", answer.message.text)


def wrong(runner: asyncio.Runner, model: ModelClient, cases: list[Case], tools: list[dict[str, Any]]) -> list[Any]:
    found = []
    for question, name, right in cases:
        picked, arguments = ask(runner, model, question, tools)
        if picked != name or not right(arguments):
            found.append((question, picked, arguments))
    return found


def test_at_least_12_of_16_requests_call_the_right_tool_of_those_that_are_shipped(
    runner: asyncio.Runner, model: ModelClient, shipped: list[dict[str, Any]]
) -> None:
    missed = wrong(runner, model, WITH_TOOL, shipped)
    assert len(missed) <= 4, missed  # 13 are right; another machine rounds otherwise


def test_at_least_5_of_6_requests_that_need_no_tool_are_answered_without_one(
    runner: asyncio.Runner, model: ModelClient, shipped: list[dict[str, Any]]
) -> None:
    called = [(q, picked) for q in WITHOUT_TOOL if (picked := ask(runner, model, q, shipped))[0]]
    assert len(called) <= 1, called


def test_tools_that_the_examples_know_nothing_of_are_called_as_well(runner: asyncio.Runner, model: ModelClient) -> None:
    missed = wrong(runner, model, WITH_OTHER_TOOL, OTHERS)
    assert len(missed) <= 1, missed


def test_without_tools_it_answers_in_plain_text(runner: asyncio.Runner, model: ModelClient) -> None:
    answer, streamed = runner.run(step(model, [Message("user", "What is the capital of France?")], []))
    assert "Paris" in answer.message.text
    assert streamed == answer.message.text
    assert answer.finish_reason == "stop"
    assert answer.usage.output_tokens > 0
