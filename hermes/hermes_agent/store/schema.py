"""The tables of one owner, and how they come from one version to the next.

A release reads its own schema and the next one, so that the release before can be put back: a step only adds (tables,
indexes, columns with a default). What it replaces is removed by a later release, in a step that sets `min_reader`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Schema", "statements"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one owner.

    Attributes:
        owner: the package that owns them (`sessions`).
        steps: SQL scripts; step N takes the tables from version N to N+1. A released step is never changed.
        min_reader: the oldest version whose code can work with the tables that the steps make; None: the one before.
        expire: SQL that removes what was last used before `:before` (seconds since the epoch); empty: nothing is ever
            removed for its age.
    """

    owner: str
    steps: tuple[str, ...]
    min_reader: int | None = None
    expire: str = ""

    @property
    def version(self) -> int:
        """The version that the steps lead to."""
        return len(self.steps)

    @property
    def readable_from(self) -> int:
        """`min_reader` with its default."""
        return self.version - 1 if self.min_reader is None else self.min_reader


def statements(script: str) -> Iterator[str]:
    """Split a script into statements (`executescript` would end the transaction)."""
    statement = ""
    for piece in re.split(r"(?<=;)", script):
        statement += piece
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
