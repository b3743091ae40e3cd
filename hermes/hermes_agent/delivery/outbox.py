"""The outbox: replies until the platform has them. Each function runs in a transaction of `Mailbox`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.delivery.messages import OutboundReply, ParkedTarget, ReplyTarget, SendOutcome, StaleClaim
from hermes_agent.delivery.tables import seconds_until

MAX_ATTEMPTS = 30
"""Attempts before a target is parked; they take about four hours."""

_OPEN_FOR_TARGET = "finished_at IS NULL AND platform = ? AND chat = ? AND thread = ?"


class DeadLetter(LazyNamedTuple):
    """A part that was not delivered and is not tried again by itself."""

    id: int
    reply: str
    chat: str
    state: str
    """`failed`, or `parked` with its target."""
    reason: str
    attempts: int
    created_at: float
    content: dict[str, Any]


@lazy_dataclass(frozen=True, slots=True)
class OutboxClaim:
    """A claimed part of a reply.

    Attributes:
        reply: id of the reply.
        part: content of the part.
        index: index of the part in the reply, from 0.
        count: number of parts of the reply.
        attempt: 1 the first time.
        uncertain: an earlier attempt may have arrived.
        repeated: an earlier attempt was a repeat.
        repeat: it is sent although an earlier attempt may have arrived; the message must say so.
        created_at: seconds since the epoch.
    """

    id: int
    token: int
    reply: str
    target: ReplyTarget
    part: dict[str, Any]
    index: int
    count: int
    reply_to: str
    attempt: int
    uncertain: bool
    repeated: bool
    repeat: bool
    created_at: float

    @property
    def key(self) -> str:
        """Idempotency key, stable over attempts and restarts."""
        return f"{self.reply}/{self.index}"


def insert(db: sqlite3.Connection, reply: OutboundReply, now: float) -> bool:
    """Store a reply with an id, parked if its target is; return False if the id exists."""
    if db.execute("SELECT 1 FROM outbox WHERE reply = ?", (reply.id,)).fetchone() is not None:
        return False
    place = (reply.target.platform, reply.target.chat, reply.target.thread)
    row = db.execute(
        "SELECT reason FROM parked_targets WHERE platform = ? AND chat = ? AND thread = ?", place
    ).fetchone()
    db.executemany(
        "INSERT INTO outbox (reply, part, parts, platform, chat, thread, content, reply_to, state, reason, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                reply.id,
                index,
                len(reply.parts),
                *place,
                json.dumps(_masked(part), ensure_ascii=False),
                reply.reply_to,
                "pending" if row is None else "parked",
                "" if row is None else row["reason"],
                now,
            )
            for index, part in enumerate(reply.parts)
        ],
    )
    return True


def _masked(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part with known secrets in its text masked."""
    text = part.get("text")
    return {**part, "text": redactor.mask_known(text)} if isinstance(text, str) else part


def open_targets(db: sqlite3.Connection) -> list[ReplyTarget]:
    """Return the targets of waiting parts, oldest first."""
    rows = db.execute(
        "SELECT platform, chat, thread FROM outbox WHERE finished_at IS NULL AND state IN ('pending', 'sending')"
        " GROUP BY 1, 2, 3 ORDER BY min(id)"
    ).fetchall()
    return [ReplyTarget(*row) for row in rows]


