"""OpenClaw's home: which file is what.

A file is imported, or named with the reason why not. `docs/operator/import.md` has the list for operators.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import FileEntry, HomeContent, leave_rest
from hermes_agent.app.imports.openclaw_config import PROVIDERS, OpenClawConfig, parse_json5
from hermes_agent.app.imports.openclaw_sessions import OpenClawSessions
from hermes_agent.app.imports.openclaw_state import add_job, add_user, read_state
from hermes_agent.app.imports.source_tree import SourceTree
from hermes_agent.app.imports.upstream_home import add_entry, read_variables
from hermes_agent.app.imports.upstream_sessions import copy_database
from hermes_agent.credentials.logins import API_KEY, Login
from hermes_agent.memory.notes import Notes
from hermes_agent.sessions.imported_sessions import ImportedSession

SIGNS = ("openclaw.json", "agents", "workspace", "credentials")
"""Entries of which a home of OpenClaw has at least one."""
_NOTES = {"MEMORY.md": "memory", "memory.md": "memory", "USER.md": "user"}
_AGAIN = "sign in again: a copied login ends with its renewal"
_LINKED = "a linked device or a login of a channel: set the channel up again"
_LEFT = {
    **dict.fromkeys(("extensions", "plugins", "npm"), "plugins of OpenClaw are JavaScript programs"),
    **dict.fromkeys(("logs", "media", "tmp", "browser", "canvas", "completions"), "logs, caches and files in transit"),
    **dict.fromkeys(("devices", "identity", "nodes", "push"), "devices of OpenClaw's own protocol"),
    **dict.fromkeys(("memory", "cron/runs", "cron/jobs-state.json"), "an index or a history, which is built again"),
    **dict.fromkeys(("delivery-queue", "subagents", "tasks", "flows", "telegram"), "the state of a running process"),
    **dict.fromkeys(("sandboxes", "sandbox"), "containers of the other program"),
    **dict.fromkeys(("exec-approvals.json", "secrets.json"), "what may run, and other secrets, are decided here again"),
    **dict.fromkeys(("update-check.json", "backups", "gateway.lock"), "the state of the other program"),
    **dict.fromkeys(("config-journal-fingerprint.key", "state/openclaw-quarantine.sqlite"), "a check of its own files"),
    **dict.fromkeys(("cache", "plugin-skills"), "what the other program writes again"),
}


def read_openclaw(tree: SourceTree, work: Path) -> list[HomeContent]:
    """Return the content of a home of OpenClaw.

    Args:
        work: folder for copies of databases.

    Raises:
        UserError: it is no home of OpenClaw.
    """
    tree.require_any(SIGNS, "OpenClaw", "~/.openclaw")
    content = _OpenClawHome(tree, work).read()
    leave_rest(tree, content)
    return [content]


class _OpenClawHome:
    def __init__(self, tree: SourceTree, work: Path) -> None:
        self._tree = tree
        self._work = work
        self.content = HomeContent()

    def read(self) -> HomeContent:
        """Return the content."""
        for name, reason in _LEFT.items():
            self._leave(name, reason)
        for name in self._tree.names(""):
            if name.startswith(("openclaw.json.", "clawdbot.json.")):
                self._leave(name, "an older copy of the config")
        self._read_config()
        read_variables(self._tree, ".env", self.content)
        self._read_workspaces()
        for name in self._tree.names("skills"):
            self._add("skill", f"skills/{name}", f"skills/{name}")
        self._read_users()
        self._read_agents()
        self._read_jobs()
        self._read_state()
        return self.content

    def _leave(self, path: str, reason: str) -> None:
        if found := self._tree.below(path):
            self._tree.take(path)
            self.content.leave("file", path, reason, path, len(found))

    def _add(self, kind: str, source: str, target: str) -> None:
        add_entry(self._tree, self.content, kind, source, target)

    def _value(self, path: str, kind: str) -> Any:
        """Return the value of a JSON file; None if it is missing, or invalid, which is recorded."""
        if path not in self._tree.files:
            return None
        self._tree.take(path)
        try:
            return json.loads((self._tree.read_bytes(path) or b"").decode("utf-8-sig"))
        except ValueError as exc:
            self.content.leave(kind, path, f"it is no JSON: {exc}", path)
            return None

    def _read_config(self) -> None:
        path = "openclaw.json"
        if path not in self._tree.files:
            return
        self._tree.take(path)
        try:
            values = parse_json5((self._tree.read_bytes(path) or b"").decode("utf-8-sig"))
        except ValueError as exc:
            self.content.leave("config", path, f"it cannot be read: {exc}", path)
            return
        defaults = values.get("agents", {})
        place = defaults.get("defaults", {}).get("workspace") if isinstance(defaults, dict) else None
        if isinstance(place, str) and not Path(place).expanduser().resolve().is_relative_to(self._tree.root):
            self.content.leave(
                "workspace", place, "it is outside of the home: copy what you need into `workspace/` of this home", path
            )
        OpenClawConfig(values, path, self.content).convert()

    def _read_workspaces(self) -> None:
        for place in self._tree.names(""):
            if place != "workspace" and not place.startswith("workspace-"):
                continue
            if place not in self._tree.files:
                self._read_workspace(place)

    def _read_workspace(self, place: str) -> None:
        """Read a workspace: notes and persona of the main one, skills of each, all other files as they are."""
        is_main = place == "workspace"
        notes = Notes(self._tree.root / place, {})
        for name in self._tree.names(place):
            source = f"{place}/{name}"
            if name == "skills":
                for skill in self._tree.names(source):
                    self._add("skill", f"{source}/{skill}", f"skills/{skill}")
                continue
            if is_main and name in _NOTES and self._tree.read_bytes(source) is not None:
                entries = tuple(notes.entries(_NOTES[name])) if name != "memory.md" else ()
                target = "MEMORY.md" if name == "memory.md" else name
                self.content.files.append(FileEntry("notes", source, f"memories/{target}", entries))
            elif is_main and name == "SOUL.md":
                self.content.files.append(FileEntry("persona", source, name))
            self._add("workspace", source, source if is_main else f"workspace/{place}/{name}")

    def _read_users(self) -> None:
        """Read the approved users of channels."""
        ending = "-allowFrom.json"
        for name in self._tree.names("credentials"):
            path = f"credentials/{name}"
            if name.endswith("-pairing.json"):
                self._leave(path, "codes of pairings, which end within an hour")
            elif not name.endswith(ending):
                self._leave(path, _LINKED)
            else:
                value = self._value(path, "pairing")
                platform = name.removesuffix(ending).split("-")[0]
                users = value.get("allowFrom") if isinstance(value, dict) else ()
                for user in users if isinstance(users, list) else ():
                    add_user(self.content, platform, str(user), path)

    def _read_agents(self) -> None:
        sessions = []
        for agent in self._tree.names("agents"):
            place = f"agents/{agent}"
            database = f"{place}/agent/openclaw-agent.sqlite"
            copy = copy_database(self._tree, database, self._work / agent)
            for suffix in ("", "-wal", "-shm", "-journal") if copy is not None else ():
                self._tree.take(f"{database}{suffix}")
            if copy is not None:
                self._read_stored_logins(copy, database, agent)
            self._read_logins(self._value(f"{place}/agent/auth-profiles.json", "login"), place, agent)
            for name in self._tree.names(f"{place}/agent"):
                if f"{place}/agent/{name}" not in (database, f"{place}/agent/auth-profiles.json"):
                    self._leave_once(f"{place}/agent/{name}")
            for name in self._tree.names(f"{place}/sessions"):
                self._tree.take(f"{place}/sessions/{name}")
            sessions.append(OpenClawSessions(self._tree, place, copy, self.content))

        def all_sessions() -> Iterator[tuple[ImportedSession, str]]:
            for one in sessions:
                yield from one

        self.content.sessions = all_sessions

    def _leave_once(self, path: str) -> None:
        if not self._tree.is_taken(path):
            self._leave(path, "the state of an agent of the other program")

    def _read_stored_logins(self, copy: Path, path: str, agent: str) -> None:
        with contextlib.suppress(sqlite3.Error, ValueError), contextlib.closing(sqlite3.connect(copy)) as db:
            for (text,) in db.execute("SELECT store_json FROM auth_profile_store"):
                self._read_logins(json.loads(text), path, agent)

    def _read_logins(self, value: Any, source: str, agent: str) -> None:
        profiles = value.get("profiles") if isinstance(value, dict) else None
        path = source if source in self._tree.files else f"{source}/agent/auth-profiles.json"
        for name, entry in profiles.items() if isinstance(profiles, dict) else ():
            if not isinstance(entry, dict):
                continue
            provider = str(entry.get("provider") or name.split(":")[0])
            key = entry.get("key")
            if isinstance(key, str) and key:
                label = name.split(":", 1)[-1] if agent == "main" else f"{agent}-{name.split(':', 1)[-1]}"
                login = Login(PROVIDERS.get(provider, provider), label, API_KEY, key)
                self.content.logins.append((login, path))
            else:
                self.content.leave("login", name, _AGAIN, path)

    def _read_jobs(self) -> None:
        path = "cron/jobs.json"
        value = self._value(path, "job")
        jobs = value.get("jobs") if isinstance(value, dict) else value
        for job in jobs if isinstance(jobs, list) else ():
            add_job(self.content, job, path)

    def _read_state(self) -> None:
        """Read the shared database of newer versions: jobs, users, keys."""
        database = "state/openclaw.sqlite"
        copy = copy_database(self._tree, database, self._work / "state")
        if copy is None:
            return
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._tree.take(f"{database}{suffix}")
        for stores in read_state(copy, database, self.content):
            self._read_logins(stores, database, "main")
