"""Full-text search over messages. Triggers update the index, whichever process writes a message.

Only whole words match, without regard to case and accents. Scripts without blanks between words have a second index, of
trigrams. Table names are upstream's (plugin contract §12.1).
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Collection, Sequence
from typing import Literal

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.store import Database, Schema

_DENSE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9d\u0e00-\u0eff"
"""Chinese, Japanese, Korean, Thai and Lao, as a class of characters."""

SEARCH = Schema(
    "search",
    (
        f"""
        CREATE VIEW searchable_messages AS SELECT id, substr(
            CASE WHEN substr(CAST(content AS BLOB), 1, 1) = x'00' THEN (
                SELECT group_concat(json_extract(value, '$.text'), ' ')
                FROM json_each(CAST(substr(CAST(content AS BLOB), 8) AS TEXT))
                WHERE json_extract(value, '$.type') = 'text'
            ) ELSE content END,
            1, CASE role WHEN 'tool' THEN 2000 ELSE 20000 END
        ) AS text FROM messages;
        CREATE VIRTUAL TABLE messages_fts USING fts5 (
            text, content='searchable_messages', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
        );
        CREATE VIRTUAL TABLE messages_fts_trigram USING fts5 (
            text, content='searchable_messages', content_rowid='id', tokenize='trigram'
        );
        CREATE TRIGGER messages_fts_in AFTER INSERT ON messages WHEN new.content != '' BEGIN
            INSERT INTO messages_fts (rowid, text) SELECT id, text FROM searchable_messages WHERE id = new.id;
            INSERT INTO messages_fts_trigram (rowid, text)
                SELECT id, text FROM searchable_messages WHERE id = new.id AND text GLOB '*[{_DENSE}]*';
        END;
        CREATE TRIGGER messages_fts_out BEFORE DELETE ON messages WHEN old.content != '' BEGIN
            INSERT INTO messages_fts (messages_fts, rowid, text)
                SELECT 'delete', id, text FROM searchable_messages WHERE id = old.id;
            INSERT INTO messages_fts_trigram (messages_fts_trigram, rowid, text)
                SELECT 'delete', id, text FROM searchable_messages WHERE id = old.id AND text GLOB '*[{_DENSE}]*';
        END;
        INSERT INTO messages_fts (rowid, text)
            SELECT s.id, s.text FROM searchable_messages s JOIN messages m ON m.id = s.id WHERE m.content != '';
        INSERT INTO messages_fts_trigram (rowid, text)
            SELECT id, text FROM searchable_messages WHERE text GLOB '*[{_DENSE}]*';
        """,
    ),
)

Sort = Literal["relevance", "newest", "oldest"]
_ORDER = {"relevance": "rank, m.id DESC", "newest": "m.id DESC", "oldest": "m.id"}
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_WORD = re.compile(r"\w+")
_MOST_TERMS = 24


class SearchHit(LazyNamedTuple):
    """A message that was found."""

    id: int
    session_id: str
    role: str
    tool_name: str
    timestamp: float
    """Seconds since the epoch."""
    snippet: str
    """Text around the found words, which stand between `>>>` and `<<<`."""


@functools.cache
def has_search() -> bool:
    """Return whether this SQLite has full-text search."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        with_fts5 = ("ENABLE_FTS5",) in db.execute("PRAGMA compile_options").fetchall()
    return with_fts5 and sqlite3.sqlite_version_info >= (3, 34)


def search_messages(
    db: Database,
    query: str,
    *,
    of: Collection[str] | None,
    roles: Collection[str] = (),
    sources: Collection[str] = (),
    not_sources: Collection[str] = (),
    without: str = "",
    sort: Sort = "relevance",
    limit: int = 50,
    offset: int = 0,
) -> list[SearchHit]:
    """Return messages with all words of `query`, or, if no message has all, with some of them.

    Args:
        query: words; words in quotes must follow each other, OR between two words accepts either.
        of: principals of the sessions; None searches all.
        roles: roles of the messages; empty for all.
        sources: platforms of the sessions; empty for all.
        without: id of a session that is left out.
    """
    words = [quoted or word for quoted, word in _TERM.findall(query)][:_MOST_TERMS]
    dense = re.search(f"[{_DENSE}]", query) is not None
    if not any(word != "OR" and _WORD.search(word) for word in words):
        return []
    given = (
        _conditions(session_principal(of, "s.principal"), roles, sources, not_sources, without),
        sort,
        (limit, offset),
    )
    if not dense:
        found = _matching(db, "messages_fts", _all_of(words), *given)
        return found or _matching(db, "messages_fts", _any_of(words), *given)
    terms = [word for word in words if word != "OR"]
    if all(len(term) >= 3 for term in terms):
        found = _matching(db, "messages_fts_trigram", _all_of(words), *given)
        if found:
            return found
    return _containing(db, terms, *given)


