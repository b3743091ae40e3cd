"""What an import must not lose: compare a source with the home and the report, without the code under test."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "homes"


def build_home(version: str, home: Path) -> Path:
    """Make the recorded home of a version of the published program."""
    shutil.copytree(DATA / version, home)
    (home / "env.txt").rename(home / ".env")
    script = home / "state.sql"
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        db.executescript(f"PRAGMA synchronous = OFF; BEGIN;\n{script.read_text(encoding='utf-8')}COMMIT;")
    script.unlink()
    return home


def fingerprint(root: Path) -> dict[str, str]:
    """Return a hash of each entry of a folder: content, mode, kind."""
    found = {}
    for place in sorted(root.rglob("*")):
        mode = place.lstat().st_mode
        what = b"" if not place.is_file() else place.read_bytes()
        found[str(place.relative_to(root))] = f"{mode:o} {hashlib.sha256(what).hexdigest()}"
    return found


def find_lost(source: Path, home: Path, report: dict[str, Any]) -> list[str]:
    """Return what is neither in the home nor named in the report."""
    named = {item["source"] for item in report["items"]} - {""}
    left = {item["source"] for item in report["items"] if item["outcome"] == "not imported"}
    lost = [
        f"file {name}"
        for name in (str(place.relative_to(source)) for place in source.rglob("*") if not is_folder(place))
        if not any(name == one or name.startswith(f"{one}/") for one in named)
        and not ((source / name).is_dir() and any(one.startswith(f"{name}/") for one in named))  # a link to a folder
        and not name.endswith(("state.db-wal", "state.db-shm"))
    ]
    for item in report["items"]:
        if item["outcome"] in ("new", "same", "replaced") and item["kind"] in ("skill", "plugin", "hook", "script"):
            target = home / "profiles" / item["profile"] if item["profile"] else home
            place = source / item["source"]
            there = [one for one in ([place] if place.is_file() else place.rglob("*")) if one.is_file()]
            start = source / "profiles" / item["profile"] if item["profile"] else source
            for file in there:
                if str(file.relative_to(source)) in left:
                    continue
                copy = target / file.relative_to(start)
                if not copy.is_file() or copy.read_bytes() != file.read_bytes():
                    lost.append(f"{item['kind']} {file}")
    for database in source.rglob("state.db"):
        profile = database.parent.name if database.parent.parent.name == "profiles" else ""
        lost += _lost_messages(database, home / "profiles" / profile if profile else home, report)
    return lost


def is_folder(place: Path) -> bool:
    """Return whether a place is a folder and no link."""
    return place.is_dir() and not place.is_symlink()


def _lost_messages(database: Path, home: Path, report: dict[str, Any]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for file in database.parent.glob("state.db*"):
            shutil.copyfile(file, Path(folder) / file.name)
        try:
            with contextlib.closing(sqlite3.connect(Path(folder) / "state.db")) as db:
                db.text_factory = lambda data: data.decode("utf-8", "replace")
                columns = {row[1] for row in db.execute("PRAGMA table_info(messages)")}
                where = "WHERE active IS NOT 0 OR compacted = 1" if "compacted" in columns else ""
                sessions = [row[0] for row in db.execute("SELECT id FROM sessions")]
                theirs = db.execute(f"SELECT session_id, role, content FROM messages {where} ORDER BY id").fetchall()
        except sqlite3.DatabaseError:
            broken = any("cannot be read" in item["reason"] for item in report["items"])
            return [] if broken else [f"{database} is damaged, and the report does not say so"]
    left = [item for item in report["items"] if item["outcome"] == "not imported"]
    named = {item["name"] for item in left if item["kind"] == "session"}
    allowed = {item["name"]: item["amount"] for item in left if item["kind"] == "messages"}
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        ours = db.execute("SELECT session_id, role, content FROM messages ORDER BY id").fetchall()
        known = {row[0] for row in db.execute("SELECT id FROM sessions")}
    lost = [f"session {name}" for name in sessions if name not in known and name not in named]
    texts: dict[str, list[str]] = {}
    for session, role, content in ours:
        texts.setdefault(session, []).append(f"{role} {_plain(content)}")
    missing: dict[str, list[str]] = {}
    for session, role, content in theirs:
        text = f"{role} {_plain(content)}"
        here = texts.get(session, [])  # calls in a form of another time are a part of the text
        found = (
            text
            if text in here
            else next((one for one in here if one.startswith(f"{text}\n" if content else text)), None)
        )
        if found is not None:
            texts[session].remove(found)
        elif session not in named:
            missing.setdefault(session, []).append(text[:60])
    return lost + [f"messages of {name}: {some}" for name, some in missing.items() if len(some) > allowed.get(name, 0)]


def _plain(content: str | bytes | None) -> str:
    """Return a stored content without the marks of either program."""
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content or ""
    return text.replace("\0json:", "").replace("\0parts:", "")
