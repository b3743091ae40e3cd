"""Whose sessions are whose.

A principal is who speaks at a front door: `local` is the person at this machine's terminal, `api_server` whoever bears
the HTTP key, `telegram:4711` a user of a chat platform. One principal never sees, resumes or searches another's
sessions, except where the operator says that they belong together (`people`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from hermes_agent.config.home import FileAccess

LOCAL = "local"
API_SERVER = "api_server"
LONGEST_NAME = 200
"""Characters of a folder's name; of a longer one the rest becomes a hash."""


class Principals:
    """Who belongs together. `groups`: principals by the name of the person, or of the group, that they are."""

    def __init__(self, groups: Mapping[str, Iterable[str]] | None = None) -> None:
        self._seen: dict[str, set[str]] = {LOCAL: {API_SERVER}}  # whoever has the home has the key that lies in it
        self._names: dict[str, str] = {}
        for name, principals in (groups or {}).items():
            members = set(principals)
            for principal in members:
                self._seen.setdefault(principal, set()).update(members)
                self._names.setdefault(principal, name)

    def visible_to(self, principal: str) -> frozenset[str]:
        """Return the principals whose sessions `principal` may see: itself at least."""
        return frozenset({principal, *self._seen.get(principal, ())})

    def name_of(self, principal: str) -> str:
        """Return the person's name, the first that the operator gave; without one, the principal itself."""
        return self._names.get(principal, principal)

    def notes_name(self, principal: str) -> str:
        """Return the name that the notes of a principal go by; empty for the owner of the home."""
        name = self.name_of(principal)
        return "" if name == self.name_of(LOCAL) else name

    def reader(self, principal: str, session: str = "") -> FileAccess:
        """Return which files of the agent's home the tools of a principal's session may open; without one, none."""
        if not principal:
            return FileAccess()
        seen, person = self.visible_to(principal), self.notes_name(principal)
        return FileAccess(frozenset(map(folder_name, seen)), person and folder_name(person), LOCAL in seen, session)


def folder_name(name: str) -> str:
    """Return what the folder of a principal or a person is called: no separator, no dot."""
    fit = quote(name, safe="").replace(".", "%2E")
    if len(fit) <= LONGEST_NAME:
        return fit
    return f"{fit[:100]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"
