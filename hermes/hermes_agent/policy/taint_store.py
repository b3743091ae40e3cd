"""What strangers wrote, kept as long as what it touched: in `state.db`, away from the transcript.

What has strangers' words beyond a conversation: files, folders, processes, memory, skills, scheduled prompts.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import NamedTuple

from hermes_agent.core.redaction import redactor
from hermes_agent.policy.taint_words import MOST_RUN, WordIndex, split_values, split_words
from hermes_agent.store import Database, Schema

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


MOST_LOOKED = 50_000
"""Entries of folders that are looked at after one command."""
MOST_TOLD = 200
"""Changed files of one folder; with more the folder counts."""
MOST_NAMED = 64
"""Words of a command that may be names of files."""
_FETCHING = frozenset(
    [
        "aria2c",
        "clone",
        "curl",
        "fetch",
        "ftp",
        "gh",
        "lftp",
        "lynx",
        "nc",
        "ncat",
        "netcat",
        "pull",
        "rclone",
        "rsync",
        "scp",
        "sftp",
        "socat",
        "ssh",
        "telnet",
        "tftp",
        "urllib",
        "urlopen",
        "w3m",
        "wget",
        "xh",
    ]
)
"""Words of a command whose output others may have written."""
_INSTALLING = re.compile(
    r"\b(?:apt|apt-get|brew|bundle|cargo|dnf|gem|go|npm|pip3?|pipx|pnpm|uv|yarn)\b[^|;&\n]*"
    r"\b(?:add|ci|download|get|i|install|sync|update|upgrade)\b"
)
_NAME = re.compile(r"[^\s\"'`;|&<>(){}=,]+")
_RECURSIVE = frozenset({"ack", "ag", "cat", "diff", "egrep", "fgrep", "find", "grep", "rg", "tar", "zgrep", "zip"})
"""Programs that read what lies below a folder."""
_OF_HERE = re.compile(r"\b(?:rg|ag|ack)\b|grep\s(?:\S+\s)*?-\w*[rR]")
"""Searches what lies below the working directory where nothing else is named."""
_MOVING = frozenset({"cd", "chdir", "pushd"})
_SYSTEM = ("/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/etc", "/boot")


def fetches(command: str) -> bool:
    """Say whether a command brings what others wrote."""
    if _FETCHING.intersection(split_words(command)) or _INSTALLING.search(command):
        return True
    return any("://" in value for value in split_values(command))


def find_paths(command: str, cwd: Path, *, surely: bool = False) -> list[str]:
    """Return the paths that a command may mean by its words, with the names that downloads get.

    Args:
        surely: words that look like no name of a file are left out.
    """
    found: dict[str, None] = {}
    for word in _NAME.findall(command)[: 4 * MOST_NAMED]:
        remote = "://" in word or "@" in word
        name = word.rstrip("/").rpartition("/")[2].removesuffix(".git") if remote else word
        if surely and not (remote or "/" in word or "." in word.strip(".")):
            continue
        if name and not name.startswith("-") and len(found) < MOST_NAMED:
            found[os.path.normpath(cwd / _at_home(name))] = None
    return list(found)


def _at_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # nobody of that name
        return Path(name)


class TaintedItems:
    """The things by name, and an index of the texts that the agent wrote to them. Not safe for threads."""

    def __init__(self, keeping: TaintStore) -> None:
        self._store = keeping
        self._by_name: dict[str, TrackedText] | None = None
        self._above: dict[str, str] = {}
        """Folders with a file of others somewhere below, and which one."""
        self._short_names: dict[str, list[str]] = {}
        """The files by the last part of their names."""
        self.index = WordIndex()
        self.sources: list[str] = []
        """Of the texts in the index: text number -2 is the first."""

    @property
    def is_loaded(self) -> bool:
        """Whether somebody has looked yet."""
        return self._by_name is not None

    def load(self) -> dict[str, TrackedText]:
        """Return all of them."""
        if self._by_name is None:
            self._by_name = self._store.items()
            for name, kept in self._by_name.items():
                self._index(name, kept)
        return self._by_name

    def mark(self, name: str, kept: TrackedText) -> None:
        """Keep that a thing has strangers' words."""
        known = self.load()
        if name in known and not kept.text:
            return
        known[name] = kept
        self._store.mark_item(name, kept)
        self._index(name, kept)

    def _index(self, name: str, kept: TrackedText) -> None:
        for folder in PurePath(name).parents if name.startswith("/") else ():
            self._above.setdefault(str(folder), name)
        if name.startswith("/"):
            self._short_names.setdefault(name.rpartition("/")[2], []).append(name)
        if kept.text:
            self.index.add(kept.text, -2 - len(self.sources))
            self.sources.append(kept.source)

    def source_of(self, name: str) -> str:
        """Return where the words of a thing come from, or of a folder that it lies in; empty when it is nobody's."""
        known = self.load()
        folders = map(str, PurePath(name).parents) if name.startswith("/") else ()
        return next((known[each].source for each in (name, *folders) if each in known), "")

    def source_in(self, command: str, cwd: Path) -> str:
        """Return where the words come from that a command reads, by the files that it names; empty when nowhere."""
        known = self.load()
        if not known:
            return ""
        if source := self.source_of(str(cwd)):
            return source
        paths = find_paths(command, cwd)
        for path in paths:
            if source := self.source_of(path):
                return source
            around = str(cwd).startswith(path) and _RECURSIVE.isdisjoint(split_words(command))
            if path in self._above and not around:
                return known[self._above[path]].source
        return self._matched(command, paths, cwd)

    def _matched(self, command: str, paths: Sequence[str], cwd: Path) -> str:
        """Return the source of a file below the working directory that a pattern means, or a name after a `cd`."""
        known = self.load()
        if str(cwd) not in self._above:
            return ""
        if _OF_HERE.search(command) is not None:
            return known[self._above[str(cwd)]].source
        moved = not _MOVING.isdisjoint(split_words(command))
        meant = [name for path in paths for name in self._short_names.get(path.rpartition("/")[2], ())]
        for name in meant if moved or not all(map(os.path.lexists, paths)) else ():
            if name.startswith(f"{cwd}/"):
                return known[name].source
        globs = [path for path in paths if any(c in path for c in "*?[")]
        found = (kept.source for name, kept in known.items() if any(fnmatchcase(name, glob) for glob in globs))
        return next(found, "") if globs else ""

    def source_of_text(self, text: str) -> str | None:
        """Return what strangers' text was written to, when a text is a part of that or mostly from there."""
        self.load()
        said = split_words(text) if len(self.index) else []
        runs = [self.index.find(said[i : i + MOST_RUN]) for i in range(len(said) - MOST_RUN + 1)]
        known = [number for number in runs if number is not None]
        return self.sources[-2 - known[0]] if 2 * len(known) > len(runs) else None


