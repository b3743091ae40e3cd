"""Principals: the identities to which sessions belong, and which of them see each other's sessions.

`local` is the user of this machine's console, `api_server` every caller with the HTTP key, `telegram:4711` a user of a
chat platform. A principal sees, resumes and searches only its own sessions, unless the operator puts several into one
group (`people`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from hermes_agent.config.home import FileAccess

LOCAL = "local"
API_SERVER = "api_server"
LONGEST_NAME = 200
"""Characters of a folder's name; the end of a longer name becomes a hash."""


class Principals:
    """Groups of principals that share sessions. `groups`: the principals by the name of a user or a group."""

    def __init__(self, groups: Mapping[str, Iterable[str]] | None = None) -> None:
        self._visible: dict[str, set[str]] = {LOCAL: {API_SERVER}}  # the home contains the HTTP key
        self._names: dict[str, str] = {}
        for name, principals in (groups or {}).items():
            members = set(principals)
            for principal in members:
                self._visible.setdefault(principal, set()).update(members)
                self._names.setdefault(principal, name)

    def visible_to(self, principal: str) -> frozenset[str]:
        """Return the principals that `principal` sees the sessions of: itself at least."""
        return frozenset({principal, *self._visible.get(principal, ())})

    def name_of(self, principal: str) -> str:
        """Return the first name that the operator gave to a principal, or the principal itself."""
        return self._names.get(principal, principal)

    def notes_name(self, principal: str) -> str:
        """Return the name under which the notes of a principal are stored; "" for the owner of the home."""
        name = self.name_of(principal)
        return "" if name == self.name_of(LOCAL) else name

    def reader(self, principal: str, session: str = "") -> FileAccess:
        """Return the files of the home that tools of a principal may open; none without a principal."""
        if not principal:
            return FileAccess()
        visible, name = self.visible_to(principal), self.notes_name(principal)
        return FileAccess(frozenset(map(folder_name, visible)), name and folder_name(name), LOCAL in visible, session)


def folder_name(name: str) -> str:
    """Return the name of the folder of a principal or a user, without separator and dot."""
    quoted = quote(name, safe="").replace(".", "%2E")
    if len(quoted) <= LONGEST_NAME:
        return quoted
    return f"{quoted[:100]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"