def messages_around(db: Database, session_id: str, message_id: int, window: int) -> list[tuple[int, str, str, float]]:
    """Return number, role, text and time of a message and of up to `window` before and after it."""
    rows = db.read(
        "SELECT m.id, m.role, s.text, m.timestamp FROM messages m JOIN searchable_messages s ON s.id = m.id"
        " WHERE m.session_id = ?1 AND (m.id IN (SELECT id FROM messages WHERE session_id = ?1 AND id <= ?2"
        " ORDER BY id DESC LIMIT ?3 + 1) OR m.id IN (SELECT id FROM messages WHERE session_id = ?1 AND id > ?2"
        " ORDER BY id LIMIT ?3)) ORDER BY m.id",
        (session_id, message_id, window),
    )
    return [(row[0], row[1], row[2] or "", row[3]) for row in rows]


_Condition = tuple[str, tuple[str, ...]]


def _matching(
    db: Database, table: str, match: str, where: _Condition, sort: Sort, page: tuple[int, int]
) -> list[SearchHit]:
    rows = db.read(
        "SELECT m.id, m.session_id, m.role, m.tool_name, m.timestamp,"
        f" snippet({table}, 0, '>>>', '<<<', ' … ', 40), bm25({table}) AS rank"
        f" FROM {table} JOIN messages m ON m.id = {table}.rowid JOIN sessions s ON s.id = m.session_id"
        f" WHERE {table} MATCH ? AND {where[0]} ORDER BY {_ORDER[sort]} LIMIT ? OFFSET ?",
        (match, *where[1], *page),
    )
    return [SearchHit(*row[:6]) for row in rows]


def _containing(
    db: Database, terms: Sequence[str], where: _Condition, sort: Sort, page: tuple[int, int]
) -> list[SearchHit]:
    """Search every message, for words that are too short for trigrams."""
    has = " AND ".join("instr(lower(t.text), lower(?)) > 0" for _ in terms)
    rows = db.read(
        "SELECT m.id, m.session_id, m.role, m.tool_name, m.timestamp, t.text FROM searchable_messages t"
        " JOIN messages m ON m.id = t.id JOIN sessions s ON s.id = m.session_id"
        f" WHERE {has} AND {where[0]} ORDER BY {_ORDER['oldest' if sort == 'oldest' else 'newest']} LIMIT ? OFFSET ?",
        (*terms, *where[1], *page),
    )
    return [SearchHit(*(*row[:5], _cut_around(row[5], terms[0]))) for row in rows]


def _cut_around(text: str, term: str) -> str:
    place = max(text.lower().find(term.lower()), 0)
    begin, end = max(place - 80, 0), place + len(term)
    before, after = " … " if begin else "", " … " if end + 80 < len(text) else ""
    return f"{before}{text[begin:place]}>>>{text[place:end]}<<<{text[end : end + 80]}{after}"


def _all_of(words: Sequence[str]) -> str:
    """Return a query of the index; its operators in the words are searched as words."""
    parts: list[str] = []
    for word in words:
        if word == "OR" and parts:
            parts.append("OR")
        elif _WORD.search(word):
            if parts and parts[-1] != "OR":
                parts.append("AND")
            parts.append(_quoted(word))
    return " ".join(parts[:-1] if parts and parts[-1] == "OR" else parts)


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(f"{_quoted(word)}*" for word in words if word != "OR" and _WORD.search(word))


def _quoted(word: str) -> str:
    return '"' + word.replace('"', " ") + '"'


def _conditions(
    principal: _Condition, roles: Collection[str], sources: Collection[str], not_sources: Collection[str], without: str
) -> _Condition:
    parts, values = [principal[0], "s.id != ?"], [*principal[1], without]
    for column, given in (("m.role IN", roles), ("s.source IN", sources), ("s.source NOT IN", not_sources)):
        if given:
            parts.append(f"{column} ({', '.join('?' * len(given))})")
            values += given
    return " AND ".join(parts), tuple(values)


def session_principal(of: Collection[str] | None, column: str = "principal") -> tuple[str, tuple[str, ...]]:
    """Return a condition on the principal of `sessions`, and its parameters; None accepts all principals."""
    return ("1", ()) if of is None else (f"{column} IN ({', '.join('?' * len(of))})", tuple(of))
