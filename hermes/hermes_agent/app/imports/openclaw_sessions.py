"""Sessions of OpenClaw: transcripts as JSON lines, and those in the SQLite database of an agent.

Both hold the same events. Entries form a tree by `parentId`; the conversation is the way from the last one to the root.
`docs/operator/import.md` says which files there are.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import HomeContent
from hermes_agent.app.imports.source_tree import SourceTree
from hermes_agent.app.imports.upstream_sessions import parse_lines
from hermes_agent.core.messages import Content, Message, ToolCall
from hermes_agent.sessions import LOCAL
from hermes_agent.sessions.imported_sessions import DatedMessage, ImportedSession, plain_message

SOURCE = "openclaw"
"""Source of sessions that belong to no chat platform."""
_OWN_CHANNELS = frozenset({"main", "cron", "hook", "subagent", "webchat", "acp", "explicit", "heartbeat", "node"})
_SESSION_TABLES = ("session_nodes", "session_entries", "session_windows", "sessions")
"""Tables that say to which chat a session belongs, of one version or another; the richest is first."""
_ARCHIVES = frozenset({"session_transcript_archives", "session_transcript_cold_archives"})
_LEFT_ENDINGS = (
    (".deleted.", "the user deleted it"),
    (".checkpoint.", "a copy from before a compaction"),
    (".trajectory", "a log of a run, not a conversation"),
)

Event = Mapping[str, Any]


class OpenClawSessions:
    """The sessions of one agent.

    Args:
        place: `agents/ID`.
        copy: the copy of its database, or None.
        content: gets what is left out.
    """

    def __init__(self, tree: SourceTree, place: str, copy: Path | None, content: HomeContent) -> None:
        self._tree = tree
        self._place = place
        self._copy = copy
        self._content = content
        self._entries = self._session_entries(_json_of(tree, f"{place}/sessions/sessions.json"))
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[tuple[ImportedSession, str]]:
        """Yield the sessions of the database, then those of files."""
        path = f"{self._place}/agent/openclaw-agent.sqlite"
        if self._copy is not None:
            try:
                with contextlib.closing(sqlite3.connect(self._copy)) as db:
                    db.text_factory = lambda data: data.decode("utf-8", "replace")
                    yield from self._of_database(db, path)
            except sqlite3.Error as exc:
                self._content.leave("sessions", path, f"the database cannot be read any further: {exc}", path)
        for name in self._tree.names(f"{self._place}/sessions"):
            yield from self._of_file(f"{self._place}/sessions/{name}", name)

    @staticmethod
    def _session_entries(value: Any) -> dict[str, tuple[str, Event]]:
        """Return key and entry of each session by its id."""
        entries = value if isinstance(value, dict) else {}
        return {
            str(entry["sessionId"]): (key, entry)
            for key, entry in entries.items()
            if isinstance(entry, dict) and entry.get("sessionId")
        }

    def _of_database(self, db: sqlite3.Connection, path: str) -> Iterator[tuple[ImportedSession, str]]:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "transcript_events" not in tables:
            return  # of a version that kept sessions in files
        for table in _SESSION_TABLES:
            columns = _columns(db, table)
            named = next((name for name in ("session_id", "current_session_id") if name in columns), "")
            if not named or "session_key" not in columns:
                continue
            entry = "entry_json" if "entry_json" in columns else "NULL"
            for session_id, key, text in db.execute(f"SELECT {named}, session_key, {entry} FROM {table}"):
                self._entries.setdefault(str(session_id), (str(key), _object(text)))
        for table in sorted(_ARCHIVES & tables):
            for (session_id,) in db.execute(f"SELECT DISTINCT session_id FROM {table}"):
                reason = "an older part of it is in a compressed archive of the other program"
                self._content.leave("session", str(session_id), reason, path)
        if "standing_intents" in tables:
            for (text,) in db.execute("SELECT description FROM standing_intents"):
                reason = "this program has no standing intents: ask the agent to remember it"
                self._content.leave("intent", str(text)[:60], reason, path)
        columns = _columns(db, "transcript_events")
        for (session_id,) in db.execute("SELECT DISTINCT session_id FROM transcript_events ORDER BY 1").fetchall():
            rows = db.execute(
                "SELECT event_json FROM transcript_events WHERE session_id = ? ORDER BY seq", (session_id,)
            )
            texts = [row[0] for row in rows]
            packed = sum(1 for text in texts if not text)
            if packed and "event_zstd" in columns:
                self._content.leave("messages", str(session_id), "they are stored compressed (zstd)", path, packed)
            events, broken = parse_lines("\n".join(text for text in texts if text))
            session = self._session(str(session_id), events, broken, path)
            if session is not None:
                yield session, path

    def _of_file(self, path: str, name: str) -> Iterator[tuple[ImportedSession, str]]:
        if name == "sessions.json":
            self._content.leave("file", path, "each chat begins a new session here", path)
            return
        reason = next((text for part, text in _LEFT_ENDINGS if part in name), "")
        if name.endswith(".zst"):
            reason = reason or "it is compressed (zstd); unpack it in its folder"
        elif ".jsonl" not in name:
            reason = "not a transcript"
        data = self._tree.read_bytes(path)
        if reason or data is None:
            self._content.leave("file", path, reason or "it cannot be read", path)
            return
        events, broken = parse_lines(data.decode("utf-8", "replace"))
        session_id = next(
            (str(one["id"]) for one in events if _is(one, "session") and one.get("id")), name.split(".")[0]
        )
        if session_id in self._seen:
            self._content.leave("file", path, f"a second copy of session {session_id}", path)
            return
        session = self._session(session_id, events, broken, path)
        if session is not None:
            yield session, path

    def _session(self, session_id: str, events: Sequence[Any], broken: int, path: str) -> ImportedSession | None:
        self._seen.add(session_id)
        entries = [one for one in events if isinstance(one, dict)]
        header = next((one for one in entries if _is(one, "session")), {})
        branch = _branch([one for one in entries if not _is(one, "session")])
        dated = [(one, found) for one in branch if (found := _dated(one, header)) is not None]
        abandoned = sum(1 for one in entries if _is(one, "message")) - sum(1 for one in branch if _is(one, "message"))
        if abandoned:
            self._content.leave("messages", session_id, "they are of branches that were given up", path, abandoned)
        if broken:
            self._content.leave("messages", session_id, "lines that are no JSON", path, broken)
        if not dated:
            self._content.leave("session", session_id, "it has no messages", path)
            return None
        key, entry = self._entries.get(session_id, ("", {}))
        model = next((str(one.get("modelId") or "") for one in reversed(branch) if _is(one, "model_change")), "")
        title = entry.get("label") or entry.get("displayName") or entry.get("subject") or ""
        times = [found.timestamp for _, found in dated]
        return ImportedSession(
            session_id,
            _channel(key) or SOURCE,
            _time(header.get("timestamp")) or times[0],
            max(times),
            [found for _, found in dated],
            _history(branch, dated),
            principal=_principal(key),
            model=model or str(entry.get("model") or ""),
            title=str(title),
            cwd=str(header.get("cwd") or ""),
            tokens=(
                _whole(entry.get("inputTokens")),
                _whole(entry.get("outputTokens")),
                _whole(entry.get("cacheRead")),
            ),
        )


def _json_of(tree: SourceTree, path: str) -> Any:
    try:
        return json.loads(tree.read_bytes(path) or b"null")
    except ValueError:
        return None


def _columns(db: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


def _object(text: Any) -> Event:
    """Return the JSON object of a text, or an empty one."""
    with contextlib.suppress(TypeError, ValueError):
        value = json.loads(text)
        return value if isinstance(value, dict) else {}
    return {}


def _is(event: Any, kind: str) -> bool:
    return isinstance(event, dict) and event.get("type") == kind


def _branch(entries: Sequence[Event]) -> list[Event]:
    """Return the entries from the root to the last one; all of them if they form no tree."""
    by_id = {str(one["id"]): one for one in entries if one.get("id")}
    if not any(one.get("parentId") for one in entries):
        return list(entries)
    way: list[Event] = []
    seen: set[str] = set()
    here: Event | None = next((one for one in reversed(entries) if one.get("id")), None)
    while here is not None and str(here.get("id")) not in seen:
        way.append(here)
        seen.add(str(here.get("id")))
        here = by_id.get(str(here.get("parentId") or ""))
    return way[::-1]


def _history(branch: Sequence[Event], dated: Sequence[tuple[Event, DatedMessage]]) -> list[DatedMessage] | None:
    """Return what the model got after the last compaction, or None if there was none."""
    last = next((one for one in reversed(branch) if _is(one, "compaction")), None)
    if last is None:
        return None
    first = str(last.get("firstKeptEntryId") or "")
    order = {id(one): number for number, one in enumerate(branch)}
    begin = next((number for number, one in enumerate(branch) if first and one.get("id") == first), order[id(last)])
    return [found for one, found in dated if one is last or (order[id(one)] >= begin and not _is(one, "compaction"))]


def _dated(event: Event, header: Event) -> DatedMessage | None:
    """Return the message of an entry, or None if the model does not get it as one."""
    sent = event.get("message")
    at = _time(event.get("timestamp")) or _time(header.get("timestamp"))
    message: Message | None = None
    if _is(event, "message") and isinstance(sent, dict):
        at = _time(sent.get("timestamp")) or at
        message = _message(sent)
    elif event.get("type") in ("compaction", "branch_summary") and event.get("summary"):
        message = Message("user", f"Summary of the conversation before:\n{event['summary']}")
    elif _is(event, "custom_message") and event.get("content"):
        message = Message("user", _content(event["content"])[0])
    return None if message is None else DatedMessage(plain_message(message), at)


def _message(value: Event) -> Message | None:
    role = value.get("role")
    content, calls = _content(value.get("content"))
    if role == "toolResult":
        call, name = str(value.get("toolCallId") or ""), str(value.get("toolName") or "")
        return Message("tool", content, tool_call_id=call, tool_name=name)
    if role == "assistant":
        return Message("assistant", content, calls) if content or calls else None
    if role in ("user", "system"):
        return Message(role, content)
    if role == "bashExecution":
        return Message("user", f"$ {value.get('command', '')}\n{value.get('output', '')}")
    return None


def _content(value: Any) -> tuple[Content, tuple[ToolCall, ...]]:
    """Return content and tool calls; thoughts of the model are left out."""
    if not isinstance(value, list):
        return ("" if value is None else str(value)), ()
    parts: list[dict[str, Any]] = []
    calls: list[ToolCall] = []
    for block in value:
        kind = block.get("type") if isinstance(block, dict) else ""
        if kind == "text":
            parts.append({"type": "text", "text": str(block.get("text") or "")})
        elif kind == "image" and block.get("data"):
            url = f"data:{block.get('mimeType') or 'image/png'};base64,{block['data']}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif kind == "toolCall":
            arguments = json.dumps(block.get("arguments") or {}, ensure_ascii=False)
            calls.append(ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments))
        elif kind not in ("thinking", "redactedThinking"):
            parts.append({"type": "text", "text": json.dumps(block, ensure_ascii=False)})
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts), tuple(calls)
    return parts, tuple(calls)


def _channel(key: str) -> str:
    """Return the platform in a key such as `agent:main:telegram:direct:4711`, or ""."""
    parts = key.split(":")
    channel = parts[2] if parts[0] == "agent" and len(parts) > 3 else ""
    return "" if channel in _OWN_CHANNELS else channel


def _principal(key: str) -> str:
    """Return the principal of a session: the peer of its chat, or the owner of the home."""
    channel = _channel(key)
    return f"{channel}:{key.split(':', 3)[3].split(':', 1)[-1]}" if channel else LOCAL


def _time(value: Any) -> float:
    """Return seconds since the epoch: of an ISO time, or of milliseconds; 0 if there is no time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if value > 1e11 else float(value)
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(str(value or "")).timestamp()
    return 0.0


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0
