"""Which files of the agent's home a tool may open, by the principal of its session.

What is not listed here is closed to the tools of every session: the agent's own state, and what other users own. A
folder that is neither is a plugin's, which the sessions of the home's owner may read.
Imports the standard library alone: the search process loads it on its own.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PRINCIPALS", "WORKSPACE", "FileAccess", "find_denial"]

PRINCIPALS = "cache/people"
"""Below the home: a folder for each principal, with its uploads, long results of tools and generated files."""
WORKSPACE = "workspace"
"""Where a daemon works whose operator names no directory; everybody's who may use its tools."""
_NOTES = "memories"
_HOOKS = "hook_outputs"
_SHARED = frozenset({"SOUL.md", "plugins", "skills", WORKSPACE})
"""Entries of the home that every session may read."""
_OPERATOR = frozenset({"config.local.yaml", "config.yaml", "cron", "hooks", "pairing", "plugins_trust.json", "scripts"})
"""Entries that the sessions of the home's owner may read, too."""
_STATE = frozenset(
    {
        *("cache", "checkpoints", "gateway", "gateway-locks", "logs", "mcp-tokens", "node", "processes", "profiles"),
        *("restore-points", "run"),
        # of the published program, in whose homes the agent works, too
        *("audio_cache", "backups", "bin", "browser_screenshots", "document_cache", "hermes-agent", "home"),
        *("image_cache", "images", "kanban", "matrix", "platforms", "sandboxes", "sessions", "shared", "skins"),
        *("state-snapshots", "video_cache", "weixin", "whatsapp"),
    }
)
"""Folders of the home that no session may read but for what is open in them: the agent's, and what users left there."""
_PARENTS = frozenset({"", "cache", PRINCIPALS, _NOTES, f"{_NOTES}/people", _HOOKS})
"""Directories on the way to what is open; of their entries only those are shown that are open themselves."""


class FileAccess(NamedTuple):
    """Whose files a call may open."""

    folders: frozenset[str] = frozenset()
    """Names of the folders below `PRINCIPALS`."""
    notes: str | None = None
    """Folder of the notes below `memories/people`; empty for those of the home's owner, None for no notes."""
    is_owner: bool = False
    """Whether it is the home's owner."""
    session: str = ""
    """The session, to which long texts of hooks belong."""


def find_denial(place: str, reader: FileAccess, *, is_folder: bool = False) -> str | None:
    """Return why a path below the home is not open to a call, or None.

    Args:
        place: resolved, relative to the home; empty for the home itself.
        is_folder: it is a directory. What something lies in is one, and need not be said to be.
    """
    if place in _PARENTS:
        return None
    first = place.partition("/")[0]
    if first in _SHARED or (reader.is_owner and first in _OPERATOR):
        return None
    if place.startswith(f"{PRINCIPALS}/"):
        folder = place.removeprefix(f"{PRINCIPALS}/").partition("/")[0]
        return None if folder in reader.folders else "it belongs to another user"
    if first == _HOOKS:
        return None if place.split("/")[1] == reader.session else "it belongs to another session"
    if first == _NOTES:
        return None if _is_own_note(place, reader) else "it belongs to another user"
    if (is_folder or "/" in place) and first not in _STATE and not first.startswith("."):
        return None if reader.is_owner else "it belongs to a plugin"
    return "it is the agent's own state"


def _is_own_note(place: str, reader: FileAccess) -> bool:
    below = place.removeprefix(f"{_NOTES}/")
    if below.startswith("people/"):
        return bool(reader.notes) and below.split("/")[1] == reader.notes
    return reader.notes == ""
