"""What strangers wrote, kept as long as what it touched: in `state.db`, away from the transcript."""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.redact import redactor
from hermes_agent.store import Database, Schema

__all__ = ["SCHEMA", "TaintStore", "TrackedText"]

MOST_THINGS = 1_000
"""That the agent wrote strangers' text to."""
MOST_FILES = 20_000
"""That commands wrote, and whose text is not kept."""
MOST_CHARS = 200_000
"""Of one text."""

SCHEMA = Schema(
    "foreign_text",
    (
        """
        CREATE TABLE foreign_texts (
            id INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL,
            source TEXT NOT NULL,
            text BLOB NOT NULL,
            at REAL NOT NULL
        );
        CREATE INDEX foreign_texts_of_session ON foreign_texts (session_id);
        CREATE TABLE foreign_things (
            name TEXT PRIMARY KEY,
            source TEXT NOT NULL,
            text BLOB NOT NULL,
            at REAL NOT NULL
        );
        CREATE TABLE foreign_allowed (rule TEXT PRIMARY KEY, at REAL NOT NULL);
        """,
        """
        CREATE TABLE foreign_answers (
            digest BLOB NOT NULL,
            session_id TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (digest, session_id)
        );
        """,
    ),
    # with its session; after `sessions.SCHEMA`
    expire="DELETE FROM foreign_texts WHERE at < :before AND session_id NOT IN (SELECT id FROM sessions);"
    "DELETE FROM foreign_answers WHERE at < :before;",
)


class TrackedText(NamedTuple):
    """A text and where it comes from; an empty source is the person."""

    source: str
    text: str


class TaintStore:
    """The tables; opened by the first use. From any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._db: Database | None = None

    def _open(self) -> Database:
        if self._db is None:
            self._db = Database(self._path, (SCHEMA,))
        return self._db

    def texts(self, session_id: str) -> list[TrackedText]:
        """Return what was kept of a session, in its order."""
        sql = "SELECT source, text FROM foreign_texts WHERE session_id = ? ORDER BY id"
        with self._lock:
            return [TrackedText(row["source"], _unpacked(row["text"])) for row in self._open().read(sql, (session_id,))]

    def add(self, session_id: str, texts: list[TrackedText]) -> None:
        """Keep texts of a session."""
        rows = [(session_id, text.source, _packed(text.text), time.time()) for text in texts]
        with self._lock, self._open().write() as db:
            db.executemany("INSERT INTO foreign_texts (session_id, source, text, at) VALUES (?, ?, ?, ?)", rows)

    def items(self) -> dict[str, TrackedText]:
        """Return by name what strangers' text was written to: files, memory, skills, scheduled prompts."""
        sql = "SELECT name, source, text FROM foreign_things ORDER BY at"
        with self._lock:
            return {row["name"]: TrackedText(row["source"], _unpacked(row["text"])) for row in self._open().read(sql)}

    def mark_item(self, name: str, text: TrackedText) -> None:
        """Keep that a thing has a stranger's text; beyond `MOST_THINGS` and `MOST_FILES` the oldest go."""
        sql = "INSERT OR REPLACE INTO foreign_things (name, source, text, at) VALUES (?, ?, ?, ?)"
        packed = _packed(text.text)
        same, most = ("=", MOST_FILES) if packed == _NOTHING else ("!=", MOST_THINGS)
        with self._lock, self._open().write() as db:
            db.execute(sql, (name, text.source, packed, time.time()))
            db.execute(
                f"DELETE FROM foreign_things WHERE name IN (SELECT name FROM foreign_things WHERE text {same} ?"
                " ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (_NOTHING, most),
            )

    def save_answer(self, text: str, session_ids: Iterable[str]) -> None:
        """Keep what was heard before an answer that its caller keeps: the texts of these sessions; of none, nothing."""
        rows = [(_digest(text), session_id, time.time()) for session_id in (list(session_ids) or [""])]
        with self._lock, self._open().write() as db:
            db.executemany("INSERT OR REPLACE INTO foreign_answers VALUES (?, ?, ?)", rows)

    def sessions_before_answer(self, text: str) -> list[str] | None:
        """Return the sessions with what was heard before an answer; None for one that nobody here gave."""
        sql = "SELECT session_id FROM foreign_answers WHERE digest = ?"
        with self._lock:
            found = [row["session_id"] for row in self._open().read(sql, (_digest(text),))]
        return [session_id for session_id in found if session_id] if found else None

    def allow(self, rule: str) -> None:
        """Never ask about this again."""
        with self._lock, self._open().write() as db:
            db.execute("INSERT OR REPLACE INTO foreign_allowed VALUES (?, ?)", (rule, time.time()))

    def is_allowed(self, rule: str) -> bool:
        """Say whether somebody answered `always`."""
        with self._lock:
            return bool(self._open().read("SELECT 1 FROM foreign_allowed WHERE rule = ?", (rule,)))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None


def _digest(text: str) -> bytes:
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).digest()


def _packed(text: str) -> bytes:
    return zlib.compress(redactor(text[:MOST_CHARS]).encode("utf-8", "replace"), 1)


_NOTHING = zlib.compress(b"", 1)


def _unpacked(blob: bytes) -> str:
    return zlib.decompress(blob).decode()
