"""Messages in the form of the embedded model, and the examples that teach it.

The tools of the examples are not those of the menu, so that the model learns the form and not the names. The examples
with a command or a pattern use the tool that takes one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .tool_menu import MenuTool, closed_object_schema, format_result

_TRANSLATE = MenuTool(
    "translate",
    "Translate a text.",
    closed_object_schema({"text": {"type": "string"}, "language": {"type": "string"}}, ["text", "language"]),
    {"language": "Target language (e.g. 'de', 'fr')"},
    0,
)


def user_text(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def with_menu(question: str, names: Sequence[str]) -> str:
    """Return a question with the names of its menu."""
    return f"{question}\n[Tools for this: {', '.join(names)}]"


def call_reply(name: str, arguments: Any) -> dict[str, Any]:
    """Return the model's reply that calls a tool."""
    return _reply({"action": name, "arguments": arguments})


def final_reply(text: str) -> dict[str, Any]:
    """Return the model's reply with its answer."""
    return _reply({"action": "final", "text": text})


def _reply(value: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": json.dumps(value, ensure_ascii=False)}


def make_examples(tools: Sequence[MenuTool], *, has_menus: bool) -> list[dict[str, Any]]:
    """Return the examples.

    Args:
        has_menus: the questions of the conversation are followed by a menu.
    """
    shell = next((t.name for t in tools if "command" in t.parameters["required"]), "")

    search = next((t.name for t in tools if t.parameters["required"] == ["pattern"]), "")

    def ask(question: str, *names: str) -> dict[str, Any]:
        return user_text(with_menu(question, names) if has_menus else question)

    def run(question: str, command: str, output: str, answer: str) -> list[dict[str, Any]]:
        return [
            ask(question, shell, "count_pages"),
            call_reply(shell, {"command": command}),
            _result(shell, json.dumps({"output": output, "exit_code": 0})),
            final_reply(answer),
        ]

    shots = [
        ask("Who are you?", "get_weather", "translate"),
        final_reply("I am Hermes, an assistant that runs on this machine. How can I help?"),
        ask("What's the weather in Oslo?", "get_weather"),
        call_reply("get_weather", {"city": "Oslo"}),
        _result("get_weather", '{"temp_c": 7.5, "sky": "rain"}'),
        final_reply("In Oslo it is 7.5 °C and raining."),
        ask("Who wrote Hamlet?", "count_pages", "translate"),
        final_reply("William Shakespeare wrote Hamlet."),
        ask("What's (9 - 3) / (7 + 1) minus 4?", "evaluate"),
        call_reply("evaluate", {"formula": "(9 - 3) / (7 + 1) - 4"}),
        _result("evaluate", '{"value": -3.25}'),
        final_reply("It is -3.25."),
        ask("How do you say cat in German?", "translate"),
        call_reply("translate", {"text": "cat", "language": "german"}),
        _result("translate", '{"error": "german is no language"}', _TRANSLATE),
        call_reply("translate", {"text": "cat", "language": "de"}),
        _result("translate", '{"translation": "Katze"}'),
        final_reply("Cat is Katze in German."),
        ask("How many pages does thesis.pdf have?", "count_pages"),
        call_reply("count_pages", {"file": "thesis.pdf"}),
        _result("count_pages", '{"error": "thesis.pdf: no such file"}'),
        final_reply("I could not count the pages: there is no file thesis.pdf."),
    ]
    if shell:
        shots += [
            *run("Is nginx running?", "systemctl is-active nginx", "active\n", "Yes, nginx is active."),
            *run("How many words does poem.txt have?", "wc -w < poem.txt", "42\n", "poem.txt has 42 words."),
            *run("Which day of the week was 1969-07-20?", "date -d 1969-07-20 +%A", "Sunday\n", "It was a Sunday."),
            *run("Put the line call Bob at the end of calls.txt", "echo 'call Bob' >> calls.txt", "", "Done: calls.txt"
                 " now ends with the line call Bob."),
        ]  # fmt: skip
    if search:
        found = '{"matches": [{"path": "cakes.txt", "line": 2, "text": "juice of a lemon"}]}'
        shots += [
            ask("Which file mentions lemon?", search, "count_pages"),
            call_reply(search, {"pattern": "lemon"}),
            _result(search, found),
            final_reply("cakes.txt mentions lemon."),
        ]
    return [*shots, ask("You are great", "get_weather", "count_pages"), final_reply("Thank you!")]


def _result(name: str, text: str, tool: MenuTool | None = None) -> dict[str, Any]:
    return user_text(format_result(name, text, tool))
