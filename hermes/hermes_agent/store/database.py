"""SQLite in WAL mode, migrated owner by owner, each step in one transaction."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.core.errors import UserError

__all__ = ["Database", "Schema"]

BUSY_MS = 10_000
"""How long a statement waits for another process's write, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one owner.

    Attributes:
        owner: the package that owns them (`sessions`).
        steps: SQL scripts; step N takes the tables from version N to N+1. A released step is never changed.
    """

    owner: str
    steps: tuple[str, ...]


class Database:
    """One connection. Every write is a transaction of its own; use it from one thread at a time.

    Raises:
        UserError: the file is not a database, or a newer release wrote it.
    """

    def __init__(self, path: Path, schemas: Sequence[Schema]) -> None:
        self.path = path
        self._writer = _writer_of(path)
        try:
            with contextlib.suppress(FileExistsError):  # made private from its first moment
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as exc:
            raise UserError(f"cannot open {path}: {exc}", hint="The directory must exist and be writable.") from exc
        try:
            self._connection.row_factory = sqlite3.Row
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._migrate(schemas)
        except sqlite3.DatabaseError as exc:
            self.close()
            raise UserError(f"cannot open {path}: {exc}", hint="Move the file away, or restore a copy of it.") from exc
        except BaseException:
            self.close()
            raise

    def _migrate(self, schemas: Sequence[Schema]) -> None:
        with self.write() as db:
            db.execute("CREATE TABLE IF NOT EXISTS schema_version (owner TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        for schema in schemas:
            with self.write() as db:
                row = db.execute("SELECT version FROM schema_version WHERE owner = ?", (schema.owner,)).fetchone()
                version = row[0] if row else 0
                if version > len(schema.steps):
                    raise UserError(
                        f"{self.path} was written by a newer hermes-agent: tables of {schema.owner} are at version"
                        f" {version}, this release knows {len(schema.steps)}",
                        hint="Run the newer release, or restore an older copy of the file.",
                    )
                for step in schema.steps[version:]:
                    for statement in _statements(step):
                        db.execute(statement)
                db.execute(
                    "INSERT INTO schema_version VALUES (?, ?)"
                    " ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
                    (schema.owner, len(schema.steps)),
                )

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, rolled back when an error leaves the block.

        Args:
            durable: it is on the disk when the block is left; otherwise a power cut (not a crash) may undo it.
        """
        with self._writer:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk rolls back by itself
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several queries that see one state; no writer waits for it."""
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_writers: dict[str, threading.RLock] = {}
_writers_lock = threading.Lock()


def _writer_of(path: Path) -> threading.RLock:
    """Return the lock that every connection of this process to the file takes to write.

    Of two connections that want to write, SQLite lets one sleep and try again, which under load never gets its turn.
    """
    with _writers_lock:
        return _writers.setdefault(os.path.realpath(path), threading.RLock())


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements (`executescript` would end the transaction)."""
    statement = ""
    for piece in re.split(r"(?<=;)", script):
        statement += piece
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
