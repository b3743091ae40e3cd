"""A known secret, in each form, in the console: what it shows in a real pseudo-terminal, and what it keeps of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from attack.test_secrets import FORMS, MARKER, Peer, inner, kept, served, settle, squeezed
from worlds import HERMES, environment

PROMPT = "❯"
OPENS, CLOSES = "\x1b[?2004h", "\x1b[?2004l"
"""Sent when a line begins to be typed, and when it is done."""
EDITED = re.compile(rf"{re.escape(OPENS)}.*?{re.escape(CLOSES)}", re.DOTALL)
"""The line while it is typed, which shows what is typed."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|[\r\x07]")
TRIED = list(FORMS) if os.environ.get("HERMES_ATTACK_FULL") == "1" else ["plain", "base64"]
TYPED = ("my key is {} today", "/title {}", "/model {}", "/resume {}", "/{}", "/undo", "/context", "/usage", "/status")
"""What a user types; `{}` is the secret on one line."""


class Console:
    """A user at `hermes` in a terminal of 200 columns."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.process = pexpect.spawn(
            HERMES,
            list(arguments),
            env=environment(home, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1"),  # type: ignore[arg-type]
            cwd=str(home.parent),
            encoding="utf-8",
            dimensions=(40, 200),
            timeout=60,
        )
        self.raw = ""

    def _until(self, *texts: str) -> int:
        found = self.process.expect_exact(list(texts))
        self.raw += self.process.before + self.process.after
        return int(found)

    def ready(self) -> None:
        """Wait for the prompt, and allow what is asked on the way."""
        self._until(OPENS)
        while self._until("Allow?", PROMPT) == 0:
            self.say("o")
            self._until(OPENS)

    def say(self, line: str) -> None:
        """Type a line."""
        self.process.send(line + "\r")
        self._until(CLOSES)

    def leave(self) -> str:
        """Leave; return all that was shown but for the lines while they were typed."""
        self.process.sendeof()
        self.process.expect(pexpect.EOF)
        self.raw += self.process.before
        self.process.close()
        return ESCAPES.sub("", EDITED.sub("\n", self.raw))


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
                console.ready()
                console.say(line.format(secret))
            console.ready()
            shown[form] = console.leave()
        typed = (home / "history").read_text()
    assert "my key is [redacted] today" in typed
    assert "/title [redacted]" in typed
    for form in TRIED:
        assert re.search(r"The key is \S*\[redacted\]\S* as you know", shown[form]), shown[form]
        assert all(f"⚡ {tool} " in shown[form] for tool in ("terminal", "memory", "todo", "cronjob"))
        assert all(text in shown[form] for text in ("wants to run a command", "Title: ", "model: ", "no session"))
        attempt(inner(form) not in squeezed(shown[form]), f"{form}: the console")
        attempt(inner(form) not in squeezed(typed), f"{form}: the history of the console")
        for kind, text in kept(home).items():
            attempt(inner(form) not in squeezed(text), f"{form}: the home of the console: {kind}")
