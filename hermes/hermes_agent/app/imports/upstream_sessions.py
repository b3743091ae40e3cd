"""Sessions in upstream's home: `state.db` of any version, and transcripts of `sessions/`.

Only columns that the file has are read, since each version of upstream adds some. Source: plugin contract §12.1.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import HomeContent
from hermes_agent.app.imports.source_tree import SourceTree
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Message
from hermes_agent.sessions import API_SERVER, LOCAL
from hermes_agent.sessions.imported_sessions import DatedMessage, ImportedSession, plain_message

OWN_SOURCES = frozenset({"", "acp", "cli", "cron", "desktop", "local", "subagent", "tui"})
"""Sources of sessions of the home's owner."""
NEWEST_TABLES = 30
"""Number of the newest tables (`schema_version`) that this module was made for."""
_COLUMNS = {"sessions": {"id", "source", "started_at"}, "messages": {"id", "session_id", "role", "content"}}
"""Columns without which a conversation cannot be read."""
_JSON_MARK = "\x00json:"
_TABLES = {
    "schema_version": "",
    "compression_locks": "",
    "conversation_generations": "",
    "gateway_heartbeats": "",
    "gateway_hygiene_state": "",
    "session_turn_leases": "",
    "system_prompts": "",
    "session_model_usage": "the usage by model stays there; the tokens of each session are imported",
    "state_meta": "upstream's own notes about its state",
    "gateway_routing": "each chat begins a new session here; the old ones are in `hermes sessions list --all`",
    "async_delegations": "background work of subagents ends with the program that started it",
    "telegram_dm_topic_mode": "this program has no such topics",
    "telegram_dm_topic_bindings": "this program has no such topics",
}
"""Why rows of a table are not imported; "" for tables without content of users."""
_UNKNOWN_TABLE = "this program does not know the table"


def copy_database(tree: SourceTree, path: str, folder: Path) -> Path | None:
    """Copy a database with its log into a folder, for SQLite to open; return None if there is none."""
    if tree.read_bytes(path) is None:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy, real = folder / Path(path).name, (tree.root / path).resolve()  # the log is next to the target of a link
    for suffix in ("", "-wal", "-journal"):
        if Path(f"{real}{suffix}").is_file():
            shutil.copyfile(f"{real}{suffix}", f"{copy}{suffix}")
    return copy


