"""Stored taint: tracked texts of each session, and items that contain untrusted text.

`TaintStore` keeps both in `state.db`, apart from the transcripts and as long as the items. `TaintedItems` is the table
of items in memory: files, folders, processes, memory, skills, scheduled prompts.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.policy.taint_addresses import word_set
from hermes_agent.policy.taint_words import MOST_RUN, WordIndex, split_values, split_words
from hermes_agent.store import Database, Schema

MOST_ITEMS = 1_000
"""Most items that are stored with their text: the agent wrote untrusted text to them."""
MOST_CHARS = 200_000
"""Most characters that are stored of one text."""

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
    # a text expires with its session, which `sessions.SCHEMA` removes before
    expire="DELETE FROM foreign_texts WHERE at < :before AND session_id NOT IN (SELECT id FROM sessions);"
    "DELETE FROM foreign_answers WHERE at < :before;",
)


class TrackedText(LazyNamedTuple):
    """A text and its source; the source of the user's text is empty."""

    source: str
    text: str


class TaintStore:
    """The tables in `state.db`, opened at the first use. Safe for threads.

    Args:
        path: `state.db`.
        most_files: most items that are stored without text: commands wrote them.
    """

    def __init__(self, path: Path, *, most_files: int = 20_000) -> None:
        self._path, self._most_files = path, most_files
        self._lock = threading.RLock()
        self._db: Database | None = None

    def _open(self) -> Database:
        if self._db is None:
            self._db = Database(self._path, (SCHEMA,))
        return self._db

    def texts(self, session_id: str) -> list[TrackedText]:
        """Return the texts of a session in their order."""
        sql = "SELECT source, text FROM foreign_texts WHERE session_id = ? ORDER BY id"
        with self._lock:
            return [TrackedText(row["source"], _unpacked(row["text"])) for row in self._open().read(sql, (session_id,))]

    def add(self, session_id: str, texts: list[TrackedText]) -> None:
        """Store texts of a session."""
        rows = [(session_id, text.source, _packed(text.text), time.time()) for text in texts]
        with self._lock, self._open().write() as db:
            db.executemany("INSERT INTO foreign_texts (session_id, source, text, at) VALUES (?, ?, ?, ?)", rows)

    def items(self) -> dict[str, TrackedText]:
        """Return the tainted items by name, oldest first."""
        sql = "SELECT name, source, text FROM foreign_things ORDER BY at"
        with self._lock:
            return {row["name"]: TrackedText(row["source"], _unpacked(row["text"])) for row in self._open().read(sql)}

    def mark_item(self, name: str, text: TrackedText) -> None:
        """Store a tainted item, and delete the oldest of more than `MOST_ITEMS` (without text: `most_files`)."""
        sql = "INSERT OR REPLACE INTO foreign_things (name, source, text, at) VALUES (?, ?, ?, ?)"
        packed = _packed(text.text)
        same, most = ("=", self._most_files) if packed == (empty := _packed("")) else ("!=", MOST_ITEMS)
        with self._lock, self._open().write() as db:
            db.execute(sql, (name, text.source, packed, time.time()))
            db.execute(
                f"DELETE FROM foreign_things WHERE name IN (SELECT name FROM foreign_things WHERE text {same} ?"
                " ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (empty, most),
            )

    def save_answer(self, text: str, session_ids: Iterable[str]) -> None:
        """Store which sessions had untrusted text when the agent gave an answer that the caller keeps."""
        rows = [(_digest(text), session_id, time.time()) for session_id in (list(session_ids) or [""])]
        with self._lock, self._open().write() as db:
            db.executemany("INSERT OR REPLACE INTO foreign_answers VALUES (?, ?, ?)", rows)

    def sessions_before_answer(self, text: str) -> list[str] | None:
        """Return the sessions stored with an answer, or None when the agent did not give it."""
        sql = "SELECT session_id FROM foreign_answers WHERE digest = ?"
        with self._lock:
            found = [row["session_id"] for row in self._open().read(sql, (_digest(text),))]
        return [session_id for session_id in found if session_id] if found else None

    def allow(self, rule: str) -> None:
        """Store the answer `always` to a rule."""
        with self._lock, self._open().write() as db:
            db.execute("INSERT OR REPLACE INTO foreign_allowed VALUES (?, ?)", (rule, time.time()))

    def is_allowed(self, rule: str) -> bool:
        """Return whether the answer to a rule was `always`."""
        with self._lock:
            return bool(self._open().read("SELECT 1 FROM foreign_allowed WHERE rule = ?", (rule,)))

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None


