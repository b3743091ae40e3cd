"""The log of a test: every line of the agent and of plugins, from DEBUG up."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import NamedTuple

from hermes_agent.core.redact import redactor
from hermes_agent.plugins.loader import PARENT

__all__ = ["LogLine", "captured_log"]

FROM_DEBUG = ("hermes_agent", PARENT)
"""Loggers that are heard in full; those of others from the level that they have."""


class LogLine(NamedTuple):
    """A line of the log, secrets masked as in the files."""

    level: str
    """`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    logger: str
    text: str

    def __str__(self) -> str:
        return f"{self.level} {self.logger}: {self.text}"


class _Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(LogLine(record.levelname, record.name, redactor(record.getMessage())))


@contextlib.contextmanager
def captured_log() -> Iterator[list[LogLine]]:
    """Collect the lines while the block runs; other handlers get them as well."""
    keep = _Keep()
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in FROM_DEBUG}
    root.addHandler(keep)
    for name in FROM_DEBUG:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield keep.lines
    finally:
        root.removeHandler(keep)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
