"""A command that asks questions line by line, in a pseudo-terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pexpect

from worlds import HERMES, environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|[\r\x07]")


class PromptedCommand:
    """A user at a terminal of 100 columns."""

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        self.process = pexpect.spawn(
            HERMES,
            list(arguments),
            env=environment(home, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", **variables),  # type: ignore[arg-type]
            cwd=str(home.parent),
            encoding="utf-8",
            dimensions=(40, 100),
            timeout=30,
        )
        self.seen = ""
        self.raw = ""

    def expect(self, text: str) -> str:
        """Wait for `text` and return everything up to it, without escapes."""
        self.process.expect_exact(text)
        piece = ESCAPES.sub("", self.process.before + text)
        self.seen += piece
        self.raw += self.process.before + text
        return piece

    def say(self, text: str) -> None:
        self.process.send(text + "\r")

    def leave(self, line: str = "") -> int:
        """Leave with a line, or with Ctrl-D, and return the exit status."""
        if line:
            self.say(line)
        else:
            self.process.sendeof()
        return self.end()

    def end(self) -> int:
        """Wait for the end, and return the exit status."""
        self.process.expect(pexpect.EOF, timeout=120)
        self.seen += ESCAPES.sub("", self.process.before)
        self.raw += self.process.before
        self.process.close()
        return int(self.process.exitstatus or 0)
