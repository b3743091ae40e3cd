"""The step journal: the steps of each turn, stored so that a crash loses and repeats nothing.

A turn is in state `running` from its first message to its end. The end is one of `TurnEnd`, `failed`, `cancelled` (its
reader disconnected) or `given_up` (a crash interrupted it and the user sent another message). The intent of a tool call
is stored before it runs, in the commit of the answer or the result before it; its result is stored with its message.

Delegations, the background work of subagents for a session, are stored here, too, so that they outlive the process.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from hermes_agent.adapters.adapter_state import get_process_start_time
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.store import Database, Schema

JOURNAL = Schema(
    "journal",
    (
        """
        CREATE TABLE turns (
            id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            state TEXT NOT NULL,
            process TEXT NOT NULL,
            before INTEGER NOT NULL,
            compaction INTEGER NOT NULL,
            model TEXT NOT NULL,
            started_at REAL NOT NULL,
            ended_at REAL
        );
        CREATE INDEX turns_of_session ON turns (session_id, before);
        CREATE INDEX turns_running ON turns (session_id) WHERE state = 'running';
        CREATE TABLE turn_requests (
            turn_id TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            digest TEXT NOT NULL,
            tools TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (turn_id, number)
        ) WITHOUT ROWID;
        CREATE TABLE turn_calls (
            turn_id TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
            place INTEGER NOT NULL,
            name TEXT NOT NULL,
            status TEXT NOT NULL,
            result TEXT NOT NULL,
            started_at REAL NOT NULL,
            ended_at REAL,
            PRIMARY KEY (turn_id, place)
        ) WITHOUT ROWID;
        CREATE TABLE turn_tools (digest TEXT PRIMARY KEY, definitions TEXT NOT NULL) WITHOUT ROWID;
        """,
        # a separate table: the previous release inserts whole rows into `turn_requests`
        """
        CREATE TABLE turn_sent (
            turn_id TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
            number INTEGER NOT NULL,
            compaction INTEGER NOT NULL,
            digest TEXT NOT NULL,
            model TEXT NOT NULL,
            plugins TEXT NOT NULL,
            answered INTEGER NOT NULL,
            PRIMARY KEY (turn_id, number)
        ) WITHOUT ROWID;
        """,
    ),
)


class CallRecord(LazyNamedTuple):
    """A tool call. `place` counts the tool calls of the turn from 0."""

    place: int
    name: str
    status: str = ""
    """How it ended, or "" if it was about to run."""
    result: str = ""
    """Its result, while its message waits for calls that run in parallel."""


class RequestRecord(LazyNamedTuple):
    """A model request, before it is sent."""

    number: int
    """From 1."""
    digest: str
    """Digest of the agent's own request, without the additions of plugins, which are never stored."""
    tools: str
    """Digest of the tools that were shown; "" for the last answer after the step budget."""
    definitions: str = ""
    """The definitions of those tools, unless they are known to be stored."""


class SentRecord(LazyNamedTuple):
    """How a request was sent."""

    number: int
    digest: str = ""
    """Digest of what the provider got, as in `RequestRecord`; "" if nothing was sent."""
    model: str = ""
    """The model that got it."""
    plugins: tuple[str, ...] = ()
    """Plugins that added to a message, replaced the request, or answered in place of the model."""
    answered: bool = False
    compaction: int = 0
    """The compaction that the request was based on, or 0. Only read."""


