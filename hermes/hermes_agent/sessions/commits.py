"""Commits of a session: its row, messages, step journal and usage; and its compacted histories.

A compaction replaces the messages before it for the model alone; the messages stay stored.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from hermes_agent.adapters.events import SESSION_VARIABLES
from hermes_agent.core.errors import AccessDenied
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, ToolCall, Usage, new_session_id
from hermes_agent.core.redaction import redactor
from hermes_agent.core.text import shorten
from hermes_agent.sessions.principals import LOCAL
from hermes_agent.sessions.turn_journal import TurnRecord
from hermes_agent.sessions.usage import UsageRecord
from hermes_agent.store import Database, Schema

COLUMNS = "role, content, tool_calls, tool_call_id, tool_name, extras"
_PARTS = "\x00parts:"
"""Marks content that is a list of parts; no text of a user starts with a NUL."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def row_from_message(message: Message) -> list[str]:
    """Return the columns `COLUMNS`."""
    content, calls, extras = message.content, message.tool_calls, message.extras
    return [
        message.role,
        content if isinstance(content, str) else _PARTS + json.dumps(content, ensure_ascii=False),
        json.dumps([[c.id, c.name, c.arguments] for c in calls], ensure_ascii=False) if calls else "",
        message.tool_call_id,
        message.tool_name,
        json.dumps(extras, ensure_ascii=False) if extras else "",
    ]


def message_from_row(row: Sequence[Any]) -> Message:
    """Read the columns `COLUMNS`."""
    role, content, calls, call_id, tool, extras = row[:6]
    if content.startswith(_PARTS):
        content = json.loads(content[len(_PARTS) :])
    tool_calls = tuple(ToolCall(*item) for item in json.loads(calls)) if calls else ()
    return Message(role, content, tool_calls, call_id, tool, json.loads(extras) if extras else None)


_EXTRAS_COLUMN = "ALTER TABLE messages ADD COLUMN extras TEXT NOT NULL DEFAULT '';"
"""`Message.extras` as JSON."""
_PRINCIPAL_COLUMNS = """
    ALTER TABLE sessions ADD COLUMN principal TEXT NOT NULL DEFAULT 'local';
    ALTER TABLE sessions ADD COLUMN parent_session_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE messages ADD COLUMN principal TEXT NOT NULL DEFAULT '';
    UPDATE sessions SET principal = 'api_server' WHERE source = 'api_server';
    UPDATE messages SET principal = (SELECT principal FROM sessions WHERE id = session_id) WHERE role = 'user';
    CREATE INDEX sessions_of_principal ON sessions (principal, updated_at DESC);
"""
_CHAT_COLUMNS = "".join(
    f"ALTER TABLE sessions ADD COLUMN {name} TEXT;"
    for name in ("session_key", "user_id", "chat_id", "thread_id", "model_config")
)
"""Upstream's columns that plugins read in `state.db`: plugin contract §12.1."""
CHILD_COLUMNS = """
    ALTER TABLE sessions ADD COLUMN is_subagent INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET is_subagent = 1, model_config = json_object('_delegate_from', parent_session_id)
        WHERE parent_session_id <> '';
    UPDATE sessions SET parent_session_id = json_extract(model_config, '$._branched_from')
        WHERE CASE WHEN json_valid(model_config) THEN json_extract(model_config, '$._branched_from') END IS NOT NULL;
"""
"""Subagents and branches both have `parent_session_id`, as upstream's; `is_subagent` tells them apart."""
_RULE_COLUMN = "ALTER TABLE sessions ADD COLUMN rule TEXT NOT NULL DEFAULT '';"
"""Id of the rule of `model.routes` that chose the session's model."""
LATER_STEPS = (_EXTRAS_COLUMN, _PRINCIPAL_COLUMNS, _CHAT_COLUMNS, CHILD_COLUMNS, _RULE_COLUMN)
"""The steps after the first; see `store.Schema`."""


class BoundChat(LazyNamedTuple):
    """Where the message comes from that is processed."""

    session_key: str
    user_id: str
    chat_id: str
    thread_id: str


def bound_chat() -> BoundChat | None:
    """Return the chat of the message that is processed, or None outside of one."""
    names = ("KEY", "USER_ID", "CHAT_ID", "THREAD_ID")
    found = BoundChat(*(str(SESSION_VARIABLES[f"HERMES_SESSION_{name}"].get("")) for name in names))
    return found if found.session_key else None