class UpstreamSessions:
    """The sessions of one home.

    Args:
        place: the folder of the home, relative to `tree`; "" for the main one.
        copy: the copy of its `state.db`, or None.
        content: gets what is left out.
    """

    def __init__(self, tree: SourceTree, place: str, copy: Path | None, content: HomeContent) -> None:
        self._tree = tree
        self._start = f"{place}/" if place else ""
        self._path = f"{self._start}state.db"
        self._copy = copy
        self._content = content
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[tuple[ImportedSession, str]]:
        """Yield the sessions of the database, then those that only a transcript has."""
        if self._copy is not None:
            try:
                with contextlib.closing(sqlite3.connect(self._copy)) as db:
                    db.row_factory = sqlite3.Row
                    db.text_factory = lambda data: data.decode("utf-8", "replace")
                    yield from self._of_database(db)
            except sqlite3.Error as exc:
                reason = f"the database cannot be read any further: {exc}"
                self._content.leave("sessions", self._path, reason, self._path)
            else:
                if not self._seen:
                    self._content.leave("sessions", self._path, "it has no sessions", self._path)
        yield from self._of_files()

    def _of_database(self, db: sqlite3.Connection) -> Iterator[tuple[ImportedSession, str]]:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        if "schema_version" in tables and "owner" in _columns(db, "schema_version"):
            raise UserError(
                f"{self._tree.root / self._path} is a database of this program, not of upstream",
                hint="`hermes profile list` shows the homes of this program; HERMES_HOME=PATH uses one of them.",
            )
        self._leave_tables(db, tables)
        if "sessions" not in tables or "messages" not in tables:
            self._content.leave("sessions", self._path, "it has no tables `sessions` and `messages`", self._path)
            return
        self._check_version(db, tables)
        with contextlib.suppress(sqlite3.Error):  # a database without upstream's index is read once for each session
            db.execute("CREATE INDEX import_messages ON messages (session_id, id)")
        columns = _columns(db, "messages")
        prompts = dict(db.execute("SELECT hash, prompt FROM system_prompts")) if "system_prompts" in tables else {}
        for row in db.execute("SELECT * FROM sessions ORDER BY started_at, id"):
            values = dict(row)
            values["system_prompt"] = values.get("system_prompt") or prompts.get(values.get("system_prompt_hash"))
            try:
                found = db.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY id", (values["id"],))
                yield self._session(values, [dict(item) for item in found], columns), self._path
            except sqlite3.Error as exc:
                self._content.leave("session", str(values["id"]), f"its messages cannot be read: {exc}", self._path)
        orphans = "SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
        if count := db.execute(orphans).fetchone()[0]:
            self._content.leave("messages", self._path, "they belong to sessions that are gone", self._path, count)

    def _check_version(self, db: sqlite3.Connection, tables: Sequence[str]) -> None:
        """Name tables that are newer than this module.

        Raises:
            UserError: conversations cannot be read from them.
        """
        found = db.execute("SELECT max(version) FROM schema_version").fetchone() if "schema_version" in tables else None
        version = int(_number(found[0])) if found is not None else 0
        for table, needed in _COLUMNS.items():
            if missing := ", ".join(sorted(needed - _columns(db, table))):
                raise UserError(
                    f"{self._tree.root / self._path} (tables {version}) has no column {missing} in `{table}`: its"
                    " conversations cannot be read, and nothing is imported",
                    hint="A newer release of this program may know these tables: `hermes update`. Without the"
                    " conversations: import a copy of the folder that has no state.db.",
                )
        if version > NEWEST_TABLES:
            reason = f"tables {version} are newer than those that this program knows ({NEWEST_TABLES}); what it does"
            self._content.leave("table", f"{self._path}: schema_version", f"{reason} not know is named", self._path)

    def _leave_tables(self, db: sqlite3.Connection, tables: Sequence[str]) -> None:
        for name in tables:
            if name in ("sessions", "messages") or name.startswith(("sqlite_", "messages_fts")):
                continue  # an index is built again
            reason = _TABLES.get(name, _UNKNOWN_TABLE)
            count = db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            if reason and count:
                self._content.leave("table", f"{self._path}: {name}", reason, self._path, count)

    def _session(self, row: Mapping[str, Any], rows: list[dict[str, Any]], columns: frozenset[str]) -> ImportedSession:
        session_id = str(row["id"])
        self._seen.add(session_id)
        started = _number(row.get("started_at"))
        kept: list[tuple[DatedMessage, bool]] = []
        taken_back, odd = 0, 0
        for item in rows:
            active = item.get("active") != 0
            if not active and not item.get("compacted"):
                taken_back += 1
            elif (message := _message(item)) is None:
                odd += 1
            else:
                kept.append((DatedMessage(message, _number(item.get("timestamp")) or started), active))
        if taken_back:
            self._content.leave("messages", session_id, "the user took them back (/undo)", self._path, taken_back)
        if odd:
            self._content.leave("messages", session_id, "their role is none that a model knows", self._path, odd)
        thoughts = sum(1 for item in rows if item.get("reasoning") or item.get("reasoning_content"))
        if thoughts and "reasoning" in columns:
            self._content.leave("thoughts", session_id, "thoughts of the model stay there", self._path, thoughts)
        active_messages = [dated for dated, active in kept if active]
        return ImportedSession(
            session_id,
            str(row.get("source") or "cli"),
            started,
            max([started, _number(row.get("ended_at")), *(dated.timestamp for dated, _ in kept)]),
            [dated for dated, _ in kept],
            None if len(active_messages) == len(kept) else active_messages,
            principal=principal_of(row),
            model=str(row.get("model") or ""),
            title=str(row.get("title") or ""),
            system_prompt=str(row.get("system_prompt") or ""),
            cwd=str(row.get("cwd") or ""),
            parent=_delegating_session(row),
            ended_at=_number(row.get("ended_at")) or None,
            end_reason=str(row["end_reason"]) if row.get("end_reason") else None,
            tokens=tuple(int(_number(row.get(name))) for name in _TOKENS),  # type: ignore[arg-type]
        )

    def _of_files(self) -> Iterator[tuple[ImportedSession, str]]:
        folder = f"{self._start}sessions"
        for name in self._tree.names(folder):
            path = f"{folder}/{name}"
            self._tree.take(path)
            session_id = name.rpartition(".")[0].removeprefix("session_")
            if name == "sessions.json" or not name.endswith((".json", ".jsonl")) or name.startswith("request_dump_"):
                reason = "each chat begins a new session here" if name == "sessions.json" else "not a transcript"
                self._content.leave("file", path, reason, path)
            elif session_id in self._seen:
                self._content.leave("file", path, "a second copy of a session of state.db", path)
            elif (session := self._of_file(path, session_id)) is not None:
                self._seen.add(session_id)
                yield session, path

    def _of_file(self, path: str, session_id: str) -> ImportedSession | None:
        """Return the session of a snapshot (JSON) or a transcript (a JSON object in each line)."""
        data = self._tree.read_bytes(path)
        if data is None:
            self._content.leave("file", path, "it cannot be read", path)
            return None
        text = data.decode("utf-8", "replace")
        values: dict[str, Any] = {}
        broken = 0
        try:
            if path.endswith(".json"):
                whole = json.loads(text)
                values = whole if isinstance(whole, dict) else {}
                items = values.get("messages")
                items = items if isinstance(items, list) else []
            else:
                items, broken = parse_lines(text)
        except ValueError as exc:
            self._content.leave("file", path, f"it is no JSON: {exc}", path)
            return None
        messages = [(message, item) for item in items if (message := _message(item)) is not None]
        if left := broken + len(items) - len(messages):
            self._content.leave("messages", session_id, "lines of the transcript that are no messages", path, left)
        if not messages:
            self._content.leave("file", path, "it has no messages", path)
            return None
        at = (self._tree.root / path).stat().st_mtime
        dated = [DatedMessage(message, _number(item.get("timestamp")) or at) for message, item in messages]
        source = str(values.get("platform") or values.get("source") or "cli")
        return ImportedSession(
            session_id,
            source,
            dated[0].timestamp,
            dated[-1].timestamp,
            dated,
            principal=principal_of({**values, "source": source}),
            model=str(values.get("model") or ""),
            system_prompt=str(values.get("system_prompt") or ""),
        )


