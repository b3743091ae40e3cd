"""A user at a terminal: `hermes` in a pseudo-terminal, its screen as text, and a recording of what it wrote."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pyte

from worlds import HERMES, environment

SCREENS = Path(__file__).parent / "screens"
PROMPT = "❯"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FIELDS = (
    (re.compile(r"\b\d{8}_\d{6}_[0-9a-f]{6}\b"), "SESSION"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b"), "TIME"),
    (re.compile(r"http://127\.0\.0\.1:\d+\S*"), "ADDRESS"),
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "⠋"),
    (re.compile(r"#[0-9a-f]{4}\]"), "#MARK]"),
    (re.compile(r"(?<=restore )[0-9a-f]{10}"), "CHECKPOINT"),
    (re.compile(r"^(tools:?\s+).*?(?=^plugins)", re.DOTALL | re.MULTILINE), r"\1TOOLS\n"),
)
"""What differs from run to run, and what stands for it in an expected screen."""


class TerminalScreen:
    """A terminal with a user.

    Args:
        variables: added to the environment.
    """

    def __init__(
        self,
        home: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 30,
        directory: Path | None = None,
        command: list[str] | None = None,
        **variables: str,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self.recording: list[tuple[float, str, str]] = []
        """Time, kind (`o` for output, `m` for a marker) and text."""
        self.raw = ""
        self._began = time.monotonic()
        program, *more = command or [HERMES, *arguments]
        self.process = pexpect.spawn(
            program,
            more,
            env=environment(home, **{"TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **variables}),  # type: ignore[arg-type]
            cwd=str(directory or home.parent),
            encoding="utf-8",
            dimensions=(rows, columns),
            timeout=30,
        )

    # -- what the user does ------------------------------------------------------------------------------------

    def type(self, text: str) -> None:
        """Type keys."""
        self.process.send(text)

    def say(self, text: str) -> None:
        """Type a line and Enter."""
        self.process.send(text)
        self.until(lambda: self.shows(text.split("\n")[-1][-20:]))
        self.process.send("\r")

    def paste(self, text: str) -> None:
        """Paste, as a terminal with bracketed paste does."""
        self.process.send(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self.screen.resize(rows, columns)
        self.process.setwinsize(rows, columns)

    def leave(self) -> int:
        """Leave with Ctrl-D and return the exit status."""
        self.process.sendeof()
        return self.end()

    def leave_after_clearing(self) -> int:
        """Clear the input, leave, and return the exit status."""
        self.type("\x03")
        return self.leave()

    def end(self) -> int:
        """Wait for the end of the program and return its exit status."""
        self.until(lambda: self._read() is None, "the end of the program")
        self.process.close()
        return self.process.exitstatus if self.process.exitstatus is not None else -(self.process.signalstatus or 0)

    # -- what the user sees ------------------------------------------------------------------------------------

    def wait(self, text: str) -> None:
        """Wait until the screen or its scrollback shows a text."""
        self.until(lambda: self.shows(text), repr(text))

    def gone(self, text: str) -> None:
        """Wait until the visible screen does not show a text."""
        self.until(lambda: text not in "\n".join(self.visible()), f"{text!r} to go away")

    def until(self, condition: Callable[[], bool], what: str = "a screen", timeout_s: float = 30.0) -> None:
        """Read what the program writes until a condition holds."""
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, f"waited for {what}; the screen:\n{self.text()}"
            if self._read() is None and not condition():
                raise AssertionError(f"the program ended before {what}; the screen:\n{self.text()}")

    def idle(self) -> None:
        """Wait until no turn runs."""
        self.until(lambda: not any(c in SPINNER for row in self.visible() for c in row), "the end of the turn")

    def settle(self) -> None:
        """Read until nothing is written for a moment."""
        while self._read(0.4):
            pass

    def shows(self, text: str) -> bool:
        """Return whether the screen or its scrollback shows a text."""
        return text in self.text()

    def visible(self) -> list[str]:
        """Return the rows of the screen, without blanks at their ends."""
        return [row.rstrip() for row in self.screen.display]

    def visible_rows(self) -> list[str]:
        """Return the rows of the screen down to the last one with text."""
        rows = self.visible()
        return rows[: max((number for number, row in enumerate(rows) if row), default=0) + 1]

    def input(self) -> str | None:
        """Return the text of the input, from the last prompt to the row of the cursor; None without a prompt."""
        rows = self.visible()
        first = max((number for number, row in enumerate(rows) if row.startswith(PROMPT)), default=None)
        if first is None:
            return None
        lines = [rows[first].removeprefix(PROMPT).strip()]
        for row in rows[first + 1 : self.screen.cursor.y + 1]:
            lines.append(row.strip())
        return "\n".join(lines)

    def text(self) -> str:
        """Return the scrollback and the screen."""
        above = ["".join(row[i].data for i in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*above, *self.visible()]).rstrip()

    def normal(self, **more: str) -> str:
        """Return scrollback and screen with names for what differs from run to run."""
        return normal(self.text(), **more) + "\n"

    def view_of_menu(self) -> str:
        """Return the open menu, or ""; with names for what differs from run to run."""
        rows = self.visible_rows()
        end = next((number for number, row in enumerate(rows) if "Enter choose" in row), None)
        if end is None:
            return ""
        begin = max((number for number, row in enumerate(rows[:end]) if not row), default=-1)
        return normal("\n".join(rows[begin + 1 : end + 1])) + "\n"

    def view(self, last: str) -> str:
        """Return what is visible from the last message of the user to the paragraph with a text, as `normal`."""
        rows = self.visible_rows()
        end = max(number for number, row in enumerate(rows) if last in row)
        while end + 1 < len(rows) and rows[end + 1] and not rows[end + 1].startswith(PROMPT):
            end += 1
        begin = max((number for number, row in enumerate(rows[:end]) if row.startswith(f"{PROMPT} ")), default=0)
        return normal("\n".join(rows[begin : end + 1])) + "\n"

    def _read(self, timeout_s: float = 0.2) -> str | None:
        try:
            text = self.process.read_nonblocking(65_536, timeout_s)
        except pexpect.TIMEOUT:
            return ""
        except pexpect.EOF:
            return None
        self.recording.append((time.monotonic() - self._began, "o", text))
        self.raw += text
        self._stream.feed(text)
        return text

    def mark(self, label: str) -> None:
        """Put a marker into the recording."""
        self.recording.append((time.monotonic() - self._began, "m", label))

    def asciicast(self) -> str:
        """Return the recording in the format asciicast v2."""
        head: dict[str, Any] = {"version": 2, "width": self.screen.columns, "height": self.screen.lines}
        return "\n".join(
            json.dumps(each) for each in (head, *([round(at, 3), kind, text] for at, kind, text in self.recording))
        )


def normal(text: str, **more: str) -> str:
    """Return a text with names for what differs from run to run."""
    for value, name in more.items():
        text = text.replace(name, value)
    for pattern, name in FIELDS:
        text = pattern.sub(name, text)
    return text


def check_screen(name: str, shown: str) -> None:
    """Compare a screen with the expected one in `screens/NAME.txt`; `HERMES_WRITE_SCREENS=1` writes it."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("HERMES_WRITE_SCREENS"):
        file.write_text(shown, encoding="utf-8")
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    assert shown == expected, f"screens/{name}.txt differs; HERMES_WRITE_SCREENS=1 writes it anew:\n{shown}"
