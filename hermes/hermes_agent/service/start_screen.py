"""What a user who starts the daemon in a terminal sees of its log: the first lines, and how many more there are.

The files of the log have everything. Once the start is over, so is the limit.
"""

from __future__ import annotations

import logging
import time
from typing import TextIO

from hermes_agent.service.formats import report_failure

__all__ = ["StartScreen"]

FIRST_LINES = 6
"""Until the start is over."""
LAST_LINES = 2
"""From then on, of which one says that the daemon is ready."""
START_S = 10.0
"""How long after that things of the start are still reported: platforms that do not connect, say."""
REST = "`hermes gateway status` and `hermes doctor` say what is wrong, `hermes logs` everything"


class StartScreen(logging.StreamHandler[TextIO]):
    """Lines to a terminal."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._left, self._held = FIRST_LINES, 0
        self._until: float | None = None
        """When the limit ends; None during the start."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, or count it."""
        if self._until is not None and time.monotonic() > self._until:
            super().emit(record)
            return
        try:
            lines = self.format(record).count("\n") + 1
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is reported by the handler
            lines = 1
        if self._held == 0 and lines <= self._left:
            self._left -= lines
            super().emit(record)
            return
        self._held += 1
        if self._until is not None and self._held == 1:
            self._print(f"more follows: {REST}")

    def end_start(self) -> None:
        """Say how much was left out; what comes next is shown. Safe to call again."""
        self.acquire()
        try:
            if self._until is not None:
                return
            if self._held:
                self._print(f"and {self._held} more: {REST}")
            self._left, self._held, self._until = LAST_LINES, 0, time.monotonic() + START_S
        finally:
            self.release()

    def handleError(self, record: logging.LogRecord) -> None:
        """Report a record that cannot be written."""
        report_failure(self, record)

    def _print(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.flush()
