"""The transcript: all stored sessions with their messages.

Table and column names are upstream's where the meaning is the same (plugin contract §12.1). All methods are synchronous
and fast; the agent calls them in one thread, so that there is one writer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Message, Usage
from hermes_agent.core.redaction import redactor
from hermes_agent.sessions import commits, turn_journal
from hermes_agent.sessions.commits import (
    COLUMNS,
    COMPACTIONS,
    LATER_STEPS,
    NewSession,
    SessionCommit,
    add_compaction,
    append_messages,
    copy_session,
    last_compaction_id,
    load_compaction,
    message_from_row,
    plain_title,
    row_from_message,
    truncate_compaction,
)
from hermes_agent.sessions.principals import LOCAL
from hermes_agent.sessions.search import (
    SEARCH,
    SearchHit,
    has_search,
    messages_around,
    search_messages,
    session_principal,
)
from hermes_agent.sessions.turn_journal import (
    DELEGATIONS,
    JOURNAL,
    CallRecord,
    Delegation,
    RequestRecord,
    StoredTurn,
    UnfinishedTurn,
)
from hermes_agent.sessions.usage import USAGE, UsageTotals, usage_totals
from hermes_agent.store import Database, Schema

SCHEMA = Schema(
    "sessions",
    (
        """
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            source TEXT NOT NULL,
            model TEXT NOT NULL DEFAULT '',
            system_prompt TEXT NOT NULL DEFAULT '',
            title TEXT NOT NULL DEFAULT '',
            cwd TEXT NOT NULL DEFAULT '',
            started_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            ended_at REAL,
            end_reason TEXT,
            message_count INTEGER NOT NULL DEFAULT 0,
            tool_call_count INTEGER NOT NULL DEFAULT 0,
            input_tokens INTEGER NOT NULL DEFAULT 0,
            output_tokens INTEGER NOT NULL DEFAULT 0,
            cache_read_tokens INTEGER NOT NULL DEFAULT 0
        );
        CREATE INDEX sessions_recent ON sessions (updated_at DESC);
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            role TEXT NOT NULL,
            content TEXT NOT NULL,
            tool_call_id TEXT NOT NULL DEFAULT '',
            tool_calls TEXT NOT NULL DEFAULT '',
            tool_name TEXT NOT NULL DEFAULT '',
            timestamp REAL NOT NULL
        );
        CREATE INDEX messages_of_session ON messages (session_id, id);
        """,
        *LATER_STEPS,
    ),
    expire="DELETE FROM sessions WHERE updated_at < :before;",
)


@lazy_dataclass(frozen=True, slots=True)
class SessionInfo:
    """One row of `hermes sessions list`. Times are seconds since the epoch."""

    id: str
    source: str
    model: str
    title: str
    started_at: float
    updated_at: float
    message_count: int
    tool_call_count: int
    principal: str
    """See `sessions.principals`."""


class StoredSession(LazyNamedTuple):
    """What a conversation needs to continue a stored session."""

    principal: str
    system_prompt: str
    """The prompt of its first turn."""
    messages: list[Message]
    is_cut: bool
    """Whether one of its turns has no end: it runs, or a crash interrupted it (`Transcript.unfinished`)."""
    started_at: float = 0.0
    rule: str = ""
    """The rule that chose its model (`models.model_routes`), or ""."""


class _CachedHistory(LazyNamedTuple):
    """The history of a session as it was read last."""

    compaction: int
    """Number of the compaction that it begins with, or 0."""
    last: int
    """Number of its last message."""
    messages: list[Message]
    size: int


CACHED_CHARACTERS = 8 * 2**20
"""Characters of histories that are cached for the next conversation; the last history always is."""
LAST_CHARACTER = chr(0x10FFFF)
"""Sorts after every other character: `BETWEEN prefix AND prefix + LAST_CHARACTER` finds a prefix by an index."""

_INFO = (
    "SELECT id, source, model, title, started_at, updated_at, message_count, tool_call_count, principal FROM sessions"
)


def _size(rows: Iterable[Iterable[Any]]) -> int:
    return sum(len(value) for row in rows for value in row if isinstance(value, str))


class Transcript:
    """Reads and writes sessions."""

    def __init__(self, path: Path) -> None:
        self._db = self.database = Database(
            path, (SCHEMA, COMPACTIONS, JOURNAL, USAGE, DELEGATIONS, *((SEARCH,) if has_search() else ()))
        )
        self._cache: OrderedDict[str, _CachedHistory] = OrderedDict()
        """By session: the last result of `history`, so that it reads only newer messages."""

    def create(
        self,
        session_id: str,
        *,
        source: str,
        model: str,
        system_prompt: str,
        cwd: str,
        principal: str = LOCAL,
        parent: str = "",
    ) -> None:
        """Add a session; an existing session stays unchanged."""
        with self._db.write() as db:
            NewSession(source, model, system_prompt, cwd, principal, parent).write(db, session_id)

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        usage: Usage = Usage(),  # noqa: B008 - frozen
        principal: str = "",
    ) -> None:
        """Add messages to the end of a session, all of them or none.

        Args:
            principal: principal of the user messages.
        """
        with self._db.write() as db:
            append_messages(db, session_id, messages, usage, principal)

    def write(self, steps: Sequence[tuple[str, SessionCommit]]) -> list[Exception | None]:
        """Write the steps of turns, each for the session of its id, in one commit.

        Returns:
            For each step its error or None: `UserError` if the session has another principal, or `sqlite3.Error`. If
            one fails, each of the others is written in a commit of its own.
        """
        try:
            with self._db.write() as db:
                for session_id, step in steps:
                    step.write(db, session_id)
        except Exception as exc:  # noqa: BLE001 - returned
            if len(steps) == 1:
                return [exc]
            return [error for each in steps for error in self.write((each,))]
        return [None] * len(steps)

    def title(self, session_id: str) -> str | None:
        """Return the title of a session, or None if the session does not exist."""
        rows = self._db.read("SELECT title FROM sessions WHERE id = ?", (session_id,))
        return str(rows[0][0]) if rows else None

    def set_title(self, session_id: str, title: str) -> None:
        """Set the title of a session."""
        with self._db.write() as db:
            text = plain_title(redactor.mask_known(title))
            db.execute("UPDATE sessions SET title = ? WHERE id = ?", (text, session_id))

    def last_turn(self, session_id: str) -> str:
        """Return the id of the turn that started last, or ""."""
        newest = "ORDER BY before DESC, started_at DESC LIMIT 1"
        rows = self._db.read(f"SELECT id FROM turns WHERE session_id = ? {newest}", (session_id,))
        return str(rows[0][0]) if rows else ""

    def drop_last_turn(self, session_id: str) -> str:
        """Delete the last user message with all that followed, and return its text.

        Return "" if there is none, or if a compaction replaced it by other text.
        """
        with self._db.write() as db:
            row = db.execute(
                f"SELECT id, {COLUMNS} FROM messages WHERE session_id = ? AND role = 'user' ORDER BY id DESC LIMIT 1",
                (session_id,),
            ).fetchone()
            if row is None or not truncate_compaction(db, session_id, row[0] - 1):
                return ""
            count = db.execute("DELETE FROM messages WHERE session_id = ? AND id >= ?", (session_id, row[0])).rowcount
            db.execute("UPDATE sessions SET message_count = message_count - ? WHERE id = ?", (count, session_id))
            db.execute(
                "DELETE FROM turns WHERE session_id = ?1 AND before >="
                " (SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?1)",
                (session_id,),
            )
        return message_from_row(row[1:]).text

    def end(self, session_id: str, reason: str) -> None:
        """Store the end of a session."""
        with self._db.write() as db:
            row = (time.time(), reason, session_id)
            db.execute("UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?", row)

    def messages(self, session_id: str, *, after: int = 0, upto: int = 1 << 62) -> list[Message]:
        """Return the messages of a session in their order.

        Args:
            after: number of a message; only later ones are returned.
            upto: number of the last message.
        """
        rows = self._db.read(
            f"SELECT {COLUMNS} FROM messages WHERE session_id = ? AND id > ? AND id <= ? ORDER BY id",
            (session_id, after, upto),
        )
        return list(map(message_from_row, rows))

    def has_turn(self, session_id: str, *, since: int) -> bool:
        """Return whether a turn started after message number `since`."""
        found = "SELECT 1 FROM turns WHERE session_id = ? AND before >= ? LIMIT 1"
        return bool(self._db.read(found, (session_id, since)))

    def unfinished(self, session_id: str | None = None, since: int | None = None) -> list[UnfinishedTurn]:
        """Return the turns without an end, oldest first (`load_unfinished`)."""
        return turn_journal.load_unfinished(self._db, session_id, since)

    def claim(self, turn: UnfinishedTurn) -> bool:
        """Claim a turn that another process left; return False if a third process was first."""
        with self._db.write() as db:
            return turn_journal.claim_turn(db, turn)

    def delegation_begins(self, new: Delegation) -> None:
        """Store new background work of subagents."""
        turn_journal.add_delegation(self._db, new)

    def delegation_ends(self, delegation_id: str, text: str) -> None:
        """Store the reports of a delegation."""
        turn_journal.finish_delegation(self._db, delegation_id, text)

    def delegations_left(self, session_id: str = "") -> list[Delegation]:
        """Claim the delegations that another process left (`claim_delegations`)."""
        return turn_journal.claim_delegations(self._db, session_id)

    def journal(self, turn_id: str) -> tuple[list[RequestRecord], list[CallRecord]]:
        """Return the requests and the calls of a turn."""
        return turn_journal.load_requests(self._db, turn_id), turn_journal.load_calls(self._db, turn_id)

    def turns(self, session_id: str) -> list[StoredTurn]:
        """Return the turns of a session in their order."""
        return turn_journal.load_turns(self._db, session_id)

    def history_before(self, turn: StoredTurn) -> list[Message] | None:
        """Return the history that the model had when a turn started, or None if it is not stored any more."""
        if not turn.compaction:
            return self.messages(turn.session_id, upto=turn.before)
        found = load_compaction(self._db, turn.compaction)
        if found is None:
            return None
        upto, rows = found
        return [*map(message_from_row, rows), *self.messages(turn.session_id, after=upto, upto=turn.before)]

    def compaction(self, number: int) -> list[Message] | None:
        """Return the messages of a compaction, or None if they are not stored any more."""
        found = load_compaction(self._db, number)
        return None if found is None else [message_from_row(row) for row in found[1]]

    def usage(self, *, session_id: str = "", turn_id: str = "", day: str = "") -> UsageTotals:
        """Return the usage of a session, a turn or a day."""
        return usage_totals(self._db, session_id=session_id, turn_id=turn_id, day=day)

    def last_result(self, session_id: str, tool: str) -> str:
        """Return the last result of a tool in a session, or ""."""
        rows = self._db.read(
            "SELECT content FROM messages WHERE session_id = ? AND role = 'tool' AND tool_name = ?"
            " ORDER BY id DESC LIMIT 1",
            (session_id, tool),
        )
        return str(rows[0][0]) if rows else ""

    def compact(self, session_id: str, messages: Sequence[Message], tokens: tuple[int, int]) -> None:
        """Replace the history by `messages` for the model; the messages stay stored.

        Args:
            tokens: approximate length before and after.
        """
        with self._db.write() as db:
            add_compaction(db, session_id, list(map(row_from_message, messages)), tokens)

    def branch(self, session_id: str, title: str) -> str:
        """Copy a session under another title, and return the id of the copy."""
        messages = self.history(session_id)
        with self._db.write() as db:
            return copy_session(db, session_id, messages, title)

    def history(self, session_id: str) -> list[Message]:
        """Return the history for the model: the last compaction and the messages since, or all messages."""
        stored = self.load(session_id)
        return [] if stored is None else stored.messages

    def _load_history(self, session_id: str, compaction: int, *, is_valid: bool) -> list[Message]:
        """Return `history`.

        Args:
            compaction: number of the last compaction.
            is_valid: whether the last message of the cached history still exists.
        """
        known = self._cache.pop(session_id, None)
        # numbers of messages are never reused and messages never change: if the last one exists, all before it do
        if known is None or known.compaction != compaction or not is_valid:
            upto, rows = load_compaction(self._db, compaction) or (0, ())
            known = _CachedHistory(compaction, upto, [message_from_row(row) for row in rows], _size(rows))
        new = self._db.read(
            f"SELECT {COLUMNS}, id FROM messages WHERE session_id = ? AND id > ? ORDER BY id", (session_id, known.last)
        )
        if new:
            messages = [*known.messages, *map(message_from_row, new)]
            known = _CachedHistory(compaction, new[-1]["id"], messages, known.size + _size(new))
        self._cache[session_id] = known
        while len(self._cache) > 1 and sum(read.size for read in self._cache.values()) > CACHED_CHARACTERS:
            self._cache.popitem(last=False)
        return list(known.messages)

    def drop_cache(self) -> None:
        """Release the cached histories."""
        self._cache.clear()

    def last_id(self, session_id: str) -> int:
        """Return the number of the last message, or 0."""
        rows = self._db.read("SELECT coalesce(max(id), 0) FROM messages WHERE session_id = ?", (session_id,))
        return int(rows[0][0])

    def load(self, session_id: str) -> StoredSession | None:
        """Return a session with its history, or None if it does not exist."""
        known = self._cache.get(session_id)
        last = known.last if known is not None else 0
        rows = self._db.read(
            "SELECT principal, system_prompt, (SELECT coalesce(max(id), 0) FROM compactions WHERE session_id = ?1), ?2"
            " = 0 OR EXISTS (SELECT 1 FROM messages WHERE session_id = ?1 AND id = ?2), EXISTS (SELECT 1 FROM"
            " turns WHERE session_id = ?1 AND state = 'running'), started_at, rule FROM sessions WHERE id = ?1",
            (session_id, last),
        )
        if not rows:
            return None
        principal, prompt, compaction, is_valid, is_cut, started, rule = rows[0]
        messages = self._load_history(session_id, compaction, is_valid=bool(is_valid))
        return StoredSession(principal, prompt, messages, bool(is_cut), started, rule)

    def system_prompt(self, session_id: str) -> str | None:
        """Return the system prompt of a session, or None if the session does not exist."""
        rows = self._db.read("SELECT system_prompt FROM sessions WHERE id = ?", (session_id,))
        return str(rows[0][0]) if rows else None

    def set_system_prompt(self, session_id: str, prompt: str) -> None:
        """Replace the system prompt of a session."""
        with self._db.write() as db:
            row = (redactor.mask_known(prompt), session_id)
            db.execute("UPDATE sessions SET system_prompt = ? WHERE id = ?", row)

    def source(self, session_id: str) -> str | None:
        """Return the platform of a session, or None if the session does not exist."""
        rows = self._db.read("SELECT source FROM sessions WHERE id = ?", (session_id,))
        return str(rows[0][0]) if rows else None

    def count_user_messages(self, session_id: str) -> int:
        """Return how many user messages a stored session has."""
        rows = self._db.read("SELECT count(*) FROM messages WHERE session_id = ? AND role = 'user'", (session_id,))
        return int(rows[0][0])

    def has_user_text(self, session_id: str, text: str) -> bool:
        """Return whether a user message of a session contains a text."""
        found = "SELECT 1 FROM messages WHERE session_id = ? AND role = 'user' AND instr(content, ?) LIMIT 1"
        return bool(self._db.read(found, (session_id, text)))

    def principal(self, session_id: str) -> str | None:
        """Return the principal of a session, or None if the session does not exist."""
        rows = self._db.read("SELECT principal FROM sessions WHERE id = ?", (session_id,))
        return str(rows[0][0]) if rows else None

    def recent(
        self, limit: int = 20, *, source: str | None = None, of: Collection[str] | None = None
    ) -> list[SessionInfo]:
        """Return the sessions that were used last, newest first; sessions without messages are left out.

        Args:
            of: principals of the sessions (`Principals.visible_to`); None, for the operator alone, takes all.
        """
        condition, names = session_principal(of)
        rows = self._db.read(
            f"{_INFO} WHERE message_count > 0 AND NOT is_subagent AND (? IS NULL OR source = ?) AND {condition}"
            " ORDER BY updated_at DESC, id DESC LIMIT ?",
            (source, source, *names, limit),
        )
        return [SessionInfo(*row) for row in rows]

    def find(self, prefix: str, *, of: Collection[str] | None = None) -> SessionInfo:
        """Return the session with an id that is or starts with `prefix`.

        Args:
            of: as for `recent`.

        Raises:
            UserError: no session fits, or more than one.
        """
        condition, names = session_principal(of)
        rows = self._db.read(
            f"{_INFO} WHERE id BETWEEN ? AND ? AND {condition} ORDER BY id = ? DESC, updated_at DESC LIMIT 6",
            (prefix, prefix + LAST_CHARACTER, *names, prefix),
        )
        if not rows or not prefix:
            raise UserError(f"there is no session {prefix!r}", hint="`hermes sessions list` shows what there is.")
        if rows[0][0] != prefix and len(rows) > 1:
            ids = ", ".join(r[0] for r in rows[:5])
            raise UserError(f"{prefix!r} fits more than one session: {ids}", hint="Give more of the id.")
        return SessionInfo(*rows[0])

    def search(self, query: str, *, of: Collection[str] | None, **options: Any) -> list[SearchHit]:
        """Return messages by their words.

        Args:
            options: of `search_messages`.

        Raises:
            UserError: this machine's SQLite has no full-text search.
        """
        if not has_search():
            raise UserError("this machine's SQLite has no full-text search (FTS5), so sessions cannot be searched")
        return search_messages(self._db, query, of=of, **options)

    def around(self, session_id: str, message_id: int, window: int) -> list[tuple[int, str, str, float]]:
        """Return number, role, text and time of a message and of up to `window` before and after it."""
        return messages_around(self._db, session_id, message_id, window)

    def is_compacted(self, session_id: str) -> bool:
        """Return whether the model gets a compaction of the session."""
        return last_compaction_id(self._db, session_id) > 0

    def delete(self, session_id: str) -> None:
        """Delete a session, with the sessions of its subagents."""
        with self._db.write() as db:
            commits.delete_session(db, session_id)

    def close(self) -> None:
        """Close the database."""
        self._db.close()
