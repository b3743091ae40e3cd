"""The main views of the chat at several widths, compared with expected ones that a person can read (`screens/`)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from chat_steps import called, heard, opened
from terminal_screen import PROMPT, SCREENS, TerminalScreen, check_screen, normal
from worlds import make_home, run

CHANGED = (
    (re.compile(r"(?<=tokens,)\s+(?:TIME|[\d.]+\s+m?s)\b"), " TIME"),  # breaks after the comma, or before the unit
    (re.compile(r"  TIME$", re.MULTILINE), ""),  # only after a second
    (re.compile(r"[█▓▒░]{2,}"), "BAR"),
    (re.compile(r"(?<=  )(?:now|\d+ minutes? ago)\b"), "AGE"),
    (re.compile(r"(?<=[█▓▒░] )(\w[\w ]*\w) +[\d,]+ +[\d.]+ %"), r"\1 N %"),
    (re.compile(r"<?[\d,.]*\d(?=\s(?:tokens|tools|in|out|%))|(?<=about )[\d,]+"), "N"),
)
"""Numbers and ages that change with every tool and on a slow machine."""


class Views:
    """A user who opens views one after another, and keeps what each shows.

    Args:
        file: name of the expected screens.
        place: the path that stands as HOME in them.
    """

    def __init__(self, terminal: TerminalScreen, file: str, place: Path) -> None:
        self._terminal, self._place = terminal, str(place)
        self._expected = expected_views(file)
        self.seen: list[str] = []

    def keep(self, name: str, last: str) -> None:
        """Keep what is shown from the last message of the user to the row with a text.

        A screen changes until it is the expected one. A screen that never is, is kept as it stays.
        """
        self._terminal.wait(last)
        wanted, before, quiet = self._expected.get(name), "", 0

        def is_final() -> bool:
            nonlocal before, quiet
            if not any(last in row for row in self._terminal.visible()):
                return False  # between two frames
            seen = self._cleaned(self._terminal.view(last))
            quiet = quiet + 1 if seen == before else 0
            before = seen
            return seen.rstrip() == wanted or quiet >= (2 if wanted is None else 50)

        self._terminal.until(is_final, "a screen that stays")
        self.seen.append(f"--- {name}\n{before}")

    def _cleaned(self, text: str) -> str:
        text = text.replace(self._place, "HOME")
        for pattern, name in CHANGED:
            text = pattern.sub(name, text)
        return text

    def choose(self, keys: str) -> None:
        """Answer a menu."""
        self._terminal.type(keys)
        self._terminal.gone("Enter choose")
        self._terminal.idle()


def expected_views(file: str) -> dict[str, str]:
    """Return the expected screens of a file by name; none if they are to be written."""
    path = SCREENS / f"{file}.txt"
    if os.environ.get("HERMES_WRITE_SCREENS") or not path.exists():
        return {}
    parts = re.split(r"^--- (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


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
        views = Views(terminal, f"views-{columns}", short_path)
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
    check_screen(f"views-{columns}", "\n".join(views.seen))


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
