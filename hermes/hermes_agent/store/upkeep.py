"""Looking after a database: is it whole, how big is it, what is too old."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.store.database import Database
from hermes_agent.store.schema import Schema, split_sql, versions

__all__ = ["IntegrityReport", "check_database", "expire_rows"]

DAY_S = 86400.0
MIB = 1024 * 1024
SHORTEST_S, LONGEST_S = DAY_S, 3650 * DAY_S
"""What was used within the first stays, however big the database is; where it begins when nothing goes for its age."""


class IntegrityReport(NamedTuple):
    """What `check` found.

    Attributes:
        faults: one line each; none when the database is whole.
        versions: by owner the version of its tables, and the oldest version whose code can work with them.
        rows: by table, how many there are.
        size: bytes of the file, and those of them that are free.
    """

    faults: list[str]
    versions: dict[str, tuple[int, int]]
    rows: dict[str, int]
    size: tuple[int, int]


def check_database(path: Path) -> IntegrityReport:
    """Read every page of a database, while others use it or not. Raises UserError: it cannot be read at all."""
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
    """Remove what was not used for `keep_days` (0: nothing for its age); return how many rows went.

    Args:
        max_mb: size in MiB (0: none) beyond which more goes, the oldest first, but nothing of the last day.
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
