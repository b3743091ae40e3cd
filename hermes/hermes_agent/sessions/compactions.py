"""Shorter forms of sessions that outgrew their model. The messages that they stand for stay where they are."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence

from hermes_agent.sessions.steps import COLUMNS, message_from_row
from hermes_agent.store import Database, Schema

__all__ = ["COMPACTIONS", "add_compaction", "load_compaction", "truncate_compaction", "last_compaction_id"]

COMPACTIONS = Schema(
    "compactions",
    (
        """
        CREATE TABLE compactions (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            upto INTEGER NOT NULL,
            messages TEXT NOT NULL,
            tokens_before INTEGER NOT NULL,
            tokens_after INTEGER NOT NULL,
            timestamp REAL NOT NULL
        );
        CREATE INDEX compactions_of_session ON compactions (session_id, id);
        """,
    ),
)

Rows = list[list[str]]


def add_compaction(db: sqlite3.Connection, session_id: str, rows: Rows, tokens: tuple[int, int]) -> None:
    """Let `rows` stand for every message that the session has now. Earlier forms stay, for a replay."""
    (upto,) = db.execute("SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
    db.execute(
        "INSERT INTO compactions (session_id, upto, messages, tokens_before, tokens_after, timestamp)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, upto, json.dumps(rows, ensure_ascii=False), *tokens, time.time()),
    )


def truncate_compaction(db: sqlite3.Connection, session_id: str, after: int) -> bool:
    """Take the messages with a number above `after` off a session's last form, where it stands for them.

    Return False, and change nothing, when the form does not end with these messages as they were said.
    """
    form = db.execute(
        "SELECT id, upto, messages FROM compactions WHERE session_id = ? ORDER BY id DESC LIMIT 1", (session_id,)
    ).fetchone()
    if form is None or form["upto"] <= after:
        return True
    said = db.execute(
        f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id <= ? ORDER BY id",
        (session_id, after, form["upto"]),
    ).fetchall()
    rows = json.loads(form["messages"])
    left = rows[: -len(said)] if said else rows
    if [*map(message_from_row, rows[len(left) :])] != [*map(message_from_row, said)]:
        return False
    text = json.dumps(left, ensure_ascii=False)
    db.execute("UPDATE compactions SET messages = ? WHERE id = ?", (text, form["id"]))
    # others were made after these messages, too; without one the session goes on with what was there before
    db.execute(
        "DELETE FROM compactions WHERE session_id = ? AND upto > ? AND id != ?",
        (session_id, after, form["id"] if left else 0),
    )
    return True


def last_compaction_id(db: Database, session_id: str) -> int:
    """Return the number of a session's last shorter form; 0 when there is none."""
    return int(db.read("SELECT coalesce(max(id), 0) FROM compactions WHERE session_id = ?", (session_id,))[0][0])


def load_compaction(db: Database, number: int) -> tuple[int, Sequence[Sequence[str]]] | None:
    """Return the number of the last message that a form stands for, and its rows; None when only counts are left, as
    an earlier release left them."""
    found = db.read("SELECT upto, messages FROM compactions WHERE id = ? AND messages != '[]'", (number,))
    return (found[0][0], json.loads(found[0][1])) if found else None