_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens")


def parse_lines(text: str) -> tuple[list[Any], int]:
    """Return the values of lines of JSON, and the number of lines that are none."""
    items, broken = [], 0
    for line in text.splitlines():
        if line.strip():
            try:
                items.append(json.loads(line))
            except ValueError:
                broken += 1
    return items, broken


def principal_of(row: Mapping[str, Any]) -> str:
    """Return the principal of a session: its user on a chat platform, or the owner of the home."""
    source = str(row.get("source") or "")
    user = str(row.get("user_id") or row.get("chat_id") or "")
    if source in OWN_SOURCES:
        return LOCAL
    if source == API_SERVER:
        return API_SERVER
    return f"{source}:{user or 'unknown'}"  # of no one: only the operator sees a chat without its user


def _columns(db: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in db.execute(f'PRAGMA table_info("{table}")'))


def _delegating_session(row: Mapping[str, Any]) -> str:
    """Return the session that delegated a task to this one; a compression or branch is no task."""
    try:
        settings = json.loads(row.get("model_config") or "{}")
    except ValueError:
        return ""
    delegated = isinstance(settings, dict) and settings.get("_delegate_from")
    return str(row.get("parent_session_id") or delegated) if delegated else ""


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _message(item: object) -> Message | None:
    """Return a row of `messages`, or a message of a transcript; None if it is no message."""
    if not isinstance(item, dict):
        return None
    content, calls = item.get("content"), item.get("tool_calls")
    if isinstance(content, bytes):
        content = content.decode("utf-8", "replace")
    if isinstance(content, str) and content.startswith(_JSON_MARK):
        content = _parsed(content.removeprefix(_JSON_MARK), list)
    if isinstance(content, list):
        content = [part if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in content]
    elif content is not None and not isinstance(content, str):
        content = json.dumps(content)
    if isinstance(calls, str):
        calls = _parsed(calls, list)
    value = {"role": item.get("role"), "content": content, "tool_call_id": item.get("tool_call_id")}
    value |= {"name": item.get("tool_name") or item.get("name")}
    with contextlib.suppress(ValueError):
        if isinstance(calls, list) or not calls:
            return plain_message(Message.from_dict({**value, "tool_calls": calls or []}))
    with contextlib.suppress(ValueError):  # calls in a form of another time: the text stays
        text = content if isinstance(content, str) else json.dumps(content) if content else ""
        return plain_message(Message.from_dict({**value, "content": f"{text}\n{json.dumps(calls)}".strip()}))
    return None


def _parsed(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, kind) else text
