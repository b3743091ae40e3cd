"""A known secret, in each form, in the console: what it shows in a real pseudo-terminal, and what it keeps of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.test_secrets import FORMS, MARKER, Peer, inner, kept, served, settle, squeezed
from terminal_screen import PROMPT, SPINNER, TerminalScreen

TRIED = list(FORMS) if os.environ.get("HERMES_ATTACK_FULL") == "1" else ["plain", "base64"]
TYPED = ("my key is {} today", "/title {}", "/model {}", "/resume {}", "/{}", "/undo", "/context", "/usage", "/status")
"""What a user types; `{}` is the secret on one line."""


class Console:
    """A user at `hermes` in a terminal that is too wide for a line to wrap."""

    def __init__(self, home: Path) -> None:
        self._terminal = TerminalScreen(home, columns=900, rows=50)
        self._rows: dict[str, None] = {}
        """All rows that were ever shown, but for the input, which shows what is typed."""
        self._terminal.wait("Ctrl-D leaves")
        self._ready()

    def _ready(self) -> None:
        """Wait for the end of the turn or command, and allow what is asked on the way."""
        while True:
            self._terminal.until(self._sees_prompt_or_question, "the prompt")
            if not any("[o] Allow once" in row for row in self._terminal.visible()):
                return
            self._terminal.type("o")
            self._terminal.until(lambda: self._note() and not self._asks(), "the end of the question")

    def _asks(self) -> bool:
        return any("[o] Allow once" in row for row in self._terminal.visible())

    def _note(self) -> bool:
        self._rows |= dict.fromkeys(row for row in self._terminal.visible() if not row.startswith(PROMPT))
        return True

    def _sees_prompt_or_question(self) -> bool:
        self._note()
        rows = self._terminal.visible()
        is_working = any(c in SPINNER for row in rows for c in row)
        return self._asks() or (not is_working and PROMPT in rows)

    def say(self, line: str) -> None:
        """Type a line, and wait until it was handled."""
        count = self._prompts()
        self._terminal.type(line + "\r")
        self._terminal.until(lambda: self._note() and self._prompts() > count, "the message")
        self._ready()

    def _prompts(self) -> int:
        """Return the number of messages that are shown, and of inputs."""
        return sum(row.startswith(PROMPT) for row in self._terminal.text().splitlines())

    def leave(self) -> str:
        """Leave; return all that was shown but for the input."""
        self._terminal.leave()
        self._note()
        return "\n".join([self._terminal.text(), *self._rows])


def answer_of_model(form: str) -> str:
    """Return a pattern of what `/model` answers to a form: a word with `=` is an option, and it takes one name."""
    secret = FORMS[form](MARKER)
    if "=" in secret:
        return r"'\S*\[redacted\]\S*' is no option of a model"
    if secret.split() != [secret]:
        return r"'\[redacted\]' is more than one model"
    return r"model: \S*\[redacted\]\S* \("


@pytest.mark.attack("secrets")
def test_the_console_shows_and_keeps_no_secret_in_any_form(
    tmp_path: Path, attempt: Callable[[bool, str], None]
) -> None:
    peer = Peer()
    with served(peer) as address:
        home = settle(tmp_path, address)
        config = json.loads((home / "config.yaml").read_text())
        config |= {"approvals": {"mode": "manual"}, "plugins": {"enabled": []}}
        (home / "config.yaml").write_text(json.dumps(config))
        shown: dict[str, str] = {}
        for form in TRIED:
            peer.form = form
            secret = " ".join(FORMS[form](MARKER).split("\n"))
            console = Console(home)
            for line in TYPED:
                console.say(line.format(secret))
            shown[form] = console.leave()
        typed = (home / "history").read_text()
    assert "my key is [redacted] today" in typed
    assert "/title [redacted]" in typed
    for form in TRIED:
        assert re.search(r"The key is \S*\[redacted\]\S* as you know", shown[form]), shown[form]
        assert all(word in shown[form] for word in ("Ran ", "Remembered ", "Planned ", "Scheduled "))
        assert all(text in shown[form] for text in ("wants to run a command", "Title: ", "no session"))
        assert re.search(f"^{answer_of_model(form)}", shown[form], re.MULTILINE), shown[form]
        attempt(inner(form) not in squeezed(shown[form]), f"{form}: the console")
        attempt(inner(form) not in squeezed(typed), f"{form}: the history of the console")
        for kind, text in kept(home).items():
            attempt(inner(form) not in squeezed(text), f"{form}: the home of the console: {kind}")
