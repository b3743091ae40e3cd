"""Which files of the agent's home a tool may open, by the principal of its session.

What is not listed here is closed to the tools of every session: the agent's own state, and what other users own.
Imports the standard library alone: the search process loads it on its own.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PEOPLE", "Reader", "closed"]

PEOPLE = "cache/people"
"""Below the home: a folder for each principal, with its uploads, long results of tools and generated files."""
_NOTES = "memories"
_HOOKS = "hook_outputs"
_SHARED = frozenset({"SOUL.md", "plugins", "skills", "workspace"})
"""Entries of the home that every session may read."""
_OPERATOR = frozenset({"config.local.yaml", "config.yaml", "cron", "hooks", "pairing", "plugins_trust.json", "scripts"})
"""Entries that the sessions of the home's owner may read, too."""
_ABOVE = frozenset({"", "cache", PEOPLE, _NOTES, f"{_NOTES}/people", _HOOKS})
"""Directories on the way to what is open; of their entries only those are shown that are open themselves."""


class Reader(NamedTuple):
    """Whose files a call may open."""

    folders: frozenset[str] = frozenset()
    """Names of the folders below `PEOPLE`."""
    notes: str | None = None
    """Folder of the notes below `memories/people`; empty for those of the home's owner, None for no notes."""
    is_owner: bool = False
    """Whether it is the home's owner."""
    session: str = ""
    """The session, to which long texts of hooks belong."""


def closed(place: str, reader: Reader) -> str | None:
    """Return why a path below the home is not open to a call, or None.

    Args:
        place: resolved, relative to the home; empty for the home itself.
    """
    if place in _ABOVE:
        return None
    first = place.partition("/")[0]
    if first in _SHARED or (reader.is_owner and first in _OPERATOR):
        return None
    if place.startswith(f"{PEOPLE}/"):
        folder = place.removeprefix(f"{PEOPLE}/").partition("/")[0]
        return None if folder in reader.folders else "it belongs to another user"
    if first == _HOOKS:
        return None if place.split("/")[1] == reader.session else "it belongs to another session"
    if first == _NOTES:
        return None if _is_own_note(place, reader) else "it belongs to another user"
    return "it is the agent's own state"


def _is_own_note(place: str, reader: Reader) -> bool:
    below = place.removeprefix(f"{_NOTES}/")
    if below.startswith("people/"):
        return bool(reader.notes) and below.split("/")[1] == reader.notes
    return reader.notes == ""
