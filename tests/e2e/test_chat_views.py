"""The main views of the chat at several widths, compared with expected ones that a person can read (`screens/`)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from chat_steps import called, heard, opened
from terminal_screen import PROMPT, TerminalScreen, check_screen, normal
from worlds import make_home, run

CHANGED = (
    (re.compile(r"  TIME$", re.MULTILINE), ""),  # only after a second
    (re.compile(r"[█▓▒░]{2,}"), "BAR"),
    (re.compile(r"(?<=  )(?:now|\d+ minutes? ago)\b"), "AGE"),
    (re.compile(r"(?<=[█▓▒░] )(\w[\w ]*\w) +[\d,]+ +[\d.]+ %"), r"\1 N %"),
    (re.compile(r"<?[\d,.]*\d(?=\s(?:tokens|tools|in|out|%))|(?<=about )[\d,]+"), "N"),
)
"""Numbers and ages that change with every tool and on a slow machine."""


class Views:
    """A user who opens views one after another, and keeps what each shows."""

    def __init__(self, terminal: TerminalScreen) -> None:
        self._terminal = terminal
        self.seen: list[str] = []

    def keep(self, name: str, last: str) -> None:
        """Keep what is shown from the last message of the user to the row with a text."""
        self._terminal.wait(last)
        before = ""

        def is_stable() -> bool:
            nonlocal before
            before, seen = self._terminal.view(last), before
            return before == seen

        self._terminal.until(is_stable, "a screen that stays")
        self.seen.append(f"--- {name}\n{before}")

    def choose(self, keys: str) -> None:
        """Answer a menu."""
        self._terminal.type(keys)
        self._terminal.gone("Enter choose")
        self._terminal.idle()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_main_views_look_as_expected(short_path: Path, scripted, columns: int) -> None:
    asked = {"question": "Which disk?", "choices": ["vault, in the cellar", "attic"]}
    fixtures: list[dict[str, Any]] = [
        *called("back up", ("clarify", asked), content="To the attic, then."),
        *called("watch", ("terminal", {"command": "cat go", "background": True}), content="It runs."),
        *called("begin", ("terminal", {"command": "cat on"}), content="It went."),
        heard("first", "One."),
    ]
    work = short_path / "work"
    work.mkdir()
    for name in ("on", "go"):
        os.mkfifo(work / name)
    with scripted(fixtures) as model:
        home = make_home(short_path, model)
        for key, value in (("model.context_length", "200000"), ("approvals.mode", "manual")):
            run(home, "config", "set", key, value)
        config = home / "config.yaml"
        config.write_text(config.read_text().replace("/v1", "/api/v1").replace("scripted-model", "acme/large"))
        terminal = opened(home, columns=columns, rows=45, directory=work)
        views = Views(terminal)
        terminal.say("back up")
        views.keep("clarify", "Enter choose")
        views.choose("2")
        terminal.wait("To the attic, then.")
        terminal.idle()
        terminal.say("/title the backup")
        terminal.wait("Title: the backup")
        terminal.idle()
        terminal.say("/cost")
        views.keep("cost", "Today")
        terminal.say("/new")
        terminal.wait("New session")
        terminal.idle()
        for name in ("model", "resume", "theme"):
            terminal.say(f"/{name}")
            views.keep(name, "Enter choose")
            views.choose("\x1b")
        for name, last in (("context", "compacted at"), ("keys", "close a menu")):
            terminal.say(f"/{name}")
            views.keep(name, last)
            terminal.idle()
        terminal.say("watch")
        terminal.wait("[o] Allow once")
        views.choose("o")
        terminal.wait("It runs.")
        terminal.wait("⧗ runs cat go")
        terminal.say("begin")
        terminal.wait("[o] Allow once")
        terminal.type("o")
        terminal.gone("[o] Allow once")
        terminal.wait("Running cat on")
        for text in ("first of several messages", "and a second one"):
            terminal.say(text)
            terminal.wait(f"queued: {text}"[:30])
        views.keep("queue and background", "")
        for name in ("on", "go"):
            (work / name).write_text("")  # opened for writing, which the command waits for
        terminal.wait("It went.")
        terminal.idle()
        assert terminal.leave() == 0
    text = "\n".join(views.seen).replace(str(short_path), "HOME")
    for pattern, name in CHANGED:
        text = pattern.sub(name, text)
    check_screen(f"views-{columns}", text)


@pytest.mark.parametrize("kind", ["dumb", "reader"])
def test_the_views_of_a_plain_screen_are_lines_with_numbers(short_path: Path, scripted, kind: str) -> None:
    asked = {"question": "Which disk?", "choices": ["vault", "attic"]}
    with scripted(called("back up", ("clarify", asked), content="To the attic, then.")) as model:
        home = make_home(short_path, model)
        if kind == "reader":
            run(home, "config", "set", "display.screen_reader", "true")
        terminal = TerminalScreen(home, columns=80, TERM="dumb" if kind == "dumb" else "xterm")
        terminal.wait(PROMPT)
        for typed, last in (
            ("back up", "[3] Another answer"),
            ("2", "To the attic, then."),
            ("/theme none", "theme: none"),
            ("/theme", "[4] none"),
            ("nothing", "is none of the answers"),
            ("2", "theme: light"),
            ("/title plans", "Title: plans"),
            ("/resume", "plans"),
            ("/copy code", "the last answer has no code block"),
        ):
            terminal.type(f"{typed}\r")
            terminal.wait(last)
        terminal.type("\x04")
        assert terminal.end() == 0
    check_screen(f"views-{kind}", normal(terminal.text()) + "\n")
