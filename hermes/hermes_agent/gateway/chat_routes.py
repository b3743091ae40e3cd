"""Sessions of chats: the gateway's tables in `state.db`. Source: plugin contract §8.2.3, §12.1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.store import Database, Schema

SCHEMA = Schema(
    "gateway",
    (
        """
        CREATE TABLE gateway_routing (
            session_key TEXT PRIMARY KEY,
            session_id TEXT NOT NULL,
            owner TEXT NOT NULL,
            source TEXT NOT NULL,
            model TEXT NOT NULL DEFAULT '',
            began_at REAL NOT NULL,
            used_at REAL NOT NULL
        );
        """,
        """
        CREATE TABLE gateway_confirms (
            session_key TEXT PRIMARY KEY,
            confirm_id TEXT NOT NULL,
            command TEXT NOT NULL,
            arguments TEXT NOT NULL,
            payload TEXT NOT NULL,
            until REAL NOT NULL
        );
        """,
        "CREATE TABLE gateway_questions (session_key TEXT PRIMARY KEY);",
    ),
)


class ChatRoute(LazyNamedTuple):
    """The session of a chat."""

    session_key: str
    session_id: str
    owner: str
    """Principal of the session: of the user, or of a group chat that shares a session."""
    source: Mapping[str, Any]
    """Source of the last message (`SessionSource.to_dict`)."""
    model: str
    """Model that was selected for this chat (`/model`); empty: the configured model."""
    began_at: float
    used_at: float


class PendingConfirmation(LazyNamedTuple):
    """A slash command that waits for its confirmation."""

    session_key: str
    confirm_id: str
    command: str
    arguments: str
    payload: Mapping[str, Any]
    """The message with the command (`chat_messages.to_payload`)."""
    until: float
    """When the confirmation expires, in seconds since the epoch."""


class SessionResetPolicy(LazyNamedTuple):
    """When an idle chat gets a new session."""

    mode: str = "both"
    """`idle`, `daily`, `both` or `none`."""
    idle_minutes: float = 1440
    at_hour: int = 4
    """Hour of the local time at which a day starts."""

    def reset_reason(self, used_at: float, now: float) -> str:
        """Return the reason for a new session (`idle`, `daily`) or "". Times are in seconds since the epoch."""
        if self.mode in ("idle", "both") and now - used_at >= self.idle_minutes * 60:
            return "idle"
        if self.mode in ("daily", "both"):
            day = datetime.fromtimestamp(now).replace(hour=self.at_hour, minute=0, second=0, microsecond=0)
            if day.timestamp() > now:
                day -= timedelta(days=1)
            if used_at < day.timestamp():
                return "daily"
        return ""


class ChatRouteStore:
    """Reads and writes the tables; sync, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, (SCHEMA,))

    def get(self, session_key: str) -> ChatRoute | None:
        """Return the session of a chat, or None."""
        return self._one("session_key = ?", session_key)

    def of_session(self, session_id: str) -> ChatRoute | None:
        """Return the chat of a session, or None."""
        return self._one("session_id = ?", session_id)

    def put(self, route: ChatRoute) -> None:
        """Set the session of a chat."""
        with self._db.write() as db:
            db.execute(
                "INSERT INTO gateway_routing VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_key) DO UPDATE SET"
                " session_id = excluded.session_id, owner = excluded.owner, source = excluded.source,"
                " model = excluded.model, began_at = excluded.began_at, used_at = excluded.used_at",
                route._replace(source=json.dumps(dict(route.source), ensure_ascii=False)),  # type: ignore[arg-type]
            )

    def record_use(self, session_key: str, session_id: str, source: Mapping[str, Any], now: float) -> None:
        """Store place and time of the last message in a session, if the chat is still in it."""
        with self._db.write() as db:
            db.execute(
                "UPDATE gateway_routing SET source = ?, used_at = ? WHERE session_key = ? AND session_id = ?",
                (json.dumps(dict(source), ensure_ascii=False), now, session_key, session_id),
            )

    def add_confirmation(self, confirm: PendingConfirmation) -> None:
        """Store a pending confirmation; it replaces the previous one of the session."""
        row = confirm._replace(payload=json.dumps(dict(confirm.payload), ensure_ascii=False))  # type: ignore[arg-type]
        with self._db.write() as db:
            db.execute("INSERT OR REPLACE INTO gateway_confirms VALUES (?, ?, ?, ?, ?, ?)", row)

    def remove_confirmation(self, confirm_id: str) -> None:
        """Delete a pending confirmation."""
        with self._db.write() as db:
            db.execute("DELETE FROM gateway_confirms WHERE confirm_id = ?", (confirm_id,))

    def pending_confirmations(self) -> list[PendingConfirmation]:
        """Return the pending confirmations."""
        rows = map(PendingConfirmation._make, self._db.read("SELECT * FROM gateway_confirms"))
        return [row._replace(payload=json.loads(str(row.payload))) for row in rows]

    def mark_question(self, session_key: str, is_open: bool) -> None:
        """Store whether a question of a tool is pending in a chat."""
        change = (
            "INSERT OR IGNORE INTO gateway_questions VALUES (?)"
            if is_open
            else ("DELETE FROM gateway_questions WHERE session_key = ?")
        )
        with self._db.write() as db:
            db.execute(change, (session_key,))

    def chats_with_questions(self) -> list[str]:
        """Return the chats with pending questions of tools."""
        return [str(key) for (key,) in self._db.read("SELECT session_key FROM gateway_questions")]

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _one(self, where: str, value: str) -> ChatRoute | None:
        rows = self._db.read(f"SELECT * FROM gateway_routing WHERE {where} ORDER BY used_at DESC LIMIT 1", (value,))
        if not rows:
            return None
        route = ChatRoute(*rows[0])
        return route._replace(source=json.loads(str(route.source)))
