"""Work that sub-agents do in the background for a session: written down, so that it outlives the process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes_agent.sessions.journal import is_running, this_process
from hermes_agent.store import Database, Schema

__all__ = ["DELEGATIONS", "Delegation", "add_delegation", "finish_delegation", "claim_delegations"]

DELEGATIONS = Schema(
    "delegations",
    (
        """
        CREATE TABLE delegations (
            id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            process TEXT NOT NULL,
            attempt INTEGER NOT NULL DEFAULT 1,
            plan TEXT NOT NULL,
            text TEXT NOT NULL DEFAULT '',
            started_at REAL NOT NULL
        );
        CREATE INDEX delegations_of_session ON delegations (session_id);
        """,
    ),
)


class Delegation(NamedTuple):
    """What sub-agents were asked to do in the background."""

    id: str
    session_id: str
    """The session that waits for it."""
    plan: Mapping[str, Any]
    """As `agent.subagents` needs it to go on."""
    text: str = ""
    """What came of it; empty: it is being worked on."""
    attempt: int = 1
    """Processes that worked on it."""


def add_delegation(db: Database, new: Delegation) -> None:
    """Write down what begins, where the session is stored."""
    with db.write() as writing:
        writing.execute(
            "INSERT INTO delegations (id, session_id, process, plan, started_at) SELECT ?, id, ?, ?, ? FROM sessions"
            " WHERE id = ?",
            (new.id, this_process(), json.dumps(new.plan), time.time(), new.session_id),
        )


def finish_delegation(db: Database, delegation_id: str, text: str) -> None:
    """Write down what came of it."""
    with db.write() as writing:
        writing.execute("UPDATE delegations SET text = ? WHERE id = ?", (text, delegation_id))


def claim_delegations(db: Database, session_id: str) -> list[Delegation]:
    """Make the delegations that another process left this one's, and return them; what was told is forgotten.

    Args:
        session_id: those of a session; empty for all but those of the terminal, which go on when it is opened.
    """
    which = "d.session_id = ?1" if session_id else "s.source != 'cli' AND ?1 = ''"
    found = []
    with db.write() as writing:
        rows = writing.execute(
            "SELECT d.id, d.session_id, d.plan, d.text, d.attempt, d.process, EXISTS (SELECT 1 FROM messages m"
            " WHERE m.session_id = d.session_id AND m.role = 'user' AND instr(m.content, d.id)) AS told"
            f" FROM delegations d JOIN sessions s ON s.id = d.session_id WHERE {which} ORDER BY d.started_at",
            (session_id,),
        ).fetchall()
        for row in rows:
            if row["told"] and row["text"]:
                writing.execute("DELETE FROM delegations WHERE id = ?", (row["id"],))
            elif row["process"] == this_process() or not is_running(row["process"]):
                attempt = row["attempt"] + (row["process"] != this_process())
                mine = (this_process(), attempt, row["id"])
                writing.execute("UPDATE delegations SET process = ?, attempt = ? WHERE id = ?", mine)
                plan = json.loads(row["plan"])
                found.append(Delegation(row["id"], row["session_id"], plan, row["text"], attempt))
    return found
