"""Each kind of entry that a home can have, and whose sessions may read it: rows of the matrix of users and data."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["EACH", "EVERYBODY", "NOBODY", "OWNER", "ROWS", "SHARED_CACHES", "batches", "furnish", "mark", "readable"]

NOBODY, OWNER, EVERYBODY, EACH = "nobody", "the owner of the home", "everybody", "each user theirs"
ROWS: dict[str, tuple[str, str]] = {
    "SOUL.md": ("", EVERYBODY),
    "skills": ("draft/SKILL.md", EVERYBODY),  # also a skill that one user's session has begun
    "plugins": ("p/notes.txt", EVERYBODY),
    "workspace": ("notes.txt", EVERYBODY),
    "config.yaml": ("", OWNER),  # with the routes of webhooks
    "config.local.yaml": ("", OWNER),
    "cron": ("jobs.json", OWNER),
    "hooks": ("x/HOOK.yaml", OWNER),
    "pairing": ("telegram-approved.json", OWNER),
    "plugins_trust.json": ("", OWNER),
    "scripts": ("x.sh", OWNER),
    "band-libs": ("notes/song.txt", OWNER),  # what a plugin made
    "cache": ("documents/x.txt", EACH),
    "hook_outputs": ("somebody/x.txt", EACH),
    "memories": ("people/somebody/MEMORY.md", EACH),
    ".env": ("", NOBODY),
    ".hidden": ("x.txt", NOBODY),
    "api_server.key": ("", NOBODY),
    "audio_cache": ("x.ogg", NOBODY),  # of the published program, as "image_cache"
    "auth.json": ("", NOBODY),
    "channel_directory.json": ("", NOBODY),
    "checkpoints": ("store/x", NOBODY),
    "gateway": ("telegram_x.json", NOBODY),
    "gateway-locks": ("x.lock", NOBODY),
    "gateway.lock": ("", NOBODY),
    "gateway_state.json": ("", NOBODY),
    "history": ("", NOBODY),
    "logs": ("agent.log", NOBODY),
    "image_cache": ("x.png", NOBODY),
    "mcp-tokens": ("x.json", NOBODY),
    "notebook.db": ("", NOBODY),
    "notebook.json": ("", NOBODY),
    "plugins_seen.json": ("", NOBODY),
    "plugins_state.json": ("", NOBODY),
    "processes": ("x/output", NOBODY),
    "profiles": ("x/config.yaml", NOBODY),
    "imports": ("x/old/env", NOBODY),
    "restore-points": ("x/state.db", NOBODY),
    "rich_sent_messages.json": ("", NOBODY),
    "run": ("control.json", NOBODY),
    "sessions": ("x.jsonl", NOBODY),  # of the published program
    "ssh_known_hosts": ("", NOBODY),
    "state.db": ("", NOBODY),
    "state.db-shm": ("", NOBODY),
    "state.db-wal": ("", NOBODY),
    "sticker_cache.json": ("", NOBODY),
    "telegram_threads.json": ("", NOBODY),
    "webhook_subscriptions.json": ("", NOBODY),  # of the published program
    "whatsapp": ("creds.json", NOBODY),
}
"""Name of the entry: a file of it that holds something (empty: itself), and who may read that."""
SHARED_CACHES = ("audio_cache", "cache", "image_cache")
"""Entries with files of tools and messages, which may be sent until they are served."""


def mark(entry: str) -> str:
    """Return a text that stands in one entry and nowhere else."""
    return f"MARKrow-{entry.strip('.')}-"


def readable(whose: str, *, is_owner: bool = False) -> bool:
    """Say whether a session may read an entry of another's."""
    return whose == EVERYBODY or (whose == OWNER and is_owner)


def batches(size: int) -> list[list[str]]:
    """Return the entries, so many in each turn of a session."""
    names = list(ROWS)
    return [names[begin : begin + size] for begin in range(0, len(names), size)]


def furnish(home: Path) -> dict[str, Path]:
    """Put a marked file where the home has none; return each entry's file."""
    found = {}
    for entry, (below, _) in ROWS.items():
        file = found[entry] = home / entry / below if below else home / entry
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({mark(entry): {}}) if file.suffix == ".json" else f"# {mark(entry)}\n")
        elif entry == "config.yaml":
            file.write_text(f"{file.read_text()}\n# {mark(entry)}\n")
    return found
