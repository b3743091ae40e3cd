"""Who was let in by a code: a stranger gets one, the operator approves it. Source: plugin contract §8.2.1, §12.2.

`HOME/pairing/` holds, per platform, `<platform>-pending.json` and `<platform>-approved.json`, and `_rate_limits.json`,
all 0600. A code is kept as a salted hash; who can read the folder cannot use it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.contracts.platform.state_file import change_json, read_json

__all__ = ["CODE_TTL_S", "FAILURES_ALLOWED", "LOCKOUT_S", "MAX_PENDING", "REQUEST_INTERVAL_S", "PairingStore"]

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Letters and digits that nobody takes for one another: no I, O, 0, 1."""
CODE_LENGTH = 8
CODE_TTL_S = 3600
"""A code that nobody approved is void after this."""
MAX_PENDING = 3
"""Codes of one platform that wait at a time."""
REQUEST_INTERVAL_S = 600
"""A person gets one code in this time."""
FAILURES_ALLOWED = 5
"""Wrong codes in a row; then the platform takes no approvals, and gives no codes, for `LOCKOUT_S`."""
LOCKOUT_S = 3600

PairingEntry = dict[str, Any]


class PairingStore:
    """The codes and the approved people of a home; several processes may use it at once.

    Args:
        profile: the profile whose home is meant; None is the present home, `default` the one the profiles lie in.

    Raises:
        ValueError: `profile` is no name of a profile.
    """

    def __init__(self, profile: str | None = None) -> None:
        self._folder = _home_of_profile(profile) / "pairing"

    def generate_code(self, platform: str, user_id: str, user_name: str = "") -> str | None:
        """Return a new code for a person, to be sent to them and approved by the operator.

        None: they asked less than `REQUEST_INTERVAL_S` ago, `MAX_PENDING` codes wait, or the platform is locked.
        """
        with change_json(self._limits) as limits:
            now = time.time()
            asked = f"{platform}:{user_id}"
            if _is_locked(limits, platform, now) or now - _number(limits.get(asked)) < REQUEST_INTERVAL_S:
                return None
            with change_json(self._file(platform, "pending")) as pending:
                _drop_expired(pending, now)
                if len(pending) >= MAX_PENDING:
                    return None
                code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
                salt = secrets.token_hex(16)
                entry = {"user_id": user_id, "user_name": user_name, "created_at": now, "salt": salt}
                pending[secrets.token_hex(4)] = {**entry, "hash": _hash_code(code, salt)}
            _drop_old(limits, now)
            limits[asked] = now
            return code

    def approve_code(self, platform: str, code: str) -> PairingEntry | None:
        """Let in the person who has a code, and return `user_id` and `user_name`.

        Args:
            code: the code, in any case, or the `request_id` of `list_pending`.

        None: nobody has it, it has expired, or the platform is locked after `FAILURES_ALLOWED` wrong ones.
        """
        with change_json(self._limits) as limits:
            now = time.time()
            if _is_locked(limits, platform, now):
                return None
            with change_json(self._file(platform, "pending")) as pending:
                _drop_expired(pending, now)
                found = _find_request(pending, code)
                entry = pending.pop(found) if found else None
            if entry is None:
                _count_failure(limits, platform, now)
                return None
            limits.pop(_failures(platform), None)
        person = {"user_id": str(entry["user_id"]), "user_name": str(entry.get("user_name") or "")}
        with change_json(self._file(platform, "approved")) as approved:
            approved[person["user_id"]] = {"user_name": person["user_name"], "approved_at": now}
        return person

    def is_approved(self, platform: str, user_id: str) -> bool:
        """Say whether a person was let in."""
        return str(user_id) in read_json(self._file(platform, "approved"))

    def revoke(self, platform: str, user_id: str) -> bool:
        """Take back what was approved; False when it never was."""
        with change_json(self._file(platform, "approved")) as approved:
            return approved.pop(str(user_id), None) is not None

    def list_approved(self, platform: str | None = None) -> list[PairingEntry]:
        """Return the people who were let in: `platform`, `user_id`, `user_name`, `approved_at` (seconds since 1970)."""
        return [
            {"platform": name, "user_id": user_id, **entry}
            for name in self._platforms(platform, "approved")
            for user_id, entry in read_json(self._file(name, "approved")).items()
            if isinstance(entry, dict)
        ]

    def list_pending(self, platform: str | None = None) -> list[PairingEntry]:
        """Return who waits: `platform`, `request_id`, `user_id`, `user_name`, `age_minutes`; no codes."""
        now = time.time()
        waiting = []
        for name in self._platforms(platform, "pending"):
            pending = read_json(self._file(name, "pending"))
            _drop_expired(pending, now)
            for request_id, entry in pending.items():
                who = {"user_id": entry.get("user_id", ""), "user_name": entry.get("user_name", "")}
                age = int((now - _number(entry.get("created_at"))) // 60)
                waiting.append({"platform": name, "request_id": request_id, **who, "age_minutes": age})
        return waiting

    def clear_pending(self, platform: str | None = None) -> int:
        """Void the codes that wait, and return how many there were."""
        count = 0
        for name in self._platforms(platform, "pending"):
            with change_json(self._file(name, "pending")) as pending:
                count += len(pending)
                pending.clear()
        return count

    @property
    def _limits(self) -> Path:
        return self._folder / "_rate_limits.json"

    def _file(self, platform: str, what: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", platform):
            raise ValueError(f"{platform!r} is no name of a platform: letters, digits, - and _")
        return self._folder / f"{platform}-{what}.json"

    def _platforms(self, platform: str | None, what: str) -> list[str]:
        if platform is not None:
            return [platform]
        end = f"-{what}.json"
        return sorted(file.name.removesuffix(end) for file in self._folder.glob(f"[!._]*{end}"))


def _home_of_profile(profile: str | None) -> Path:
    home = hermes_home()
    if profile is None:
        return home
    root = home.parent.parent if home.parent.name == "profiles" else home
    if profile == "default":
        return root
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile):
        raise ValueError(f"{profile!r} is no name of a profile: letters, digits, - and _")
    return root / "profiles" / profile


def _hash_code(code: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


def _find_request(pending: PairingEntry, said: str) -> str:
    """Return the id of the request that a code, or the id itself, belongs to; empty when there is none."""
    said = said.strip()
    if said.lower() in pending:
        return said.lower()
    for request_id, entry in pending.items():
        if secrets.compare_digest(_hash_code(said.upper(), str(entry.get("salt"))), str(entry.get("hash"))):
            return request_id
    return ""


def _drop_expired(pending: PairingEntry, now: float) -> None:
    for request_id, entry in list(pending.items()):
        if not isinstance(entry, dict) or not 0 <= now - _number(entry.get("created_at")) < CODE_TTL_S:
            del pending[request_id]


def _failures(platform: str) -> str:
    return f"_failures:{platform}"


def _lockout(platform: str) -> str:
    return f"_lockout:{platform}"


def _is_locked(limits: PairingEntry, platform: str, now: float) -> bool:
    return now < _number(limits.get(_lockout(platform)))


def _count_failure(limits: PairingEntry, platform: str, now: float) -> None:
    count = int(_number(limits.get(_failures(platform)))) + 1
    limits[_failures(platform)] = count
    if count >= FAILURES_ALLOWED:
        limits[_lockout(platform)] = now + LOCKOUT_S
        del limits[_failures(platform)]


def _drop_old(limits: PairingEntry, now: float) -> None:
    """Drop the times of those who may ask again."""
    for asked, at in list(limits.items()):
        if not asked.startswith("_") and now - _number(at) >= REQUEST_INTERVAL_S:
            del limits[asked]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
