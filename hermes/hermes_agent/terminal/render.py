"""What the events of a turn look like in a terminal. Writes to one stream; colour only where it may be coloured."""

from __future__ import annotations

import json
from typing import Any, TextIO

from hermes_agent.core.events import Event, Notice, TextDelta, ToolFinished, ToolStarted, TurnFinished
from hermes_agent.core.redact import redactor
from hermes_agent.io.colour import has_colour

__all__ = ["Renderer", "printable", "tool_line"]

LINE_LIMIT = 160

_DIM, _BOLD, _YELLOW, _RED, _CYAN, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[33m", "\x1b[31m", "\x1b[36m", "\x1b[0m"
_CLEAR = "\x1b[H\x1b[2J"


def printable(text: str) -> str:
    """Return `text` without control characters: what a model or a tool wrote must not steer the terminal."""
    return "".join(
        c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def tool_line(name: str, arguments: dict[str, Any]) -> str:
    """Return `name {"arg": …}` on one line."""
    return _one_line(f"{name} {json.dumps(arguments, ensure_ascii=False)}")


def _one_line(text: str) -> str:
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= LINE_LIMIT else flat[: LINE_LIMIT - 1] + "…"


class Renderer:
    """Shows events as they come.

    Args:
        answers: where the answer goes.
        notes: where tool lines and notices go; the same stream in a conversation.
    """

    def __init__(self, answers: TextIO, notes: TextIO) -> None:
        self._answers = answers
        self._notes = notes
        self._coloured = has_colour(notes)
        self._at_line_start = True
        self._wrote_text = False

    def show(self, event: Event) -> None:
        """Write one event."""
        match event:
            case TextDelta(text):
                self._text(printable(text))
            case ToolStarted(_, name, arguments):
                self._note(f"⚡ {tool_line(name, arguments)}", _CYAN)
            case ToolFinished(_, _, result, status, duration_ms):
                mark = "→" if status == "ok" else f"✗ {status}:"
                self._note(f"  {mark} {_one_line(result)}  ({duration_ms} ms)", _DIM if status == "ok" else _RED)
            case Notice(text, level):
                self._note(text, _YELLOW if level == "warning" else _DIM)
            case TurnFinished(text, reason, _, _):
                if not self._wrote_text and text:
                    self._text(printable(text))
                self._end_line()
                if reason == "interrupted":
                    self._note("(interrupted)", _DIM)

    def note(self, text: str) -> None:
        """Write a line that is not part of an answer."""
        self._note(text, "")

    def error(self, text: str) -> None:
        """Write an error."""
        self._note(text, _RED)

    def clear(self) -> None:
        """Clear the screen, where there is one."""
        if self._answers.isatty():
            self._answers.write(_CLEAR)
            self._answers.flush()
            self._at_line_start = True

    def _text(self, text: str) -> None:
        if not self._wrote_text:
            text = text.lstrip("\n")
        if not text:
            return
        self._answers.write(text)
        self._answers.flush()
        self._wrote_text = True
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._answers.write("\n")
            self._answers.flush()
            self._at_line_start = True

    def _note(self, text: str, colour: str) -> None:
        text = redactor.mask_known(text)
        if self._notes is self._answers or self._notes.isatty():
            self._end_line()
        line = f"{colour}{text}{_RESET}" if colour and self._coloured else text
        self._notes.write(line + "\n")
        self._notes.flush()
