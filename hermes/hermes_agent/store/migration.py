"""Bring the tables of each owner to this release's version, in one transaction each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.store.restore_points import make
from hermes_agent.store.schema import Schema, statements

__all__ = ["migrate", "versions"]

Write = Callable[[], AbstractContextManager[sqlite3.Connection]]

_TABLES = """
CREATE TABLE IF NOT EXISTS schema_version (owner TEXT PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS schema_min_reader (owner TEXT PRIMARY KEY, version INTEGER NOT NULL);
"""


def migrate(connection: sqlite3.Connection, path: Path, schemas: Sequence[Schema], write: Write) -> None:
    """Run the steps that are missing; before the first that changes tables with something in them, copy the file.

    Raises:
        UserError: a release wrote the file whose tables this one cannot read, or the copy cannot be made.
    """
    behind = [schema for schema in schemas if _is_behind(versions(connection), schema, path)]
    if not behind:
        return
    found = versions(connection)
    old = [schema for schema in behind if schema.owner in found]
    if old:
        make(connection, path, "-".join(f"{schema.owner}-{found[schema.owner][0]}" for schema in old))
    for schema in behind:
        with write() as db:
            for statement in statements(_TABLES):
                db.execute(statement)
            _step(db, schema, path)


def versions(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
    """Return by owner the version of its tables, and the oldest version whose code can work with them."""
    tables = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'schema!_%' ESCAPE '!'")
    }
    if "schema_version" not in tables:
        return {}
    if "schema_min_reader" not in tables:  # written before there was one
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
    if not _is_behind(found, schema, path):  # another process was quicker
        return
    for step in schema.steps[found.get(schema.owner, (0, 0))[0] :]:
        for statement in statements(step):
            db.execute(statement)
    for table, value in (("schema_version", schema.version), ("schema_min_reader", schema.readable_from)):
        db.execute(
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
            (schema.owner, value),
        )
