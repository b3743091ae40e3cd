"""Upstream's `SessionDB`: the transcript in `state.db` for plugins that read or store sessions.

Source: plugin contract §12.1.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.core.messages import Message, ToolCall, Usage
from hermes_agent.sessions.commits import COLUMNS, message_from_row
from hermes_agent.sessions.search import has_search
from hermes_agent.sessions.transcript import LAST_CHARACTER, Transcript


def default_path() -> Path:
    """Return the path of `state.db` in the current home."""
    return hermes_home() / "state.db"


def apply_wal_with_fallback(conn: sqlite3.Connection, *, db_label: str = "state.db") -> str:
    """Set a database to WAL mode, or to DELETE mode if the file system does not support WAL.

    Returns:
        The mode in effect.
    """
    try:
        row = conn.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError:
        row = conn.execute("PRAGMA journal_mode = DELETE").fetchone()
    return str(row[0]) if row else ""


class SessionDB:
    """Sessions and their messages.

    Args:
        db_path: the database; None means that of the home.
        read_only: raise PermissionError in methods that write.

    Raises:
        UserError: the file cannot be opened.
    """

    def __init__(self, db_path: Path | None = None, read_only: bool = False) -> None:
        self.db_path = Path(db_path) if db_path is not None else default_path()
        self._read_only = read_only
        self._transcript = Transcript(self.db_path)
        self._db = self._transcript.database

    def create_session(self, session_id: str, source: str, **details: Any) -> str:
        """Add a session and return its id; an existing session is not changed.

        Args:
            details: `model`, `system_prompt`, `cwd` and `title` are stored, other keywords of upstream are ignored.
        """
        self._check_writable()
        given = {name: str(details.get(name) or "") for name in ("model", "system_prompt", "cwd")}
        self._transcript.create(session_id, source=source, **given)
        if details.get("title"):
            self.set_session_title(session_id, str(details["title"]))
        return session_id

    def ensure_session(self, session_id: str, source: str = "unknown", **details: Any) -> None:
        """Add a session if it does not exist."""
        self.create_session(session_id, source, **details)

    def end_session(self, session_id: str, end_reason: str) -> None:
        """Record the end of a session and its reason."""
        self._check_writable()
        self._transcript.end(session_id, end_reason)

    def reopen_session(self, session_id: str) -> None:
        """Remove the record of a session's end."""
        self._write("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", (session_id,))

    def get_session(self, session_id: str) -> dict[str, Any] | None:
        """Return a session's row, or None if it does not exist."""
        rows = self._db.read("SELECT * FROM sessions WHERE id = ?", (session_id,))
        return dict(rows[0]) if rows else None

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the session id that equals the text or is the only one that begins with it, or None."""
        if not session_id_or_prefix:
            return None
        rows = self._db.read(
            "SELECT id FROM sessions WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 2",
            (session_id_or_prefix, session_id_or_prefix + LAST_CHARACTER),
        )
        ids = [str(row[0]) for row in rows]
        return ids[0] if len(ids) == 1 or session_id_or_prefix in ids[:1] else None

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session, or None."""
        found = self.get_session(session_id)
        return (found or {}).get("title") or None

    def set_session_title(self, session_id: str, title: str) -> bool:
        """Set the title of a session; return False if the session does not exist."""
        return self._write("UPDATE sessions SET title = ? WHERE id = ?", (title, session_id)) > 0

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        **details: Any,
    ) -> int:
        """Append a message to a session and return the message's number.

        Args:
            tool_calls: tool calls in OpenAI's format.
            token_count: ignored, as are `finish_reason` and `details`.

        Raises:
            ValueError: `role` is unknown.
        """
        self._check_writable()
        if role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"role is {role!r}: expected system, user, assistant or tool")
        text = content if isinstance(content, str | list) else "" if content is None else json.dumps(content)
        calls = tuple(_call(c) for c in tool_calls or ())
        message = Message(role, text, calls, tool_call_id or "", tool_name or "")  # type: ignore[arg-type]
        self._transcript.append(session_id, [message], Usage())
        return int(self._db.read("SELECT max(id) FROM messages WHERE session_id = ?", (session_id,))[0][0])

    def get_messages(
        self, session_id: str, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return the messages as rows in order, with decoded `content` and `tool_calls`.

        Args:
            include_inactive: ignored, there are no inactive messages.
        """
        rows = self._db.read(
            f"SELECT {COLUMNS}, id, timestamp FROM messages WHERE session_id = ? ORDER BY id LIMIT ? OFFSET ?",
            (session_id, -1 if limit is None else limit, offset),
        )
        return [
            {"id": row["id"], "session_id": session_id, "timestamp": row["timestamp"]}
            | {"tool_name": row["tool_name"] or None}
            | _conversation(message_from_row(row))
            for row in rows
        ]

    def get_messages_as_conversation(self, session_id: str, **options: Any) -> list[dict[str, Any]]:
        """Return the messages in the form in which a model receives them.

        Args:
            options: accepted and ignored.
        """
        return [_conversation(m) for m in self._transcript.messages(session_id)]

    def search_messages(
        self,
        query: str,
        source_filter: list[str] | None = None,
        exclude_sources: list[str] | None = None,
        role_filter: list[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        sort: str | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Return the messages that match `query` (`sessions.search`), newest first, each with a `snippet`.

        Args:
            sort: `oldest` for the oldest first.
            options: accepted and ignored.
        """
        if not has_search():
            return []
        hits = self._transcript.search(
            query,
            of=None,
            roles=role_filter or (),
            sources=source_filter or (),
            not_sources=exclude_sources or (),
            sort="oldest" if sort == "oldest" else "newest",
            limit=limit,
            offset=offset,
        )
        found = self._db.read(
            "SELECT m.id, m.session_id, m.role, m.content, m.tool_name, m.timestamp, s.source, s.model, s.title"
            " FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id IN (SELECT value FROM json_each(?))",
            (json.dumps([hit.id for hit in hits]),),
        )
        rows = {row["id"]: row for row in found}
        return [dict(rows[hit.id]) | {"snippet": hit.snippet} for hit in hits if hit.id in rows]

    def list_sessions_rich(
        self, source: str | None = None, limit: int = 20, offset: int = 0, **options: Any
    ) -> list[dict[str, Any]]:
        """Return sessions, most recently used first, each with `preview` and `last_active`.

        Args:
            options: accepted and ignored.
        """
        rows = self._db.read(  # uses the index of `updated_at`
            "SELECT s.*, s.updated_at AS last_active, coalesce((SELECT substr(content, 1, 60) FROM messages m"
            " WHERE m.session_id = s.id AND m.role = 'user' ORDER BY m.id LIMIT 1), '') AS preview FROM sessions s"
            " WHERE (?1 IS NULL OR source = ?1) ORDER BY updated_at DESC LIMIT ?2 OFFSET ?3",
            (source, limit, offset),
        )
        return [dict(row) for row in rows]

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
        """Return the sessions of a source, most recently used first."""
        return self.list_sessions_rich(source, limit, offset)

    def session_count(self, source: str | None = None) -> int:
        """Return the number of sessions, of all sources or of one."""
        return int(self._db.read("SELECT count(*) FROM sessions WHERE ?1 IS NULL OR source = ?1", (source,))[0][0])

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of messages, in total or in one session."""
        if session_id is None:
            return int(self._db.read("SELECT count(*) FROM messages")[0][0])
        return int(self._db.read("SELECT count(*) FROM messages WHERE session_id = ?", (session_id,))[0][0])

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """Return a session's row with its `messages`, or None if it does not exist."""
        found = self.get_session(session_id)
        return None if found is None else found | {"messages": self.get_messages(session_id)}

    def delete_session(self, session_id: str) -> bool:
        """Delete a session and its messages; return False if it does not exist."""
        return self._write("DELETE FROM sessions WHERE id = ?", (session_id,)) > 0

    def close(self) -> None:
        """Close the database."""
        self._transcript.close()

    def _write(self, statement: str, values: tuple[Any, ...]) -> int:
        self._check_writable()
        with self._db.write() as db:
            return int(db.execute(statement, values).rowcount)

    def _check_writable(self) -> None:
        if self._read_only:
            raise PermissionError(f"{self.db_path} was opened with read_only=True")


def _call(raw: Any) -> ToolCall:
    function = raw.get("function") or raw
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(str(raw.get("id") or f"call_{time.time_ns()}"), str(function.get("name") or ""), text)


def _conversation(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    return found
