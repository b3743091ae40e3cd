"""The inbox: messages until they are done. Each function runs inside a transaction of `Mailbox`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.delivery.messages import InboundMessage, StaleClaim
from hermes_agent.delivery.tables import seconds_until

Conversation = tuple[str, str]
"""Platform, and the name of the conversation there."""

_OPEN_IN_CONVERSATION = "finished_at IS NULL AND platform = ? AND conversation = ?"


@lazy_dataclass(frozen=True, slots=True)
class InboxClaim:
    """A claimed message.

    Attributes:
        id: stable over restarts: the key of the turn.
        token: fencing token; a step with an older token is rejected.
        attempt: 1 the first time; more if an earlier attempt did not finish.
        errors: number of attempts that failed.
        notes: values that earlier attempts stored with it.
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
    duplicate = _find_duplicate(db, message, now)
    if duplicate is not None:
        return duplicate, False
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
    """Return the conversations with unfinished messages, oldest first."""
    rows = db.execute(
        "SELECT platform, conversation FROM inbox WHERE finished_at IS NULL AND conversation <> ''"
        " GROUP BY 1, 2 ORDER BY min(id)"
    ).fetchall()
    return [(row[0], row[1]) for row in rows]


def claim(db: sqlite3.Connection, conversation: Conversation, now: float, token: int) -> InboxClaim | float | None:
    """Claim the oldest unfinished message of a conversation.

    Returns:
        The claim; None if there is no message or it is claimed; seconds if it waits for a later attempt.
    """
    row = db.execute(f"SELECT * FROM inbox WHERE {_OPEN_IN_CONVERSATION} ORDER BY id LIMIT 1", conversation).fetchone()
    if row is None or row["state"] != "pending":
        return None
    if wait_s := seconds_until(row["not_before"], now):
        return wait_s
    return _claim_row(db, row, token)


def _claim_row(db: sqlite3.Connection, row: sqlite3.Row, token: int) -> InboxClaim:
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
    """Store and claim a message that its caller processes.

    Returns:
        The claim; the notes of a message that is done; None if it is claimed.
    """
    number, _ = insert(db, message, now)
    row = db.execute("SELECT * FROM inbox WHERE id = ?", (number,)).fetchone()
    if row["finished_at"] is not None:
        notes: dict[str, Any] = json.loads(row["notes"])
        return notes
    return _claim_row(db, row, token) if row["state"] == "pending" else None


def count_waiting(db: sqlite3.Connection, conversation: Conversation) -> int:
    """Return how many messages wait, without the claimed one."""
    number: int = db.execute(
        f"SELECT count(*) FROM inbox WHERE {_OPEN_IN_CONVERSATION} AND state = 'pending'", conversation
    ).fetchone()[0]
    return number


def absorb(db: sqlite3.Connection, message: InboxClaim, other: int) -> bool:
    """Add the next waiting message to a claim, so that both end together."""
    _require(db, message)
    row = db.execute(
        f"SELECT id FROM inbox WHERE {_OPEN_IN_CONVERSATION} AND state = 'pending' ORDER BY id LIMIT 1",
        (message.platform, message.conversation),
    ).fetchone()
    if row is None or row["id"] != other:
        return False
    db.execute(
        "UPDATE inbox SET state = 'claimed', token = ?, attempt = attempt + 1 WHERE id = ?",
        (message.token, other),
    )
    return True


def save_notes(db: sqlite3.Connection, message: InboxClaim, notes: Mapping[str, Any]) -> None:
    """Store notes with a message for a later attempt."""
    _require(db, message)
    db.execute("UPDATE inbox SET notes = ? WHERE id = ?", (json.dumps(notes, ensure_ascii=False), message.id))


def finish(db: sqlite3.Connection, message: InboxClaim, now: float, failure: str = "") -> None:
    """End a message and those that it absorbed.

    Args:
        failure: why it was abandoned; "" if it was answered.
    """
    _require(db, message)
    db.execute(
        "UPDATE inbox SET state = ?, reason = ?, finished_at = ? "
        f"WHERE {_OPEN_IN_CONVERSATION} AND state = 'claimed' AND token = ?",
        ("failed" if failure else "done", failure, now, message.platform, message.conversation, message.token),
    )


def requeue(db: sqlite3.Connection, message: InboxClaim, not_before: float, error: str = "") -> None:
    """Let a message and those that it absorbed wait again.

    Args:
        error: why the attempt failed; "" if it was only released.
    """
    _require(db, message)
    db.execute(
        "UPDATE inbox SET state = 'pending', not_before = CASE id WHEN ? THEN ? ELSE not_before END,"
        f" errors = errors + ?, reason = ? WHERE {_OPEN_IN_CONVERSATION} AND state = 'claimed' AND token = ?",
        (message.id, not_before, bool(error), error, message.platform, message.conversation, message.token),
    )


def _require(db: sqlite3.Connection, message: InboxClaim) -> None:
    row = db.execute("SELECT state, token FROM inbox WHERE id = ?", (message.id,)).fetchone()
    if row is None or (row["state"], row["token"]) != ("claimed", message.token):
        raise StaleClaim(f"message {message.id} has another claim now")
