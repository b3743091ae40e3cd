"""Migrations of tables, one transaction for each version, and restore points before them.

A release reads its own schema and the next one, so that the previous release can run again. A step only adds tables,
indexes, or columns with a default. A later release removes what it replaced, in a step that sets `min_reader`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass

MAX_RESTORE_POINTS = 5
"""Restore points to keep; the oldest are removed."""


def list_restore_points(path: Path) -> list[Path]:
    """Return the restore points of a database, newest first."""
    return sorted(_folder(path).glob("*.db"), reverse=True)


def create_restore_point(connection: sqlite3.Connection, path: Path, why: str) -> Path:
    """Copy the database, and remove the oldest copies.

    Raises:
        UserError: there is no space or no permission.
    """
    folder = _folder(path)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    target = folder / f"{stamp}-{os.getpid()}-{why}.db"
    unfinished = target.with_suffix(".part")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(unfinished)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
        unfinished.rename(target)
    except (OSError, sqlite3.Error) as exc:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise UserError(
            f"cannot copy {path} before its tables are changed: {exc}",
            hint=f"Make room for a copy of the file in {folder}, and start again.",
        ) from exc
    for old in list_restore_points(path)[MAX_RESTORE_POINTS:]:
        old.unlink(missing_ok=True)
    return target


def restore_from_point(path: Path, point: Path) -> Path:
    """Replace the database by a copy while no process has it open; return the new path of the present one.

    Raises:
        UserError: the copy is damaged, or cannot be written.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{point}?mode=ro", uri=True)) as copy:
            fault = copy.execute("PRAGMA quick_check").fetchone()[0]
        if fault != "ok":
            raise UserError(f"{point} is damaged: {fault}", hint="Choose another restore point.")
        with contextlib.closing(sqlite3.connect(path)) as now:
            aside = create_restore_point(now, path, "replaced")
            with contextlib.closing(sqlite3.connect(f"file:{point}?mode=ro", uri=True)) as copy:
                copy.backup(now)
    except sqlite3.Error as exc:
        raise UserError(f"cannot put {point} back: {exc}", hint="Stop what uses the database, and try again.") from exc
    return aside


def _folder(path: Path) -> Path:
    return path.with_name("restore-points")


@lazy_dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one owner.

    Attributes:
        owner: the package that owns them (`sessions`).
        steps: SQL scripts; step N migrates the tables from version N to N+1. A released step never changes.
        min_reader: the oldest version with code that can use the migrated tables; None: the previous one.
        expire: SQL that removes rows last used before `:before` (seconds since the epoch); empty: no age limit.
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


def split_sql(script: str) -> Iterator[str]:
    """Split a script into statements; `executescript` would end the transaction."""
    statement = ""
    for piece in re.split(r"(?<=;)", script):
        statement += piece
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


Write = Callable[[], AbstractContextManager[sqlite3.Connection]]

_TABLES = """
CREATE TABLE IF NOT EXISTS schema_version (owner TEXT PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS schema_min_reader (owner TEXT PRIMARY KEY, version INTEGER NOT NULL);
"""


def migrate(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema], write: Write) -> None:
    """Run the missing steps; copy the file before the first that changes tables with content.

    Raises:
        UserError: a newer release wrote the file, and this one cannot read it; or the copy failed.
    """
    behind = [schema for schema in schemas if _is_behind(versions(connection), schema, path)]
    if not behind:
        return
    found = versions(connection)
    old = [schema for schema in behind if schema.owner in found]
    if old:
        create_restore_point(connection, path, "-".join(f"{schema.owner}-{found[schema.owner][0]}" for schema in old))
    for schema in behind:
        with write() as db:
            for statement in split_sql(_TABLES):
                db.execute(statement)
            _step(db, schema, path)


def versions(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return for each owner the version of its tables, and the oldest version with code that can use them."""
    tables = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'schema!_%' ESCAPE '!'")
    }
    if "schema_version" not in tables:
        return {}
    if "owner" not in {row[1] for row in connection.execute("PRAGMA table_info(schema_version)")}:
        home = Path(connection.execute("PRAGMA database_list").fetchone()[2]).parent
        raise UserError(
            f"{home} is the home of upstream's program: its state.db has other tables",
            hint=f"Move it aside and import it: `mv {home} {home}-upstream`, then"
            f" `hermes import upstream {home}-upstream` (docs/operator/import.md).",
        )
    if "schema_min_reader" not in tables:  # written by a release without `min_reader`
        return {owner: (version, version) for owner, version in connection.execute("SELECT * FROM schema_version")}
    rows = connection.execute(
        "SELECT v.owner, v.version, coalesce(r.version, v.version) FROM schema_version v"
        " LEFT JOIN schema_min_reader r ON r.owner = v.owner"
    )
    return {owner: (version, reader) for owner, version, reader in rows}


def _is_behind(found: dict[str, tuple[int, int]], schema: Schema, path: Path) -> bool:
    version, reader = found.get(schema.owner, (0, 0))
    if schema.version < reader:
        raise UserError(
            f"{path} was written by a newer hermes-agent: tables of {schema.owner} are at version {version}, which"
            f" releases can read that know version {reader}; this one knows {schema.version}",
            hint="Run the newer release, or put a restore point back (`hermes state restore-points`).",
        )
    return version < schema.version


def _step(db: sqlite3.Connection, schema: Schema, path: Path) -> None:
    found = versions(db)
    if not _is_behind(found, schema, path):  # another process was faster
        return
    for step in schema.steps[found.get(schema.owner, (0, 0))[0] :]:
        for statement in split_sql(step):
            db.execute(statement)
    for table, value in (("schema_version", schema.version), ("schema_min_reader", schema.readable_from)):
        db.execute(
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
            (schema.owner, value),
        )
