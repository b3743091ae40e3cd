"""The entries of one user, in SQLite; words of any script are found by trigrams of their letters."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["NotebookStore", "NotebookEntry"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    person TEXT NOT NULL,
    session TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    time REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS entries_of_person ON entries (person, kind, id);
CREATE VIRTUAL TABLE IF NOT EXISTS entries_text USING fts5 (
    text, content='entries', content_rowid='id', tokenize='trigram'
);
CREATE TRIGGER IF NOT EXISTS entries_in AFTER INSERT ON entries BEGIN
    INSERT INTO entries_text (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER IF NOT EXISTS entries_out AFTER DELETE ON entries BEGIN
    INSERT INTO entries_text (entries_text, rowid, text) VALUES ('delete', old.id, old.text);
END;
"""
MAX_CHARS = 8000
"""Characters of one entry that are kept."""
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    """
    the and for are was were you your his her its our that this with from have has had not but what when where which
    who how why can could would should will about into there their them they then than does did just like some any all
    """.split()  # noqa: SIM905 - a list of words
)
_MOST_TERMS = 40


class NotebookEntry(NamedTuple):
    """What was said or noted."""

    id: int
    kind: str
    text: str
    day: str


class NotebookStore:
    """Entries of one user; safe for threads.

    Args:
        person: the user; entries of other users are not visible.
        most: largest number of entries of this user.
    """

    def __init__(self, path: Path, person: str, most: int) -> None:
        self._person = person
        self._most = max(most, 1)
        self._lock = threading.Lock()
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(SCHEMA)

    @staticmethod
    def can_search() -> bool:
        """Say whether this SQLite can do it."""
        db = sqlite3.connect(":memory:")
        try:
            db.execute("CREATE VIRTUAL TABLE t USING fts5 (x, tokenize='trigram')")
        except sqlite3.Error:
            return False
        finally:
            db.close()
        return True

    def add(self, kind: str, text: str, session: str) -> int:
        """Add an entry and return its id; of too many turns the oldest goes."""
        with self._lock, self._db:
            row = self._db.execute(
                "INSERT INTO entries (person, session, kind, text, time) VALUES (?, ?, ?, ?, ?)",
                (self._person, session, kind, text[:MAX_CHARS], time.time()),
            )
            self._db.execute(
                "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE person = ? AND kind = 'turn'"
                " ORDER BY id DESC LIMIT -1 OFFSET ?)",
                (self._person, self._most),
            )
            return int(row.lastrowid or 0)

    def remove(self, number: int) -> bool:
        """Take an entry of this person out; false when it is not there."""
        with self._lock, self._db:
            found = self._db.execute("DELETE FROM entries WHERE id = ? AND person = ?", (number, self._person))
            return found.rowcount > 0

    def search(self, query: str, limit: int, *, without: str | None = None) -> list[NotebookEntry]:
        """Return the entries that share most words with `query`, best first.

        Args:
            without: a session; its turns are left out.
        """
        words = list(dict.fromkeys(w for w in _WORD.findall(query.lower()) if w not in _COMMON))
        terms = [t for word in words for t in _terms(word)][:_MOST_TERMS]
        where, given = "e.person = ? AND NOT (e.kind = 'turn' AND e.session = ?)", [self._person, without or ""]
        if terms:
            match = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
            sql = (
                "SELECT e.id, e.kind, e.text, e.time FROM entries_text t JOIN entries e ON e.id = t.rowid"
                f" WHERE entries_text MATCH ? AND {where} ORDER BY bm25(entries_text), e.id DESC LIMIT ?"
            )
            values = [match, *given, limit]
        elif words:  # too short for rows of three
            sql = f"SELECT e.id, e.kind, e.text, e.time FROM entries e WHERE {where} AND ("
            sql += " OR ".join("instr(lower(e.text), ?) > 0" for _ in words[:_MOST_TERMS])
            sql += ") ORDER BY e.id DESC LIMIT ?"
            values = [*given, *words[:_MOST_TERMS], limit]
        else:
            return []
        with self._lock:
            rows = self._db.execute(sql, values).fetchall()
        return [NotebookEntry(r[0], r[1], r[2], time.strftime("%Y-%m-%d", time.localtime(r[3]))) for r in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def _terms(word: str) -> list[str]:
    """Return the search terms of a word: itself, or its trigrams in a script without blanks."""
    if word.isascii() or len(word) <= 3:
        return [word] if len(word) >= 3 else []
    if any("\u3040" <= c <= "\u30ff" or "\u3400" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in word):
        return [word[i : i + 3] for i in range(len(word) - 2)]
    return [word]