def find_changed(roots: Sequence[str], since: float) -> list[str]:
    """Return the files below some folders that were made or changed since a moment; a new folder stands for its files.

    A root is never named itself, and neither is a system's folder looked into.
    """
    left = [MOST_LOOKED]
    found: dict[str, None] = {}
    for root in roots:
        if root != "/" and not root.startswith(_SYSTEM):
            found |= dict.fromkeys(_changed(root, since, left)[0])
    return list(found)


def _changed(folder: str, since: float, left: list[int]) -> tuple[list[str], bool]:
    """Return what changed in a folder, and whether that is all that it has."""
    found: list[str] = []
    everything = True
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return [], False
    for entry in entries:
        left[0] -= 1
        if left[0] < 0:
            return found, False
        for name, whole in _entry(entry, since, left):
            everything = everything and whole
            if name:
                found.append(name)
    return found, everything


def _entry(entry: os.DirEntry[str], since: float, left: list[int]) -> Iterator[tuple[str, bool]]:
    try:
        is_new = entry.stat(follow_symlinks=False).st_ctime >= since
        is_folder = entry.is_dir(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return
    if not is_folder:
        yield entry.path if is_new else "", is_new
        return
    below, whole = _changed(entry.path, since, left)
    if is_new and (whole or len(below) > MOST_TOLD):
        yield entry.path, True
    else:
        yield "", False
        yield from ((name, True) for name in below)
