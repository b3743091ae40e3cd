"""SQLite in WAL mode: one writer at a time in a process, and readers that do not wait.

Integrity, size, expiry.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_agent.core.errors import EXIT_CONFIG, EXIT_FAILED, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.store.migrations import Schema, migrate, split_sql, versions

BUSY_MS = 10_000
"""Longest wait of a statement for the write of another process, in milliseconds."""


class Database:
    """One connection; each write is one transaction. Use it from one thread at a time.

    Raises:
        UserError: the file is no database, or a newer release wrote it.
    """

    def __init__(self, path: Path, schemas: Sequence[Schema]) -> None:
        self.path = path
        self._writer = _writer_of(path)
        self._durable: bool | None = None
        try:
            with contextlib.suppress(FileExistsError):  # private from its creation
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as exc:
            raise UserError(f"cannot open {path}: {exc}", hint="The directory must exist and be writable.") from exc
        try:
            self._connection.row_factory = sqlite3.Row
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            with self._writer:
                self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only in a new file
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                migrate(self._connection, path, schemas, self.write)
        except sqlite3.DatabaseError as exc:
            self.close()
            # a locked file gets free again; a damaged one stays so, whatever the number of restarts
            status = EXIT_FAILED if isinstance(exc, sqlite3.OperationalError) else EXIT_CONFIG
            hint = "Move the file away, or restore a copy of it."
            raise UserError(f"cannot open {path}: {exc}", hint=hint, exit_status=status) from exc
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction: commit at the end of the block, roll back on an error.

        Args:
            durable: it is on disk at the end of the block; otherwise a power failure (not a crash) may undo it.
        """
        with self._writer:
            if durable is not self._durable:  # each statement waits twice for the interpreter lock
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
        """Run several queries on one state; no writer waits."""
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def read(self, sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    def shrink(self) -> None:
        """Return free pages to the file system, and empty the log."""
        with self._writer:
            # as a script: `execute` would free only one page
            self._connection.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_writers: dict[str, threading.RLock] = {}
_writers_lock = threading.Lock()


def _writer_of(path: Path) -> threading.RLock:
    """Return the lock that all connections of this process to the file take to write.

    If two connections write, SQLite lets one sleep and retry, which under load never succeeds.
    """
    with _writers_lock:
        return _writers.setdefault(os.path.realpath(path), threading.RLock())


DAY_S = 86400.0
MIB = 1024 * 1024
SHORTEST_S, LONGEST_S = DAY_S, 3650 * DAY_S
"""Rows used within the first stay however large the database is; `expire_rows` starts at the second without an age."""


class IntegrityReport(LazyNamedTuple):
    """The result of `check_database`.

    Attributes:
        faults: one line each; none if the database is intact.
        versions: for each owner the version of its tables, and the oldest version with code that can use them.
        rows: number of rows of each table.
        size: bytes of the file, and its free bytes.
    """

    faults: list[str]
    versions: dict[str, tuple[int, int]]
    rows: dict[str, int]
    size: tuple[int, int]


def check_database(path: Path) -> IntegrityReport:
    """Read every page of a database, which may be in use.

    Raises:
        UserError: it cannot be read at all.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            faults = [row[0] for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            faults += [
                f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
                for row in db.execute("PRAGMA foreign_key_check").fetchmany(20)
            ]
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            rows = {
                name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for name in tables
                if not name.startswith(("sqlite_", "schema_"))
            }
            return IntegrityReport(faults, versions(db), rows, _size(db))
    except sqlite3.Error as exc:
        raise UserError(
            f"cannot read {path}: {exc}", hint="`hermes state restore-points` lists copies to put back."
        ) from exc


def expire_rows(
    path: Path, schemas: Sequence[Schema], keep_days: float, max_mb: float, now: float | None = None
) -> int:
    """Remove rows that were not used for `keep_days` (0: no age limit); return the number of removed rows.

    Args:
        max_mb: size in MiB (0: none) above which the oldest rows are removed, but none of the last day.
        now: seconds since the epoch.
    """
    now = time.time() if now is None else now
    db = Database(path, schemas)
    try:
        removed = _remove(db, schemas, now - keep_days * DAY_S) if keep_days else 0
        keep_s = keep_days * DAY_S or LONGEST_S
        while max_mb and keep_s > SHORTEST_S and _used(db) > max_mb * MIB:
            keep_s = max(keep_s * 0.75, SHORTEST_S)
            removed += _remove(db, schemas, now - keep_s)
        db.shrink()
    finally:
        db.close()
    return removed


def _remove(db: Database, schemas: Sequence[Schema], before: float) -> int:
    removed = 0
    for schema in schemas:
        if schema.expire:
            with db.write() as write:
                for statement in split_sql(schema.expire):
                    removed += write.execute(statement, {"before": before}).rowcount
    return removed


def _used(db: Database) -> int:
    with db.snapshot() as read:
        size, free = _size(read)
    return size - free


def _size(db: sqlite3.Connection) -> tuple[int, int]:
    page, pages, free = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return page * pages, page * free