class NewSession(LazyNamedTuple):
    """The row of a new session."""

    source: str
    model: str
    system_prompt: str
    cwd: str
    principal: str = LOCAL
    parent: str = ""
    """Id of the session that delegated a task to this one, or ""."""
    visible: frozenset[str] | None = None
    """Principals that the principal may see the sessions of; None allows all."""
    chat: BoundChat | None = None
    """The chat in which it begins; that of a subagent is its parent's alone."""

    def write(self, db: sqlite3.Connection, session_id: str) -> None:
        """Add the row unless it exists, inside a transaction.

        Raises:
            AccessDenied: it exists and belongs to another principal.
        """
        now, chat = time.time(), None if self.parent else self.chat
        origin = json.dumps({"_delegate_from": self.parent}) if self.parent else "{}"
        db.execute(
            "INSERT OR IGNORE INTO sessions (id, source, model, system_prompt, cwd, started_at, updated_at,"
            " principal, parent_session_id, session_key, user_id, chat_id, thread_id, model_config,"
            " is_subagent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(session_id, self.source, self.model, self.system_prompt, self.cwd, now, now),
                *(self.principal, self.parent, *(chat or (None,) * len(BoundChat._fields)), origin, bool(self.parent)),
            ),
        )
        (owner,) = db.execute("SELECT principal FROM sessions WHERE id = ?", (session_id,)).fetchone()
        if self.visible is not None and owner not in self.visible:
            raise session_denied(session_id, self.principal)


@lazy_dataclass(slots=True)
class SessionCommit:
    """What one commit adds to a session."""

    principal: str = ""
    """Principal of the user messages."""
    session: NewSession | None = None
    messages: list[Message] = field(default_factory=list)
    tokens: Usage = field(default_factory=Usage)
    turn: TurnRecord | None = None
    usage: list[UsageRecord] = field(default_factory=list)
    answer: Message | None = None
    """Takes the place of the last stored message of the assistant."""
    rule: str = ""
    """The rule that chose the model (`models.model_routes`); "" changes nothing."""

    def write(self, db: sqlite3.Connection, session_id: str) -> None:
        """Write the commit, inside a transaction.

        Raises:
            AccessDenied: the session belongs to another principal.
        """
        if self.session is not None:
            self.session.write(db, session_id)
        if self.rule:
            db.execute("UPDATE sessions SET rule = ? WHERE id = ?", (self.rule, session_id))
        if self.turn is not None:
            self.turn.begin(db, session_id)
        if self.messages:
            append_messages(db, session_id, self.messages, self.tokens, self.principal)
        if self.answer is not None:
            replace_answer(db, session_id, self.answer)
        if self.turn is not None:
            self.turn.write(db)
        for note in self.usage:
            note.write(db)


def session_denied(session_id: str, principal: str) -> AccessDenied:
    """Return the error for a session of another principal."""
    return AccessDenied(
        f"session {session_id!r} cannot be opened here: it is not {principal}'s",
        hint="Take another id; the operator can let several users share sessions (`people` in the config).",
    )


def replace_answer(db: sqlite3.Connection, session_id: str, message: Message) -> None:
    """Replace the last message of a session, which is the assistant's; it gets a new id."""
    rows = db.execute(
        "SELECT id, role, timestamp FROM messages WHERE session_id = ? ORDER BY id DESC LIMIT 1", (session_id,)
    ).fetchall()
    if not rows or rows[0][1] != "assistant":
        return
    db.execute("DELETE FROM messages WHERE id = ?", (rows[0][0],))
    db.execute(
        f"INSERT INTO messages (session_id, timestamp, principal, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session_id, rows[0][2], "", *row_from_message(message)),
    )