@lazy_dataclass(slots=True)
class TurnRecord:
    """What one commit writes about a turn."""

    turn_id: str
    is_new: bool = False
    model: str = ""
    requests: list[RequestRecord] = field(default_factory=list)
    sent: dict[int, SentRecord] = field(default_factory=dict)
    """By number of the request."""
    calls: list[CallRecord] = field(default_factory=list)
    end: str = ""
    """The state at its end."""

    def begin(self, db: sqlite3.Connection, session_id: str) -> None:
        """Add a new turn, inside a transaction, before its first message is stored."""
        if self.is_new:
            db.execute(
                "INSERT INTO turns (id, session_id, state, process, before, compaction, model, started_at) VALUES"
                " (?1, ?2, 'running', ?3, (SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?2),"
                " (SELECT coalesce(max(id), 0) FROM compactions WHERE session_id = ?2), ?4, ?5)",
                (self.turn_id, session_id, this_process(), self.model, time.time()),
            )

    def write(self, db: sqlite3.Connection) -> None:
        """Write the rest of the record, inside a transaction."""
        now = time.time()
        for request in self.requests:
            if request.definitions:
                db.execute("INSERT OR IGNORE INTO turn_tools VALUES (?, ?)", (request.tools, request.definitions))
            db.execute(
                "INSERT OR REPLACE INTO turn_requests VALUES (?, ?, ?, ?, ?)",
                (self.turn_id, request.number, request.digest, request.tools, now),
            )
        for note in self.sent.values():
            db.execute(
                "INSERT INTO turn_sent VALUES (?1, ?2, (SELECT coalesce(max(id), 0) FROM compactions WHERE session_id ="
                " (SELECT session_id FROM turns WHERE id = ?1)), ?3, ?4, ?5, ?6) ON CONFLICT (turn_id, number) DO"
                " UPDATE SET digest = excluded.digest, model = excluded.model, plugins = excluded.plugins,"
                " answered = excluded.answered",
                (self.turn_id, note.number, note.digest, note.model, json.dumps(note.plugins), note.answered),
            )
        for call in self.calls:
            ended = now if call.status else None
            db.execute(
                "INSERT INTO turn_calls VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (turn_id, place) DO UPDATE SET"
                " status = excluded.status, result = excluded.result, ended_at = excluded.ended_at",
                (self.turn_id, call.place, call.name, call.status, call.result, now, ended),
            )
        if self.end:
            db.execute("UPDATE turns SET state = ?, ended_at = ? WHERE id = ?", (self.end, now, self.turn_id))


class UnfinishedTurn(LazyNamedTuple):
    """A turn without an end: it runs, or its process is gone."""

    turn_id: str
    session_id: str
    principal: str
    source: str
    """The platform of its session."""
    started_at: float
    process: str
    before: int
    """Number of the session's last message before it."""
    state: str = "running"


class StoredTurn(LazyNamedTuple):
    """A turn as it is stored."""

    id: str
    session_id: str
    state: str
    model: str
    before: int
    """Number of the session's last message before it."""
    upto: int
    """Number of its last message."""
    compaction: int
    """The compaction that it started with, or 0."""
    requests: list[RequestRecord]
    sent: dict[int, SentRecord]
    """By number of the request; requests of earlier releases are missing."""

    @property
    def answer_count(self) -> int:
        """Number of answered requests; one that was too long or interrupted by a crash was repeated."""
        return sum(r.number not in self.sent or self.sent[r.number].answered for r in self.requests)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools that the model was shown."""
        text = next((r.definitions for r in self.requests if r.definitions), "[]")
        found: list[dict[str, Any]] = json.loads(text)
        return found


def load_turns(db: Database, session_id: str) -> list[StoredTurn]:
    """Return a session's turns in their order."""
    rows = db.read(
        "SELECT id, session_id, state, model, before, compaction FROM turns WHERE session_id = ?"
        " ORDER BY before, started_at",
        (session_id,),
    )
    ends = [row["before"] for row in rows[1:]] + [1 << 62]
    return [
        StoredTurn(
            *(r["id"], session_id, r["state"], r["model"], r["before"], end, r["compaction"]),
            *(load_requests(db, r["id"]), _load_sent(db, r["id"])),
        )
        for r, end in zip(rows, ends, strict=True)
    ]


def load_unfinished(db: Database, session_id: str | None = None, since: int | None = None) -> list[UnfinishedTurn]:
    """Return the turns without an end, oldest first: those of a session, or all except subagents'.

    Args:
        since: number of a message; the session's last turn after it counts also if it failed or was cancelled.
    """
    rows = db.read(
        "SELECT t.id, t.session_id, s.principal, s.source, t.started_at, t.process, t.before, t.state FROM turns t"
        " JOIN sessions s ON s.id = t.session_id WHERE t.state = 'running'"
        " AND CASE WHEN ?1 IS NULL THEN NOT s.is_subagent ELSE t.session_id = ?1 END"
        " UNION ALL SELECT t.id, ?1, s.principal, s.source, t.started_at, t.process, t.before, t.state FROM sessions s"
        " JOIN turns t ON t.id = (SELECT id FROM turns WHERE session_id = ?1 ORDER BY before DESC, started_at DESC"
        " LIMIT 1) WHERE s.id = ?1 AND t.state IN ('failed', 'cancelled') AND t.before >= ?2 ORDER BY 5",
        (session_id, since),
    )
    return [UnfinishedTurn(*row) for row in rows]