def claim(db: sqlite3.Connection, target: ReplyTarget, now: float, token: int) -> OutboxClaim | float | None:
    """Claim the oldest waiting part for a target.

    Returns:
        The claim; None if no part waits or one is being sent; seconds if it waits for a later attempt.
    """
    row = db.execute(
        f"SELECT * FROM outbox WHERE {_OPEN_FOR_TARGET} AND state IN ('pending', 'sending') ORDER BY id LIMIT 1",
        (target.platform, target.chat, target.thread),
    ).fetchone()
    if row is None or row["state"] == "sending":
        return None
    if wait_s := seconds_until(row["not_before"], now):
        return wait_s
    db.execute(
        "UPDATE outbox SET state = 'sending', token = ?, attempt = attempt + 1 WHERE id = ?",
        (token, row["id"]),
    )
    return OutboxClaim(
        id=row["id"],
        token=token,
        reply=row["reply"],
        target=target,
        part=json.loads(row["content"]),
        index=row["part"],
        count=row["parts"],
        reply_to=row["reply_to"],
        attempt=row["attempt"] + 1,
        uncertain=bool(row["uncertain"]),
        repeated=bool(row["repeated"]),
        repeat=False,
        created_at=row["created_at"],
    )


def mark_repeat(db: sqlite3.Connection, part: OutboxClaim) -> None:
    """Record that a repeat is about to start (`OwnerEpoch.acquire`)."""
    _require(db, part)
    db.execute("UPDATE outbox SET repeated = 2 WHERE id = ?", (part.id,))


def begin_sending(db: sqlite3.Connection, part: OutboxClaim) -> None:
    """Record that a part may arrive from now on, and for a repeat that it started."""
    _require(db, part)
    db.execute("UPDATE outbox SET uncertain = 1, repeated = repeated OR ? WHERE id = ?", (part.repeat, part.id))


def record_outcome(db: sqlite3.Connection, part: OutboxClaim, outcome: SendOutcome, now: float, wait_s: float) -> str:
    """Record the outcome of an attempt; return the state of the part.

    Args:
        wait_s: seconds before the next attempt, if one follows.

    Raises:
        StaleClaim: the part has another claim.
    """
    repeated = _require(db, part)["repeated"]
    kind, reason = outcome.kind, outcome.reason
    if kind == "held":  # by this process: another process need not wait
        db.execute(
            "UPDATE outbox SET state = 'pending', reason = ?, attempt = attempt - 1 WHERE id = ?", (reason, part.id)
        )
        return "pending"
    if kind in ("retry", "unknown") and part.attempt >= MAX_ATTEMPTS:
        kind, reason = "dead", f"{part.attempt} attempts failed; the last: {reason}"
    if kind == "sent":
        return _end(db, part, "sent", "", now, outcome.message_id)
    if kind == "refused":
        _end(db, part, "failed", reason, now)
        rest = f"not sent: part {part.index + 1} of the reply was refused"
        db.execute(
            "UPDATE outbox SET state = 'failed', reason = ?, finished_at = ? WHERE finished_at IS NULL AND reply = ?",
            (rest, now, part.reply),
        )
        return "failed"
    uncertain = part.uncertain or outcome.kind == "unknown"
    if kind == "dead":
        if outcome.kind != "unknown":  # it certainly did not arrive, so it does not count as a repeat
            db.execute(
                "UPDATE outbox SET uncertain = ?, repeated = ? WHERE id = ?",
                (uncertain, part.repeated, part.id),
            )
        _park(db, part, reason, now)
        return "parked"
    if kind == "unknown" and repeated:
        return _end(db, part, "failed", f"it may have arrived: sent twice, and neither was confirmed: {reason}", now)
    db.execute(  # an attempt that certainly did not arrive does not count as a repeat
        "UPDATE outbox SET state = 'pending', not_before = ?, reason = ?, uncertain = ?, repeated = ? WHERE id = ?",
        (now + wait_s, reason, uncertain, part.repeated, part.id),
    )
    return "pending"


def list_parked(db: sqlite3.Connection) -> list[ParkedTarget]:
    """Return the parked targets, newest first."""
    rows = db.execute(
        "SELECT platform, chat, thread, reason, since, (SELECT count(*) FROM outbox o WHERE o.finished_at IS NULL"
        " AND o.platform = p.platform AND o.chat = p.chat AND o.thread = p.thread AND o.state = 'parked') AS count"
        " FROM parked_targets p ORDER BY since DESC"
    ).fetchall()
    return [ParkedTarget(ReplyTarget(*row[:3]), row["reason"], row["since"], row["count"]) for row in rows]