def append_messages(
    db: sqlite3.Connection, session_id: str, messages: Sequence[Message], usage: Usage, principal: str
) -> None:
    """Add messages to the end of a session, inside a transaction."""
    now = time.time()
    rows = [(session_id, now, principal if m.role == "user" else "", *row_from_message(m)) for m in messages]
    db.executemany(
        f"INSERT INTO messages (session_id, timestamp, principal, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
    )
    db.execute(
        "UPDATE sessions SET updated_at = ?, ended_at = NULL, end_reason = NULL,"
        " message_count = message_count + ?, tool_call_count = tool_call_count + ?,"
        " input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,"
        " cache_read_tokens = cache_read_tokens + ?, title = CASE WHEN title = '' THEN ? ELSE title END WHERE id = ?",
        (
            *(now, len(rows), sum(len(m.tool_calls) for m in messages)),
            *(usage.input_tokens, usage.output_tokens, usage.cached_tokens),
            *(_title(next((m.text for m in messages if m.role == "user"), "")), session_id),
        ),
    )


def copy_session(db: sqlite3.Connection, session_id: str, messages: Sequence[Message], title: str) -> str:
    """Add a session with these messages and the rest of another one, inside a transaction; return its id."""
    copy, now = new_session_id(), time.time()
    db.execute(
        "INSERT INTO sessions (id, source, model, system_prompt, cwd, started_at, updated_at, principal,"
        " parent_session_id, title, model_config, rule) SELECT ?, source, model, system_prompt, cwd, ?, ?, principal,"
        " id, ?, json_object('_branched_from', id), rule FROM sessions WHERE id = ?",  # plugins know a branch by it
        (copy, now, now, plain_title(redactor.mask_known(title)), session_id),
    )
    append_messages(db, copy, messages, Usage(), "")
    return copy


def delete_session(db: sqlite3.Connection, session_id: str) -> None:
    """Delete a session with those of its subagents, inside a transaction; its branches stay."""
    db.execute("DELETE FROM sessions WHERE id = ?1 OR (is_subagent AND parent_session_id = ?1)", (session_id,))
    db.execute("UPDATE sessions SET parent_session_id = '' WHERE parent_session_id = ?", (session_id,))


def plain_title(text: str) -> str:
    """Return `text` as one line without control characters, because lists in terminals show it."""
    return " ".join(_CONTROL.sub(" ", text).split())


def _title(text: str) -> str:
    """Return the first line of `text`, at most 60 characters."""
    return shorten(plain_title(text.strip().split("\n", 1)[0]), 60)


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
    """Replace every message that the session has now by `rows`. Earlier compactions stay, for a replay."""
    (upto,) = db.execute("SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?", (session_id,)).fetchone()
    db.execute(
        "INSERT INTO compactions (session_id, upto, messages, tokens_before, tokens_after, timestamp)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, upto, json.dumps(rows, ensure_ascii=False), *tokens, time.time()),
    )


def truncate_compaction(db: sqlite3.Connection, session_id: str, after: int) -> bool:
    """Remove the messages with a number above `after` from the last compaction of a session.

    Return False, and change nothing, if the compaction does not end with these messages in their original form.
    """
    last = db.execute(
        "SELECT id, upto, messages FROM compactions WHERE session_id = ? ORDER BY id DESC LIMIT 1", (session_id,)
    ).fetchone()
    if last is None or last["upto"] <= after:
        return True
    removed = db.execute(
        f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id <= ? ORDER BY id",
        (session_id, after, last["upto"]),
    ).fetchall()
    rows = json.loads(last["messages"])
    rest = rows[: -len(removed)] if removed else rows
    if [*map(message_from_row, rows[len(rest) :])] != [*map(message_from_row, removed)]:
        return False
    text = json.dumps(rest, ensure_ascii=False)
    db.execute("UPDATE compactions SET messages = ? WHERE id = ?", (text, last["id"]))
    # an empty compaction goes, too: the session continues with the history before it
    db.execute(
        "DELETE FROM compactions WHERE session_id = ? AND upto > ? AND id != ?",
        (session_id, after, last["id"] if rest else 0),
    )
    return True


def last_compaction_id(db: Database, session_id: str) -> int:
    """Return the number of a session's last compaction, or 0 without one."""
    return int(db.read("SELECT coalesce(max(id), 0) FROM compactions WHERE session_id = ?", (session_id,))[0][0])


def load_compaction(db: Database, number: int) -> tuple[int, Sequence[Sequence[str]]] | None:
    """Return the number of the last message that a compaction replaces, and its rows.

    None if only its counts are stored, as an earlier release left them.
    """
    found = db.read("SELECT upto, messages FROM compactions WHERE id = ? AND messages != '[]'", (number,))
    return (found[0][0], json.loads(found[0][1])) if found else None
