"""Steps of tests of the chat: an open chat, and fixtures of the scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from terminal_screen import TerminalScreen


def opened(home: Path, *arguments: str, **options: Any) -> TerminalScreen:
    """Return a chat that waits for a message."""
    terminal = TerminalScreen(home, *arguments, **options)
    terminal.wait("Ctrl-D")
    terminal.idle()
    return terminal


def heard(text: str, content: str, **more: Any) -> dict[str, Any]:
    """Return a fixture: the answer to messages that contain `text`."""
    return {"match": {"userMessage": text}, "response": {"content": content}, **more}


def called(question: str, *calls: tuple[str, dict[str, Any]], content: str) -> list[dict[str, Any]]:
    """Return fixtures: calls one after another, then an answer."""
    fixtures: list[dict[str, Any]] = []
    last: dict[str, Any] = {"userMessage": question, "hasToolResult": False}
    for number, (name, arguments) in enumerate(calls):
        call = {"id": f"{question.replace(' ', '_')}_{number}", "name": name, "arguments": json.dumps(arguments)}
        fixtures.append({"match": last, "response": {"toolCalls": [call]}})
        last = {"toolCallId": call["id"]}
    return [*fixtures, {"match": last, "response": {"content": content}}]


def user_texts(model: Any) -> list[Any]:
    """Return the messages of the user in the last model request."""
    return [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