def claim_turn(db: sqlite3.Connection, turn: UnfinishedTurn) -> bool:
    """Claim a turn for this process; return False if another process was first."""
    done = db.execute(
        "UPDATE turns SET process = ?, state = 'running', ended_at = NULL WHERE id = ? AND process = ? AND state = ?",
        (this_process(), turn.turn_id, turn.process, turn.state),
    )
    return done.rowcount == 1


def load_calls(db: Database, turn_id: str) -> list[CallRecord]:
    """Return the tool calls of a turn in their order."""
    rows = db.read("SELECT place, name, status, result FROM turn_calls WHERE turn_id = ? ORDER BY place", (turn_id,))
    return [CallRecord(*row) for row in rows]


def load_requests(db: Database, turn_id: str) -> list[RequestRecord]:
    """Return the requests of a turn in their order, with the definitions of their tools."""
    rows = db.read(
        "SELECT r.number, r.digest, r.tools, coalesce(t.definitions, '') FROM turn_requests r"
        " LEFT JOIN turn_tools t ON t.digest = r.tools WHERE r.turn_id = ? ORDER BY r.number",
        (turn_id,),
    )
    return [RequestRecord(*row) for row in rows]


def _load_sent(db: Database, turn_id: str) -> dict[int, SentRecord]:
    rows = db.read(
        "SELECT number, digest, model, plugins, answered, compaction FROM turn_sent WHERE turn_id = ?", (turn_id,)
    )
    return {
        number: SentRecord(number, digest, model, tuple(json.loads(plugins)), bool(answered), compaction)
        for number, digest, model, plugins, answered, compaction in rows
    }


def this_process() -> str:
    """Return a name of this process that no later process gets."""
    return _process_name(os.getpid())


@functools.lru_cache(maxsize=1)
def _process_name(pid: int) -> str:
    return f"{pid}:{get_process_start_time(pid)}"


def is_running(process: str) -> bool:
    """Return whether the process with that name exists."""
    pid, _, started = process.partition(":")
    return str(get_process_start_time(int(pid))) == started != "None"


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


class Delegation(LazyNamedTuple):
    """Tasks that subagents work on in the background."""

    id: str
    session_id: str
    """The session that gets the reports."""
    plan: Mapping[str, Any]
    """What `agent.subagents` needs to resume it."""
    text: str = ""
    """The reports, or "" while it runs."""
    attempt: int = 1
    """Number of processes that have worked on it."""


def add_delegation(db: Database, new: Delegation) -> None:
    """Store a new delegation if its session is stored."""
    with db.write() as writing:
        writing.execute(
            "INSERT INTO delegations (id, session_id, process, plan, started_at) SELECT ?, id, ?, ?, ? FROM sessions"
            " WHERE id = ?",
            (new.id, this_process(), json.dumps(new.plan), time.time(), new.session_id),
        )


def finish_delegation(db: Database, delegation_id: str, text: str) -> None:
    """Store the reports of a delegation."""
    with db.write() as writing:
        writing.execute("UPDATE delegations SET text = ? WHERE id = ?", (text, delegation_id))


def claim_delegations(db: Database, session_id: str) -> list[Delegation]:
    """Claim the delegations that another process left, and return them; reported ones are deleted.

    Args:
        session_id: the session; "" for all except those of the console, which resume when it opens their session.
    """
    which = "d.session_id = ?1" if session_id else "s.source != 'cli' AND ?1 = ''"
    found = []
    with db.write() as writing:
        rows = writing.execute(
            "SELECT d.id, d.session_id, d.plan, d.text, d.attempt, d.process, EXISTS (SELECT 1 FROM messages m"
            " WHERE m.session_id = d.session_id AND m.role = 'user' AND instr(m.content, d.id)) AS is_reported"
            f" FROM delegations d JOIN sessions s ON s.id = d.session_id WHERE {which} ORDER BY d.started_at",
            (session_id,),
        ).fetchall()
        for row in rows:
            if row["is_reported"] and row["text"]:
                writing.execute("DELETE FROM delegations WHERE id = ?", (row["id"],))
            elif row["process"] == this_process() or not is_running(row["process"]):
                attempt = row["attempt"] + (row["process"] != this_process())
                mine = (this_process(), attempt, row["id"])
                writing.execute("UPDATE delegations SET process = ?, attempt = ? WHERE id = ?", mine)
                plan = json.loads(row["plan"])
                found.append(Delegation(row["id"], row["session_id"], plan, row["text"], attempt))
    return found