def _digest(text: str) -> bytes:
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).digest()


def _packed(text: str) -> bytes:
    import zlib  # an idle daemon reads no texts

    return zlib.compress(redactor(text[:MOST_CHARS]).encode("utf-8", "replace"), 1)


def _unpacked(blob: bytes) -> str:
    import zlib  # as above

    return zlib.decompress(blob).decode()


MOST_ENTRIES = 50_000
"""Most directory entries that are checked after one command."""
MOST_CHANGED = 200
"""Most changed files that are named of one folder; with more the folder is named instead."""
MOST_NAMED = 64
"""Most words of a command that are taken as names of files."""
_INSTALLING = re.compile(
    r"\b(?:apt|apt-get|brew|bundle|cargo|dnf|gem|go|npm|pip3?|pipx|pnpm|uv|yarn)\b[^|;&\n]*"
    r"\b(?:add|ci|download|get|i|install|sync|update|upgrade)\b"
)
_NAME = re.compile(r"[^\s\"'`;|&<>(){}=,]+")
_SEARCHES_CWD = re.compile(r"\b(?:rg|ag|ack)\b|grep\s(?:\S+\s)*?-\w*[rR]")
"""Commands that search the working directory when they name no folder."""
_MOVING = frozenset({"cd", "chdir", "pushd"})
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/etc", "/boot")


def fetches(command: str) -> bool:
    """Return whether the output of a command may be text of others."""
    if word_set("fetching").intersection(split_words(command)) or _INSTALLING.search(command):
        return True
    return any("://" in value for value in split_values(command))


def find_paths(command: str, cwd: Path, *, surely: bool = False) -> list[str]:
    """Return the paths that the words of a command may mean, with the default names of downloads.

    Args:
        surely: leave out words that do not look like a file name.
    """
    found: dict[str, None] = {}
    for word in _NAME.findall(command)[: 4 * MOST_NAMED]:
        remote = "://" in word or "@" in word
        name = word.rstrip("/").rpartition("/")[2].removesuffix(".git") if remote else word
        if surely and not (remote or "/" in word or "." in word.strip(".")):
            continue
        if name and not name.startswith("-") and len(found) < MOST_NAMED:
            found[os.path.normpath(cwd / _expand_user(name))] = None
    return list(found)


