"""Whose sessions are whose.

A principal is who speaks at a front door: `local` is the person at this machine's terminal, `api_server` whoever bears
the HTTP key, `telegram:4711` a user of a chat platform. One principal never sees, resumes or searches another's
sessions, except where the operator says that they belong together (`people`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["API_SERVER", "LOCAL", "People"]

LOCAL = "local"
API_SERVER = "api_server"


class People:
    """Who belongs together. `groups`: principals by the name of the person, or of the group, that they are."""

    def __init__(self, groups: Mapping[str, Iterable[str]] | None = None) -> None:
        self._seen: dict[str, set[str]] = {LOCAL: {API_SERVER}}  # whoever has the home has the key that lies in it
        self._names: dict[str, str] = {}
        for name, principals in (groups or {}).items():
            members = set(principals)
            for principal in members:
                self._seen.setdefault(principal, set()).update(members)
                self._names.setdefault(principal, name)

    def seen_by(self, principal: str) -> frozenset[str]:
        """Return the principals whose sessions `principal` may see: itself at least."""
        return frozenset({principal, *self._seen.get(principal, ())})

    def name_of(self, principal: str) -> str:
        """Return the person's name, the first that the operator gave; without one, the principal itself."""
        return self._names.get(principal, principal)
