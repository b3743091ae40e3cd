"""Upstream's home: which file is what. Source: plugin contract §12.2, §12.3.

A file is imported, or named with the reason why not. `docs/operator/import.md` has the same list for operators.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_agent.app.imports.content import FileEntry, HomeContent, JobEntry, PairedUser, Setting, leave_rest
from hermes_agent.app.imports.source_tree import SourceTree
from hermes_agent.app.imports.upstream_sessions import UpstreamSessions, copy_database
from hermes_agent.config.dotenv import parse_env
from hermes_agent.config.home import ENV_FILE
from hermes_agent.config.yaml_reader import read_text
from hermes_agent.core.errors import UserError
from hermes_agent.credentials.logins import API_KEY, LoginStore
from hermes_agent.memory.notes import FILES as NOTE_FILES
from hermes_agent.memory.notes import Notes

SIGNS = ("state.db", "config.yaml", "memories", "SOUL.md", "cron", ".env")
"""Entries of which a home of upstream has at least one."""
_FOLDERS = {"hooks": "hook", "scripts": "script", "plugin-data": "plugin data", "workspace": "workspace"}
"""Folders with a copied entry for each name in them, and the kind of the entry."""
_CACHE, _STATE = "a cache, which is built again", "the state of a running process"
_LEFT = {
    "logs": "logs of the other program",
    "bin": "programs that upstream installed for itself",
    "hermes-agent": "upstream's own program",
    "node": "programs that upstream installed for itself",
    "backups": "backups of the other program",
    "state-snapshots": "backups of the other program",
    "checkpoints": "checkpoints of files, which only the program that made them can restore",
    "kanban.db": "boards; this program has none",
    "kanban": "boards; this program has none",
    "projects.db": "projects; this program has none",
    "skins": "looks of the other program's console",
    "hook_outputs": _CACHE,
    "sandboxes": "containers of the other program",
    "channel_directory.json": _CACHE,
    "shell-hooks-allowlist.json": "what may run is decided here again: `hermes hooks`",
    "cron/output": "outputs of past runs; new runs are stored here",
    "cron/.jobs.lock": _STATE,
    "whatsapp": "a linked device: link it again, one program at a time can use it",
    "matrix": "a linked device: link it again, one program at a time can use it",
    "weixin": "a linked device: link it again, one program at a time can use it",
    "mcp-tokens": "sign in again with `hermes mcp login NAME`: a copied login ends with its first renewal",
    **dict.fromkeys(("gateway.pid", "gateway_state.json", "gateway.lock", "processes.json", "processes"), _STATE),
    **dict.fromkeys(("run", "gateway", "gateway-locks", "auth.lock", "auth.json.lock"), _STATE),
    **dict.fromkeys(("cache", "audio_cache", "image_cache", "video_cache", "document_cache", "images"), _CACHE),
    **dict.fromkeys(("browser_screenshots", ".skills_prompt_snapshot.json", "models_dev_cache.json"), _CACHE),
}
"""Known entries that are not imported, with the reason."""
_LARGEST_SOURCE = 1 << 20
_LINKED_PLATFORM = "a linked device or the state of a platform: set the platform up again"


def read_upstream(tree: SourceTree, work: Path) -> list[HomeContent]:
    """Return the content of the home and of its profiles.

    Args:
        work: folder for copies of databases.

    Raises:
        UserError: it is no home of upstream.
    """
    tree.require_any(SIGNS, "upstream", "~/.hermes")
    homes = [_UpstreamHome(tree, "", work).read()]
    for name in tree.names("profiles"):
        if tree.names(f"profiles/{name}"):
            homes.append(_UpstreamHome(tree, f"profiles/{name}", work).read(name))
    _add_plugin_data(tree, homes[0])
    leave_rest(tree, homes[0])
    return homes


def _add_plugin_data(tree: SourceTree, content: HomeContent) -> None:
    """Add entries of the home that no reader took and the code of an imported plugin names."""
    code = b"".join(
        tree.read_bytes(found.path) or b""
        for entry in content.files
        if entry.kind == "plugin"
        for found in tree.below(entry.source)
        if found.path.endswith((".py", ".yaml")) and found.size < _LARGEST_SOURCE
    )
    for name in tree.names(""):
        named = any(f"{mark}{name}{end}".encode("utf-8", "replace") in code for mark in "\"'/" for end in "\"'/")
        if named and not any(tree.is_taken(found.path) for found in tree.below(name)):
            add_entry(tree, content, "plugin data", name, name)


def add_entry(tree: SourceTree, content: HomeContent, kind: str, source: str, target: str) -> None:
    """Add a file or folder, without the parts of it that cannot be copied."""
    tree.take(source)
    for found in tree.below(source):
        if found.problem:
            content.leave("file", found.path, found.problem, found.path)
    if any(not found.problem for found in tree.below(source)):
        content.files.append(FileEntry(kind, source, target))


def read_text_file(tree: SourceTree, path: str, content: HomeContent) -> tuple[str, str] | None:
    """Return path and text of a file; None if it is missing, or cannot be read, which is recorded."""
    if path not in tree.files:
        return None
    tree.take(path)
    data = tree.read_bytes(path)
    if data is None:
        content.leave("file", path, tree.files[path].problem or "it cannot be read", path)
        return None
    try:
        return path, data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        content.leave("file", path, f"byte {exc.start} is no UTF-8: save the file as UTF-8", path)
        return None


def read_variables(tree: SourceTree, path: str, content: HomeContent) -> None:
    """Read the variables of a `.env` file."""
    if (found := read_text_file(tree, path, content)) is None:
        return
    parsed = parse_env(found[1], path)
    for finding in parsed.findings:
        if finding.level == "error":
            content.leave("variable", f"{path}:{finding.line}", finding.message, path)
    content.env.append(Setting(dict(parsed.values), path))


class _UpstreamHome:
    """One home below `place`."""

    def __init__(self, tree: SourceTree, place: str, work: Path) -> None:
        self._tree = tree
        self._place = place
        self._start = f"{place}/" if place else ""
        self._work = work / (place or "main")
        self.content = HomeContent()

    def read(self, profile: str = "") -> HomeContent:
        """Return its content."""
        content = self.content = HomeContent(profile)
        self._leave_known()
        self._read_config()
        read_variables(self._tree, f"{self._start}{ENV_FILE}", content)
        self._read_logins()
        self._read_notes()
        self._read_folders()
        self._read_jobs()
        self._read_users()
        path = f"{self._start}state.db"
        copy = copy_database(self._tree, path, self._work)
        for suffix in ("", "-wal", "-shm", "-journal") if copy is not None else ():
            self._tree.take(f"{path}{suffix}")
        sessions = UpstreamSessions(self._tree, self._place, copy, content)
        for name in self._tree.names(f"{self._start}sessions"):
            self._tree.take(f"{self._start}sessions/{name}")
        content.sessions = lambda: iter(sessions)
        return content

    def _leave_known(self) -> None:
        for name, reason in _LEFT.items():
            path = f"{self._start}{name}"
            if found := self._tree.below(path):
                self._tree.take(path)
                self.content.leave("file", path, reason, path, len(found))

    def _text(self, name: str) -> tuple[str, str] | None:
        return read_text_file(self._tree, f"{self._start}{name}", self.content)

    def _read_config(self) -> None:
        if (found := self._text("config.yaml")) is None:
            return
        path, text = found
        document = read_text(text, path)
        for finding in document.findings:
            self.content.leave("config", finding.key_path or path, finding.message, path)
        self.content.config.append(Setting(document.value, path))

    def _read_logins(self) -> None:
        path = f"{self._start}auth.json"
        if path not in self._tree.files:
            return
        self._tree.take(path)
        try:
            logins = LoginStore(self._tree.root / path).entries()
        except (UserError, AttributeError, TypeError) as exc:
            self.content.leave("login", path, f"it cannot be read: {exc}", path)
            return
        for login in logins:
            name = f"{login.provider}: {login.label}"
            if login.auth_type == API_KEY:
                self.content.logins.append((login, path))
            else:
                reason = (
                    f"sign in again with `hermes auth login {login.provider}`: a copied login ends with its renewal"
                )
                self.content.leave("login", name, reason, path)
        if not logins:
            self.content.leave("login", path, "it has no key; sign in again with `hermes auth login`", path)

    def _read_notes(self) -> None:
        notes = Notes(self._tree.root / self._start / "memories", {})
        for name in self._tree.names(f"{self._start}memories"):
            path = f"{self._start}memories/{name}"
            target = next((one for one, file in NOTE_FILES.items() if file == name), "")
            if target and self._tree.read_bytes(path) is not None:
                self._tree.take(path)
                entry = FileEntry("notes", path, f"memories/{name}", tuple(notes.entries(target)))
                self.content.files.append(entry)
            elif name.endswith(".lock"):
                self._leave(path, _STATE)
        if f"{self._start}SOUL.md" in self._tree.files:
            self._add("persona", f"{self._start}SOUL.md", "SOUL.md")

    def _read_folders(self) -> None:
        for folder, kind in _FOLDERS.items():
            for name in self._tree.names(f"{self._start}{folder}"):
                self._add(kind, f"{self._start}{folder}/{name}", f"{folder}/{name}")
        self._add_parts("skill", "skills", "SKILL.md")
        self._add_parts("skill bundle", "skill-bundles", "")
        self._add_parts("plugin", "plugins", "plugin.yaml")
        path = f"{self._start}platforms"
        for name in self._tree.names(path):
            if name != "pairing":
                self._leave(f"{path}/{name}", _LINKED_PLATFORM)

    def _add_parts(self, kind: str, folder: str, mark: str) -> None:
        """Add each folder that has the file `mark`; of a folder of such folders, each of them.

        Other files are added one by one. Those with a dot at the beginning are upstream's own notes.
        """
        for name in self._tree.names(f"{self._start}{folder}"):
            place = f"{folder}/{name}"
            if name.startswith("."):
                self._leave(f"{self._start}{place}", "upstream's own notes about the folder")
                continue
            parts = self._tree.names(f"{self._start}{place}")
            is_group = (
                mark
                and mark not in parts
                and any(mark in self._tree.names(f"{self._start}{place}/{part}") for part in parts)
            )
            for part in parts if is_group else ():
                self._add(kind, f"{self._start}{place}/{part}", f"{place}/{part}")
            if not is_group:
                self._add(kind, f"{self._start}{place}", place)

    def _read_jobs(self) -> None:
        if (found := self._text("cron/jobs.json")) is None:
            return
        path, text = found
        try:
            value = json.loads(text)
        except ValueError as exc:
            self.content.leave("job", path, f"it is no JSON: {exc}", path)
            return
        entries = value.get("jobs") if isinstance(value, dict) else value
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                self.content.jobs.append(JobEntry(entry, path))
            else:
                self.content.leave("job", str(entry), "it is no mapping", path)

    def _read_users(self) -> None:
        """Read the approved users: `platforms/pairing` in homes of newer versions, `pairing` in older ones."""
        for folder in (f"{self._start}pairing", f"{self._start}platforms/pairing"):
            for name in self._tree.names(folder):
                path = f"{folder}/{name}"
                platform = name.removesuffix("-approved.json")
                if platform == name:
                    self._leave(path, "codes and limits of pairings, which end within an hour")
                    continue
                self._tree.take(path)
                for user_id, value in self._mapping(path).items():
                    about = value if isinstance(value, dict) else {}
                    at = about.get("approved_at")
                    approved_at = float(at) if isinstance(at, int | float) else 0.0
                    user = PairedUser(platform, str(user_id), str(about.get("user_name") or ""), approved_at, path)
                    self.content.users.append(user)

    def _mapping(self, path: str) -> dict[str, Any]:
        try:
            value = json.loads(self._tree.read_bytes(path) or b"")
        except ValueError as exc:
            self.content.leave("pairing", path, f"it is no JSON: {exc}", path)
            return {}
        return value if isinstance(value, dict) else {}

    def _add(self, kind: str, source: str, target: str) -> None:
        add_entry(self._tree, self.content, kind, source, target)

    def _leave(self, path: str, reason: str) -> None:
        self._tree.take(path)
        self.content.leave("file", path, reason, path, len(self._tree.below(path)))