def revive(db: sqlite3.Connection, platform: str, chat: str, thread: str | None = None) -> tuple[ReplyTarget, ...]:
    """Revive parked targets of a chat, and return them.

    Args:
        thread: None revives all targets of the chat.
    """
    rows = db.execute(
        "DELETE FROM parked_targets WHERE platform = ? AND chat = ? AND (? IS NULL OR thread = ?)"
        " RETURNING platform, chat, thread",
        (platform, chat, thread, thread),
    ).fetchall()
    for row in rows:
        db.execute(
            "UPDATE outbox SET state = 'pending', attempt = 0, not_before = 0 "
            f"WHERE {_OPEN_FOR_TARGET} AND state = 'parked'",
            tuple(row),
        )
    return tuple(ReplyTarget(*row) for row in rows)


def list_dead(db: sqlite3.Connection, platform: str) -> list[DeadLetter]:
    """Return the parts to a platform that were given up or wait for a parked target, newest first."""
    rows = db.execute(
        "SELECT id, reply, chat, state, reason, attempt, created_at, content FROM outbox"
        " WHERE platform = ? AND state IN ('failed', 'parked') ORDER BY id DESC LIMIT 1000",
        (platform,),
    ).fetchall()
    names = ("id", "reply", "chat", "state", "reason", "attempt", "created_at")
    return [DeadLetter(*(row[name] for name in names), json.loads(row["content"])) for row in rows]  # type: ignore[call-arg]


def retry_dead(db: sqlite3.Connection, platform: str, numbers: Collection[int]) -> tuple[ReplyTarget, ...]:
    """Let parts wait for another attempt, revive their targets, and return these."""
    targets: dict[ReplyTarget, None] = {}
    for number in numbers:
        row = db.execute(
            "UPDATE outbox SET state = 'pending', attempt = 0, not_before = 0, finished_at = NULL, reason = '',"
            " uncertain = 0, repeated = 0 WHERE id = ? AND platform = ? AND state IN ('failed', 'parked')"
            " RETURNING platform, chat, thread",
            (number, platform),
        ).fetchone()
        if row is not None:
            targets[ReplyTarget(*row)] = None
            db.execute("DELETE FROM parked_targets WHERE platform = ? AND chat = ? AND thread = ?", tuple(row))
    return tuple(targets)


def reply_state(db: sqlite3.Connection, reply: str) -> str:
    """Return the state of a reply: `pending`, `sent`, `failed` or `parked`; "" for an unknown id."""
    states = {row[0] for row in db.execute("SELECT DISTINCT state FROM outbox WHERE reply = ?", (reply,))}
    for state in ("pending", "parked", "failed", "sent"):
        if state in states or (state == "pending" and "sending" in states):
            return state
    return ""


def _park(db: sqlite3.Connection, part: OutboxClaim, reason: str, now: float) -> None:
    place = (part.target.platform, part.target.chat, part.target.thread)
    db.execute(
        "INSERT INTO parked_targets VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET reason = excluded.reason",
        (*place, reason, now),
    )
    db.execute(f"UPDATE outbox SET state = 'parked', reason = ? WHERE {_OPEN_FOR_TARGET}", (reason, *place))


def _end(db: sqlite3.Connection, part: OutboxClaim, state: str, reason: str, now: float, message_id: str = "") -> str:
    db.execute(
        "UPDATE outbox SET state = ?, reason = ?, message_id = ?, finished_at = ? WHERE id = ?",
        (state, reason, message_id, now, part.id),
    )
    return state


def _require(db: sqlite3.Connection, part: OutboxClaim) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute(
        "SELECT state, token, repeated FROM outbox WHERE id = ?", (part.id,)
    ).fetchone()
    if row is None or (row["state"], row["token"]) != ("sending", part.token):
        raise StaleClaim(f"part {part.key} has another claim now")
    return row
