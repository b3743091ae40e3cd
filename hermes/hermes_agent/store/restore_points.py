"""Copies of the database from before a migration, a few of them, beside it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from hermes_agent.core.errors import UserError

__all__ = ["MAX_RESTORE_POINTS", "create_restore_point", "list_restore_points", "restore_from_point"]

MAX_RESTORE_POINTS = 5
"""Copies that are kept; the oldest go."""


def list_restore_points(path: Path) -> list[Path]:
    """Return the copies of a database, the newest first."""
    return sorted(_folder(path).glob("*.db"), reverse=True)


def create_restore_point(connection: sqlite3.Connection, path: Path, why: str) -> Path:
    """Copy the database as it is now, and remove the oldest copies.

    Raises:
        UserError: there is no room, or no right to.
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
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
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
    """Let a copy take the place of the database, which nobody may have open; return where the present one is now.

    Raises:
        UserError: the copy is damaged, or cannot be put there.
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