def _expand_user(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # there is no such user
        return Path(name)


class TaintedItems:
    """The tainted items by name, and an index of the text written to them. Not safe for threads."""

    def __init__(self, store: TaintStore) -> None:
        self._store = store
        self._by_name: dict[str, TrackedText] | None = None
        self._tainted_below: dict[str, str] = {}
        """Folders with a tainted file at any depth, and the first such file."""
        self._by_file_name: dict[str, list[str]] = {}
        """The files by the last part of their paths."""
        self.index = WordIndex()
        self.sources: list[str] = []
        """Sources of the texts in the index; the first text has the number -2, the next -3."""
        self.is_loaded = False
        """Whether the items were loaded from the store: each tool call reads it several times."""

    def load(self) -> dict[str, TrackedText]:
        """Return all items by name."""
        if self._by_name is None:
            self._by_name = self._store.items()
            for name, text in self._by_name.items():
                self._index(name, text)
            self.is_loaded = True
        return self._by_name

    def mark(self, name: str, text: TrackedText) -> None:
        """Store an item as tainted."""
        items = self.load()
        if name in items and not text.text:
            return
        items[name] = text
        self._store.mark_item(name, text)
        self._index(name, text)

    def _index(self, name: str, text: TrackedText) -> None:
        for folder in PurePath(name).parents if name.startswith("/") else ():
            self._tainted_below.setdefault(str(folder), name)
        if name.startswith("/"):
            self._by_file_name.setdefault(name.rpartition("/")[2], []).append(name)
        if text.text:
            self.index.add(text.text, -2 - len(self.sources))
            self.sources.append(text.source)

    def source_of(self, name: str) -> str:
        """Return the source of an item or of a folder above it; empty when neither is tainted."""
        items = self.load()
        while items and name:
            if name in items:
                return items[name].source
            if not name.startswith("/") or name == "/":
                return ""
            name = name.rpartition("/")[0] or "/"
        return ""

    def source_in(self, command: str, cwd: Path) -> str:
        """Return the source of a tainted file that a command names; empty when there is none."""
        items = self.load()
        if not items:
            return ""
        if source := self.source_of(str(cwd)):
            return source
        paths = find_paths(command, cwd)
        for path in paths:
            if source := self.source_of(path):
                return source
            is_only_parent = str(cwd).startswith(path) and word_set("recursive_readers").isdisjoint(
                split_words(command)
            )
            if path in self._tainted_below and not is_only_parent:
                return items[self._tainted_below[path]].source
        return self._source_below(command, paths, cwd)

    def _source_below(self, command: str, paths: Sequence[str], cwd: Path) -> str:
        """Return the source of a file below the working directory that a glob names, or a name after `cd`."""
        items = self.load()
        if str(cwd) not in self._tainted_below:
            return ""
        if _SEARCHES_CWD.search(command) is not None:
            return items[self._tainted_below[str(cwd)]].source
        has_moved = not _MOVING.isdisjoint(split_words(command))
        same_name = [name for path in paths for name in self._by_file_name.get(path.rpartition("/")[2], ())]
        for name in same_name if has_moved or not all(map(os.path.lexists, paths)) else ():
            if name.startswith(f"{cwd}/"):
                return items[name].source
        globs = [path for path in paths if any(c in path for c in "*?[")]
        found = (text.source for name, text in items.items() if any(fnmatchcase(name, glob) for glob in globs))
        return next(found, "") if globs else ""

    def source_of_text(self, text: str) -> str | None:
        """Return the source of an item with most of the runs of a text, or None."""
        self.load()
        words = split_words(text) if len(self.index) else []
        runs = [self.index.find(words[i : i + MOST_RUN]) for i in range(len(words) - MOST_RUN + 1)]
        known = [number for number in runs if number is not None]
        return self.sources[-2 - known[0]] if 2 * len(known) > len(runs) else None


def find_changed(roots: Sequence[str], since: float) -> list[str]:
    """Return the files below folders that are newer than a time; a new folder stands for its files.

    A root itself is not returned. Folders of the system are not searched.
    """
    budget = [MOST_ENTRIES]
    found: dict[str, None] = {}
    for root in roots:
        if root != "/" and not root.startswith(_SYSTEM):
            found |= dict.fromkeys(_changed(root, since, budget)[0])
    return list(found)


def _changed(folder: str, since: float, budget: list[int]) -> tuple[list[str], bool]:
    """Return the changed files of a folder, and whether it has no others."""
    found: list[str] = []
    all_changed = True
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return [], False
    for entry in entries:
        budget[0] -= 1
        if budget[0] < 0:
            return found, False
        for name, is_whole in _changed_entry(entry, since, budget):
            all_changed = all_changed and is_whole
            if name:
                found.append(name)
    return found, all_changed


def _changed_entry(entry: os.DirEntry[str], since: float, budget: list[int]) -> Iterator[tuple[str, bool]]:
    """Yield the changed paths ("" for none) of an entry, each with whether it is changed as a whole."""
    try:
        is_new = entry.stat(follow_symlinks=False).st_ctime >= since
        is_folder = entry.is_dir(follow_symlinks=False)
    except OSError:  # deleted since the listing
        return
    if not is_folder:
        yield entry.path if is_new else "", is_new
        return
    below, all_changed = _changed(entry.path, since, budget)
    if is_new and (all_changed or len(below) > MOST_CHANGED):
        yield entry.path, True
    else:
        yield "", False
        yield from ((name, True) for name in below)
