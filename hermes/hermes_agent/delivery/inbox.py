"""The inbox: what arrived, until it is done. Each function is a step inside a transaction of `Mailbox`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.delivery.messages import InboundMessage, StaleClaim
from hermes_agent.delivery.tables import seconds_until

Conversation = tuple[str, str]
"""Platform, and what the front door calls the conversation."""

_OPEN_IN_CONVERSATION = "finished_at IS NULL AND platform = ? AND conversation = ?"


@dataclass(frozen=True, slots=True)
class InboxClaim:
    """A message that is being served.

    Attributes:
        id: stable over restarts: the key of the turn.
        token: fencing token; a step with an older one is refused.
        attempt: 1 the first time; more when it was begun before and not finished.
        errors: how many attempts ended with an error.
        notes: what was kept about it while it was served.
    """

    id: int
    token: int
    platform: str
    chat: str
    message_id: str
    conversation: str
    sender: str
    payload: dict[str, Any]
    received_at: float
    attempt: int
    errors: int
    notes: dict[str, Any]


def insert(db: sqlite3.Connection, message: InboundMessage, now: float) -> tuple[int, bool]:
    """Store a message; return its id, and whether it is new."""
    same = _find_duplicate(db, message, now)
    if same is not None:
        return same, False
    cursor = db.execute(
        "INSERT INTO inbox (platform, chat, message_id, conversation, sender, payload, received_at, fingerprint)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            message.platform,
            message.chat,
            message.message_id or None,
            message.conversation,
            message.sender,
            json.dumps(message.payload, ensure_ascii=False),
            now,
            message.fingerprint,
        ),
    )
    if cursor.rowcount and cursor.lastrowid is not None:
        return cursor.lastrowid, True
    row = db.execute(
        "SELECT id FROM inbox WHERE platform = ? AND chat = ? AND message_id = ?",
        (message.platform, message.chat, message.message_id),
    ).fetchone()
    return row[0], False


def _find_duplicate(db: sqlite3.Connection, message: InboundMessage, now: float) -> int | None:
    """Return the id of a message with the same content that is not too old, or None."""
    if not message.fingerprint:
        return None
    row = db.execute(
        "SELECT id FROM inbox WHERE platform = ? AND chat = ? AND fingerprint = ? AND received_at > ? LIMIT 1",
        (message.platform, message.chat, message.fingerprint, now - message.same_s),
    ).fetchone()
    return None if row is None else row[0]


def open_conversations(db: sqlite3.Connection) -> list[Conversation]:
    """Return where something is not finished, oldest first."""
    rows = db.execute(
        "SELECT platform, conversation FROM inbox WHERE finished_at IS NULL AND conversation <> ''"
        " GROUP BY 1, 2 ORDER BY min(id)"
    ).fetchall()
    return [(row[0], row[1]) for row in rows]


def claim(db: sqlite3.Connection, conversation: Conversation, now: float, token: int) -> InboxClaim | float | None:
    """Take the oldest unfinished message of a conversation.

    Returns: None when there is none or it is being served; seconds when it waits for a later attempt.
    """
    row = db.execute(f"SELECT * FROM inbox WHERE {_OPEN_IN_CONVERSATION} ORDER BY id LIMIT 1", conversation).fetchone()
    if row is None or row["state"] != "pending":
        return None
    if wait_s := seconds_until(row["not_before"], now):
        return wait_s
    return _claimed(db, row, token)


def _claimed(db: sqlite3.Connection, row: sqlite3.Row, token: int) -> InboxClaim:
    db.execute(
        "UPDATE inbox SET state = 'claimed', token = ?, attempt = attempt + 1 WHERE id = ?",
        (token, row["id"]),
    )
    return InboxClaim(
        id=row["id"],
        token=token,
        platform=row["platform"],
        chat=row["chat"],
        message_id=row["message_id"] or "",
        conversation=row["conversation"],
        sender=row["sender"],
        payload=json.loads(row["payload"]),
        received_at=row["received_at"],
        attempt=row["attempt"] + 1,
        errors=row["errors"],
        notes=json.loads(row["notes"]),
    )


def begin(
    db: sqlite3.Connection, message: InboundMessage, now: float, token: int
) -> InboxClaim | dict[str, Any] | None:
    """Store a message that its caller serves, and claim it; or return the notes of one that is done, None if served."""
    number, _ = insert(db, message, now)
    row = db.execute("SELECT * FROM inbox WHERE id = ?", (number,)).fetchone()
    if row["finished_at"] is not None:
        notes: dict[str, Any] = json.loads(row["notes"])
        return notes
    return _claimed(db, row, token) if row["state"] == "pending" else None


def count_waiting(db: sqlite3.Connection, conversation: Conversation) -> int:
    """Return how many messages wait, without the one that is served."""
    number: int = db.execute(
        f"SELECT count(*) FROM inbox WHERE {_OPEN_IN_CONVERSATION} AND state = 'pending'", conversation
    ).fetchone()[0]
    return number


def absorb(db: sqlite3.Connection, held: InboxClaim, other: int) -> bool:
    """Let a later message share the end of the one that is served; only the next that waits can."""
    _require(db, held)
    row = db.execute(
        f"SELECT id FROM inbox WHERE {_OPEN_IN_CONVERSATION} AND state = 'pending' ORDER BY id LIMIT 1",
        (held.platform, held.conversation),
    ).fetchone()
    if row is None or row["id"] != other:
        return False
    db.execute(
        "UPDATE inbox SET state = 'claimed', token = ?, attempt = attempt + 1 WHERE id = ?",
        (held.token, other),
    )
    return True


def save_notes(db: sqlite3.Connection, held: InboxClaim, notes: Mapping[str, Any]) -> None:
    """Keep something about a message, for a later attempt."""
    _require(db, held)
    db.execute("UPDATE inbox SET notes = ? WHERE id = ?", (json.dumps(notes, ensure_ascii=False), held.id))


def finish(db: sqlite3.Connection, held: InboxClaim, now: float, failure: str = "") -> None:
    """End a message, and those that it absorbed.

    Args:
        failure: why it was given up; empty when it was answered.
    """
    _require(db, held)
    db.execute(
        "UPDATE inbox SET state = ?, reason = ?, finished_at = ? "
        f"WHERE {_OPEN_IN_CONVERSATION} AND state = 'claimed' AND token = ?",
        ("failed" if failure else "done", failure, now, held.platform, held.conversation, held.token),
    )


def requeue(db: sqlite3.Connection, held: InboxClaim, not_before: float, error: str = "") -> None:
    """Let a message, and those that it absorbed, wait again.

    Args:
        error: why the attempt failed; empty when it was only given back.
    """
    _require(db, held)
    db.execute(
        "UPDATE inbox SET state = 'pending', not_before = CASE id WHEN ? THEN ? ELSE not_before END,"
        f" errors = errors + ?, reason = ? WHERE {_OPEN_IN_CONVERSATION} AND state = 'claimed' AND token = ?",
        (held.id, not_before, bool(error), error, held.platform, held.conversation, held.token),
    )


def _require(db: sqlite3.Connection, held: InboxClaim) -> None:
    row = db.execute("SELECT state, token FROM inbox WHERE id = ?", (held.id,)).fetchone()
    if row is None or (row["state"], row["token"]) != ("claimed", held.token):
        raise StaleClaim(f"message {held.id} is not with this claim any more")
