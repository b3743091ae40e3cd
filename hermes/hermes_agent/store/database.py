"""SQLite in WAL mode: one writer at a time in a process, and readers that wait for nobody."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.store.schema import Schema, migrate

__all__ = ["Database"]

BUSY_MS = 10_000
"""How long a statement waits for another process's write, in milliseconds."""


class Database:
    """One connection. Every write is a transaction of its own; use it from one thread at a time.

    Raises:
        UserError: the file is not a database, or a newer release wrote it.
    """

    def __init__(self, path: Path, schemas: Sequence[Schema]) -> None:
        self.path = path
        self._writer = _writer_of(path)
        self._durable: bool | None = None
        try:
            with contextlib.suppress(FileExistsError):  # made private from its first moment
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as exc:
            raise UserError(f"cannot open {path}: {exc}", hint="The directory must exist and be writable.") from exc
        try:
            self._connection.row_factory = sqlite3.Row
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            with self._writer:
                self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has effect in a new file alone
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                migrate(self._connection, path, schemas, self.write)
        except sqlite3.DatabaseError as exc:
            self.close()
            raise UserError(f"cannot open {path}: {exc}", hint="Move the file away, or restore a copy of it.") from exc
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, rolled back when an error leaves the block.

        Args:
            durable: it is on the disk when the block is left; otherwise a power cut (not a crash) may undo it.
        """
        with self._writer:
            if durable is not self._durable:  # each statement waits for the interpreter's lock, twice
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
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

    def shrink(self) -> None:
        """Give free pages back to the file system, and empty the log."""
        with self._writer:
            # as a script: `execute` would let it free one page
            self._connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")

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
