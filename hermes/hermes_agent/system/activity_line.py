"""A line on the terminal that says what takes long, and since when."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from hermes_agent.core.text import shorten

SHOWN_AFTER_S = 1.0
"""Time after which the line appears."""
REFRESHED_S = 0.25
DEFAULT_COLUMNS = 80


class ActivityLine:
    """The line; it appears a second after it is made, and is gone when it is closed.

    Args:
        text: what is done.
        stream: the terminal.
    """

    def __init__(self, text: str, stream: TextIO) -> None:
        self.text = text
        self._stream = stream
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.RLock()
        self._is_visible = False
        self._thread = threading.Thread(target=self._run, name="activity", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        """Say from now on that something else is done."""
        self.text = text

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Keep the line away while the block writes to the terminal or reads from it."""
        with self._lock:
            self._clear()
            yield

    def close(self) -> None:
        """Remove the line for good."""
        self._ended.set()
        self._thread.join()
        self._clear()

    def _run(self) -> None:
        wait_s = SHOWN_AFTER_S
        while not self._ended.wait(wait_s):
            wait_s = REFRESHED_S
            with self._lock:
                self._show()

    def _show(self) -> None:
        age = f" … {time.monotonic() - self._began:.0f} s"
        shown = "".join(c if c.isprintable() else "?" for c in self.text)
        room = max(_columns(self._stream) - len(age) - 1, 10)
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            self._stream.write(f"\r\x1b[K{shorten(shown, room)}{age}")
            self._stream.flush()
            self._is_visible = True

    def _clear(self) -> None:
        if self._is_visible:
            self._is_visible = False
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\r\x1b[K")
                self._stream.flush()


def has_activity_line(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can show the line."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


_open: list[ActivityLine] = []
"""The line of the outermost activity of this process."""


@contextlib.contextmanager
def activity_line(text: str) -> Iterator[ActivityLine | None]:
    """Yield a line on stderr, or None without a terminal; an inner activity uses the outer line."""
    if not has_activity_line(sys.stderr):
        yield None
    elif _open:
        line, before = _open[-1], _open[-1].text
        line.say(text)
        try:
            yield line
        finally:
            line.say(before)
    else:
        line = ActivityLine(text, sys.stderr)
        _open.append(line)
        try:
            yield line
        finally:
            _open.clear()
            line.close()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS
