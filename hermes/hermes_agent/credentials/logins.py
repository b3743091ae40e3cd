"""`auth.json`: the keys and tokens of `hermes auth login`. Source: plugin contract §12.2.

`{version, providers, credential_pool: {PROVIDER: [entry, …]}, active_provider, updated_at}`; other keys stay.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import new_id
from hermes_agent.core.redaction import redactor
from hermes_agent.system.files import PRIVATE, FileStamp, write_atomic
from hermes_agent.system.locks import FileLock

API_KEY, OAUTH = "api_key", "oauth"
LEEWAY_S = 60.0
"""Seconds before its end at which a token is refreshed."""
LOCK_S = 90.0
"""Longest wait in seconds for another process that refreshes a token: up to 30 s for each step of the request."""


def is_key(text: str) -> bool:
    """Return whether a text can be a provider's key: one line of printable ASCII without blanks."""
    return bool(text) and all("!" <= char <= "~" for char in text)


class LoginExpired(UserError):
    """A token that the provider does not refresh: the user has to sign in again."""


class Login(LazyNamedTuple):
    """One entry."""

    provider: str
    label: str
    """Its name, which `ctx.llm(profile=…)` selects."""
    auth_type: str
    """`API_KEY` or `OAUTH`."""
    access_token: str
    """The key or token."""
    refresh_token: str = ""
    expires_at: float | None = None
    """End of the token in seconds since the epoch; None if unknown."""
    token_url: str = ""
    """URL that refreshes it."""
    client_id: str = ""
    id: str = ""
    refused: str = ""
    """Why it cannot be refreshed; empty if it can."""

    @property
    def is_stale(self) -> bool:
        """Whether it has ended or is about to."""
        return self.expires_at is not None and time.time() > self.expires_at - LEEWAY_S

    @property
    def state(self) -> str:
        """Its state in words, for a list."""
        if self.refused:
            return f"sign in again ({self.refused})"
        if self.auth_type == API_KEY or self.expires_at is None:
            return "ready"
        if not self.is_stale:
            return f"until {datetime.fromtimestamp(self.expires_at).astimezone():%Y-%m-%d %H:%M}"
        return "is renewed when it is used" if self.refresh_token else "ended: sign in again"


class LoginStore:
    """The entries of the file. Reads are cheap; changes are atomic, by one process at a time.

    Args:
        path: `$HERMES_HOME/auth.json`; None stores nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path(os.devnull)
        self._empty = path is None
        self._seen: FileStamp | None = None
        self._known: list[Login] = []

    def entries(self, provider: str = "") -> list[Login]:
        """Return the entries of a provider, or all, in order.

        Raises:
            UserError: the file is invalid.
        """
        if self._empty:
            return []
        stamp = FileStamp.of(self.path)
        if stamp is None:
            return []
        if self._seen != stamp:
            self._known, self._seen = list(_logins(self._value())), stamp
            redactor.learn([t for e in self._known for t in (e.access_token, e.refresh_token) if t])
        return [entry for entry in self._known if provider in ("", entry.provider)]

    def get(self, provider: str, label: str) -> Login | None:
        """Return the entry of that name, or None."""
        return next((entry for entry in self.entries(provider) if entry.label == label), None)

    def put(self, login: Login) -> None:
        """Store an entry in place of the one with its provider and label."""
        with self._locked():
            self._store(login)

    def remove(self, provider: str, label: str = "") -> list[str]:
        """Remove an entry, or all of a provider; return their labels."""
        with self._locked():
            value = self._value()
            labelled = _labelled(value, provider)
            gone = [found for found, _ in labelled if label in ("", found)]
            left = [entry for found, entry in labelled if found not in gone]
            if left:
                value["credential_pool"][provider] = left
            elif gone:
                del value["credential_pool"][provider]
            self._write(value)
        return gone

    def refreshed(self, login: Login, stale: str, renew: Callable[[Login], Login]) -> Login:
        """Return the entry with a token other than `stale`; one process refreshes it, others wait.

        Args:
            renew: sends the request to the provider; blocks. Its exceptions reach the caller.

        Raises:
            LoginExpired: the entry is gone, or the user has to sign in again, which is recorded in it.
        """
        with self._locked():
            present = self.get(login.provider, login.label)
            if present is None:
                raise LoginExpired(
                    f"The login {login.label!r} of {login.provider} is gone.",
                    hint=f"Sign in again: `hermes auth login {login.provider}`.",
                )
            if present.access_token != stale and not present.is_stale:
                return present
            try:
                fresh = renew(present)
            except LoginExpired:
                self._store(present._replace(refused="it is not renewed"))
                raise
            self._store(fresh)
            return fresh

    def _store(self, login: Login) -> None:
        value = self._value()
        entries = value.setdefault("credential_pool", {}).setdefault(login.provider, [])
        entry = next((e for label, e in _labelled(value, login.provider) if label == login.label), None)
        if entry is None:
            entry = {"source": "login", "priority": len(entries)}
            entries.append(entry)
        entry |= {k: v for k, v in login._asdict().items() if k != "provider"}
        entry["id"] = login.id or new_id("cred")
        self._write(value)

    def _value(self) -> dict[str, Any]:
        try:
            value = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {"version": 1, "providers": {}, "credential_pool": {}}
        except (OSError, ValueError) as exc:
            raise _broken(self.path, str(exc)) from None
        if not isinstance(value, dict) or not isinstance(value.get("credential_pool", {}), dict):
            raise _broken(self.path, "expected a mapping with `credential_pool`")
        return value

    def _write(self, value: dict[str, Any]) -> None:
        value["updated_at"] = datetime.now(UTC).isoformat()
        write_atomic(self.path, json.dumps(value, indent=2) + "\n", mode=PRIVATE)

    def _locked(self) -> FileLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.path.with_name("auth.json.lock"), timeout_s=LOCK_S, subject=str(self.path))


def _broken(path: Path, why: str) -> UserError:
    return UserError(f"{path} cannot be read: {why}", hint="Move it away, and sign in again with `hermes auth login`.")


def _labelled(value: dict[str, Any], provider: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a provider's entries with their labels; an entry without one gets its index."""
    entries = value.get("credential_pool", {}).get(provider)
    numbered = enumerate(entries if isinstance(entries, list) else (), 1)
    return [(str(e.get("label") or f"{provider}-{number}"), e) for number, e in numbered if isinstance(e, dict)]


def _logins(value: dict[str, Any]) -> Iterator[Login]:
    for provider in value.get("credential_pool", {}):
        for label, entry in _labelled(value, provider):
            if not entry.get("access_token"):
                continue
            texts = {name: str(entry.get(name) or "") for name in ("refresh_token", "token_url", "client_id", "id")}
            ends = entry.get("expires_at")
            yield Login(
                provider,
                label,
                OAUTH if str(entry.get("auth_type") or "").startswith(OAUTH) else API_KEY,
                str(entry["access_token"]),
                expires_at=float(ends) if isinstance(ends, int | float) else None,
                refused=str(entry.get("refused") or ""),
                **texts,
            )
