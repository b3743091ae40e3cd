"""Sessions of another program: they are written whole, with their own times, and removed again.

A session is identified by the digest of its messages. A session with the same messages is not written twice, and
one that was continued here is neither replaced nor removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Literal, Self

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, ToolCall
from hermes_agent.core.redaction import redactor
from hermes_agent.sessions.commits import (
    COLUMNS,
    add_compaction,
    message_from_row,
    plain_title,
    row_from_message,
)
from hermes_agent.sessions.principals import LOCAL
from hermes_agent.store import Database


class DatedMessage(LazyNamedTuple):
    """A message with its time, in seconds since the epoch."""

    message: Message
    timestamp: float

    def to_list(self) -> list[Any]:
        """Return the message as JSON values."""
        sent = self.message
        calls = [[call.id, call.name, call.arguments] for call in sent.tool_calls]
        return [sent.role, sent.content, calls, sent.tool_call_id, sent.tool_name, self.timestamp]

    @classmethod
    def from_list(cls, value: Sequence[Any]) -> Self:
        """Read the result of `to_list`."""
        role, content, calls, call_id, tool, timestamp = value
        return cls(Message(role, content, tuple(ToolCall(*call) for call in calls), call_id, tool), timestamp)


@lazy_dataclass(slots=True)
class ImportedSession:
    """A whole session. Times are seconds since the epoch."""

    id: str
    source: str
    started_at: float
    updated_at: float
    messages: list[DatedMessage] = field(default_factory=list)
    history: list[DatedMessage] | None = None
    """The messages that the model gets, if a compaction replaced some; None: all messages."""
    principal: str = LOCAL
    model: str = ""
    title: str = ""
    system_prompt: str = ""
    cwd: str = ""
    parent: str = ""
    ended_at: float | None = None
    end_reason: str | None = None
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Tokens of input, output, and input that the provider read from its cache."""

    @property
    def digest(self) -> str:
        """The digest of the messages."""
        return messages_digest(dated.message for dated in self.messages)

    def to_json(self) -> str:
        """Return the session as one line of JSON."""
        value = {name: getattr(self, name) for name in self.__slots__}  # `asdict` would copy each message
        value |= {"messages": [dated.to_list() for dated in self.messages]}
        value["history"] = None if self.history is None else [dated.to_list() for dated in self.history]
        return json.dumps(value)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`."""
        value = json.loads(text)
        for name in ("messages", "history"):
            if value[name] is not None:
                value[name] = [DatedMessage.from_list(item) for item in value[name]]
        value["tokens"] = tuple(value["tokens"])
        return cls(**value)


def messages_digest(messages: Iterable[Message]) -> str:
    """Return the digest of messages, without times and ids of the database."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(json.dumps(DatedMessage(plain_message(message), 0).to_list()[:-1]).encode() + b"\n")
    return digest.hexdigest()


def plain_message(message: Message) -> Message:
    """Return a message that SQLite can store: question marks for lone surrogates, no NUL at the beginning."""
    text = json.dumps(DatedMessage(message, 0).to_list(), ensure_ascii=False)
    with contextlib.suppress(UnicodeEncodeError):  # nearly every message is as it is stored
        text.encode()
        if not str(message.content).startswith("\0"):
            return message
    value = json.loads(text.encode("utf-8", "replace"))
    if isinstance(value[1], str):
        value[1] = value[1].lstrip("\0")
    return DatedMessage.from_list(value).message


Presence = Literal["new", "same", "longer", "different"]
"""Whether a session is here: not, with the same messages, with fewer messages, or with other messages."""


def find_presence(db: Database, session: ImportedSession) -> Presence:
    """Compare a session with the one that has its id here."""
    stored = stored_messages(db, session.id)
    if stored is None:
        return "new"
    theirs = [dated.message for dated in session.messages]
    if messages_digest(stored) == messages_digest(theirs):
        return "same"
    begins = len(stored) < len(theirs) and messages_digest(stored) == messages_digest(theirs[: len(stored)])
    is_compacted = session.history is not None or _compactions(db, session.id)
    return "longer" if begins and not is_compacted else "different"


def stored_messages(db: Database, session_id: str) -> list[Message] | None:
    """Return the messages of a session here, or None if there is no such session."""
    if not db.read("SELECT 1 FROM sessions WHERE id = ?", (session_id,)):
        return None
    rows = db.read(f"SELECT {COLUMNS} FROM messages WHERE session_id = ? ORDER BY id", (session_id,))
    return list(map(message_from_row, rows))


def _compactions(db: Database, session_id: str) -> int:
    return int(db.read("SELECT count(*) FROM compactions WHERE session_id = ?", (session_id,))[0][0])


def add_sessions(db: Database, sessions: Iterable[ImportedSession]) -> None:
    """Write sessions in one transaction; a session with the beginning of its messages here gets the rest."""
    with db.write(durable=True) as connection:
        for session in sessions:
            _add_session(connection, session)


def _add_session(db: sqlite3.Connection, session: ImportedSession) -> None:
    (present,) = db.execute("SELECT count(*) FROM messages WHERE session_id = ?", (session.id,)).fetchone()
    db.execute(
        "INSERT OR IGNORE INTO sessions (id, source, model, system_prompt, title, cwd, started_at, updated_at,"
        " ended_at, end_reason, input_tokens, output_tokens, cache_read_tokens, principal, parent_session_id,"
        " is_subagent, model_config) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(session.id, session.source, session.model, session.system_prompt),
            *(plain_title(redactor.mask_known(session.title)), session.cwd, session.started_at, session.updated_at),
            *(session.ended_at, session.end_reason, *session.tokens, session.principal, session.parent),
            *(bool(session.parent), json.dumps({"_delegate_from": session.parent}) if session.parent else "{}"),
        ),
    )
    new = session.messages[present:]
    db.executemany(
        f"INSERT INTO messages (session_id, timestamp, principal, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (session.id, at, session.principal if sent.role == "user" else "", *row_from_message(plain_message(sent)))
            for sent, at in new
        ],
    )
    db.execute(
        "UPDATE sessions SET updated_at = max(updated_at, ?), message_count = message_count + ?,"
        " tool_call_count = tool_call_count + ? WHERE id = ?",
        (session.updated_at, len(new), sum(len(sent.tool_calls) for sent, _ in new), session.id),
    )
    if session.history is not None and new:
        add_compaction(db, session.id, [row_from_message(plain_message(sent)) for sent, _ in session.history], (0, 0))


class Removal(LazyNamedTuple):
    """A session to remove: the digest that it must still have, and the number of messages that stay."""

    session_id: str
    digest: str
    keep: int = 0


def remove_sessions(db: Database, removals: Iterable[Removal]) -> list[str]:
    """Remove imported sessions, or the added messages; return the ids of sessions that changed since."""
    kept = []
    for removal in removals:
        stored = stored_messages(db, removal.session_id)
        if stored is None:
            continue
        if messages_digest(stored) != removal.digest:
            kept.append(removal.session_id)
            continue
        with db.write() as connection:
            if removal.keep:
                _truncate(connection, removal.session_id, removal.keep)
            else:
                connection.execute("DELETE FROM sessions WHERE id = ?", (removal.session_id,))
    return kept


def _truncate(db: sqlite3.Connection, session_id: str, keep: int) -> None:
    db.execute(
        "DELETE FROM messages WHERE session_id = ?1 AND id NOT IN"
        " (SELECT id FROM messages WHERE session_id = ?1 ORDER BY id LIMIT ?2)",
        (session_id, keep),
    )
    calls = db.execute("SELECT tool_calls FROM messages WHERE session_id = ? AND tool_calls != ''", (session_id,))
    count = sum(len(json.loads(row[0])) for row in calls.fetchall())
    db.execute("UPDATE sessions SET message_count = ?, tool_call_count = ? WHERE id = ?", (keep, count, session_id))
