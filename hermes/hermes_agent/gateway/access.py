"""Access of chat users to the agent: pairing codes, allow lists, and rights to run commands.

By default no one may use the agent. Users whom the operator allowed individually may run every command. Users of a
platform that is open to all may neither approve nor change settings, until the operator names them.

`HOME/pairing/` holds `<platform>-pending.json` and `<platform>-approved.json` for each platform, and
`_rate_limits.json`, all with mode 0600. A code is stored as a salted hash only. Source: plugin contract §8.2.1, §12.2.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from hermes_agent.adapters.config import PlatformConfig, PlatformEntry
from hermes_agent.adapters.events import SessionSource
from hermes_agent.config import hermes_home
from hermes_agent.config.home import root_home
from hermes_agent.contracts.command import Right
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import JsonFile

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Letters and digits without the ambiguous I, O, 0 and 1."""
CODE_LENGTH = 8
CODE_TTL_S = 3600
"""Seconds after which a code that was not approved expires."""
MAX_PENDING = 3
"""Largest number of pending codes of a platform."""
REQUEST_INTERVAL_S = 600
"""A user gets one code in this time."""
FAILURES_ALLOWED = 5
"""Wrong codes in a row, after which the platform accepts and creates no codes for `LOCKOUT_S`."""
LOCKOUT_S = 3600

PairingEntry = dict[str, Any]


class PairingStore:
    """Pairing codes and approved users of a home; several processes may use it in parallel.

    Args:
        profile: a profile; None is the present home, `default` the home that contains the profiles.

    Raises:
        ValueError: `profile` is no valid name.
    """

    def __init__(self, profile: str | None = None) -> None:
        self._folder = _home_of_profile(profile) / "pairing"

    @classmethod
    def of_home(cls, home: Path) -> PairingStore:
        """Return the store of any home."""
        store = cls()
        store._folder = home / "pairing"
        return store

    def generate_code(self, platform: str, user_id: str, user_name: str = "") -> str | None:
        """Return a new code for a user, which the operator approves.

        Return None if the last code is younger than `REQUEST_INTERVAL_S`, `MAX_PENDING` codes are pending, or the
        platform is locked.
        """
        with self._limits.change() as limits:
            now = time.time()
            asked = f"{platform}:{user_id}"
            if _is_locked(limits, platform, now) or now - _number(limits.get(asked)) < REQUEST_INTERVAL_S:
                return None
            with self._file(platform, "pending").change() as pending:
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
        """Approve the user with a code; return `user_id` and `user_name`.

        Args:
            code: the code in any case, or the `request_id` of `list_pending`.

        Return None if the code is unknown or expired, or the platform is locked after `FAILURES_ALLOWED` wrong codes.
        """
        with self._limits.change() as limits:
            now = time.time()
            if _is_locked(limits, platform, now):
                return None
            with self._file(platform, "pending").change() as pending:
                _drop_expired(pending, now)
                found = _find_request(pending, code)
                entry = pending.pop(found) if found else None
            if entry is None:
                _count_failure(limits, platform, now)
                return None
            limits.pop(_failures(platform), None)
        person = {"user_id": str(entry["user_id"]), "user_name": str(entry.get("user_name") or "")}
        with self._file(platform, "approved").change() as approved:
            approved[person["user_id"]] = {"user_name": person["user_name"], "approved_at": now}
        return person

    def approve(self, platform: str, user_id: str, user_name: str = "", *, approved_at: float = 0.0) -> None:
        """Approve a user without a code; the approval of an approved user stays as it is."""
        with self._file(platform, "approved").change() as approved:
            approved.setdefault(str(user_id), {"user_name": user_name, "approved_at": approved_at or time.time()})

    def is_approved(self, platform: str, user_id: str) -> bool:
        """Return whether a user is approved."""
        return str(user_id) in self._file(platform, "approved").read()

    def revoke(self, platform: str, user_id: str) -> bool:
        """Revoke the approval of a user; return whether there was one."""
        with self._file(platform, "approved").change() as approved:
            return approved.pop(str(user_id), None) is not None

    def list_approved(self, platform: str | None = None) -> list[PairingEntry]:
        """Return the approved users: `platform`, `user_id`, `user_name`, `approved_at` (seconds since 1970)."""
        return [
            {"platform": name, "user_id": user_id, **entry}
            for name in self._platforms(platform, "approved")
            for user_id, entry in self._file(name, "approved").read().items()
            if isinstance(entry, dict)
        ]

    def list_pending(self, platform: str | None = None) -> list[PairingEntry]:
        """Return the requests: `platform`, `request_id`, `user_id`, `user_name`, `age_minutes`; no codes."""
        now = time.time()
        waiting = []
        for name in self._platforms(platform, "pending"):
            pending = self._file(name, "pending").read()
            _drop_expired(pending, now)
            for request_id, entry in pending.items():
                user = {"user_id": entry.get("user_id", ""), "user_name": entry.get("user_name", "")}
                age = int((now - _number(entry.get("created_at"))) // 60)
                waiting.append({"platform": name, "request_id": request_id, **user, "age_minutes": age})
        return waiting

    def clear_pending(self, platform: str | None = None) -> int:
        """Delete the pending codes and return their number."""
        count = 0
        for name in self._platforms(platform, "pending"):
            with self._file(name, "pending").change() as pending:
                count += len(pending)
                pending.clear()
        return count

    @property
    def _limits(self) -> JsonFile:
        return JsonFile(self._folder / "_rate_limits.json")

    def _file(self, platform: str, what: str) -> JsonFile:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", platform):
            raise ValueError(f"{platform!r} is no valid name of a platform: use letters, digits, - and _")
        return JsonFile(self._folder / f"{platform}-{what}.json")

    def _platforms(self, platform: str | None, what: str) -> list[str]:
        if platform is not None:
            return [platform]
        end = f"-{what}.json"
        return sorted(file.name.removesuffix(end) for file in self._folder.glob(f"[!._]*{end}"))


def _home_of_profile(profile: str | None) -> Path:
    if profile is None:
        return hermes_home()
    root = root_home()
    if profile == "default":
        return root
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile):
        raise ValueError(f"{profile!r} is no valid name of a profile: use letters, digits, - and _")
    return root / "profiles" / profile


def _hash_code(code: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


def _find_request(pending: PairingEntry, text: str) -> str:
    """Return the id of the request with a code or id; "" if there is none."""
    text = text.strip()
    if text.lower() in pending:
        return text.lower()
    for request_id, entry in pending.items():
        if secrets.compare_digest(_hash_code(text.upper(), str(entry.get("salt"))), str(entry.get("hash"))):
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
    """Delete the times after which a user may request another code."""
    for asked, at in list(limits.items()):
        if not asked.startswith("_") and now - _number(at) >= REQUEST_INTERVAL_S:
            del limits[asked]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


By = Literal["", "pairing", "list", "role", "platform", "everybody"]

ANYONE = "*"


class Admission(LazyNamedTuple):
    """Whether a user may use the agent, and by which rule."""

    by: By
    """Empty: not allowed. `role` and `platform`: rules of the service; `everybody`: open to all users."""

    @property
    def is_allowed(self) -> bool:
        """Whether the user may use the agent."""
        return bool(self.by)

    @property
    def is_known(self) -> bool:
        """Whether the operator allowed the user individually."""
        return self.by in ("pairing", "list", "role")


class AccessControl:
    """Access rules of all platforms. Reads files, so it must not run on the core loop.

    Args:
        entry: returns the registration of a platform.
        environ: environment variables, read for each message.
    """

    def __init__(
        self, entry: Callable[[str], PlatformEntry | None], pairing: PairingStore, environ: Mapping[str, str]
    ) -> None:
        self._entry = entry
        self._pairing = pairing
        self._environ = environ

    def admit(self, source: SessionSource, config: PlatformConfig, adapter: Any = None) -> Admission:
        """Return the rule that allows a sender. A bot must be named."""
        platform = source.platform.value
        ids = {person for person in (source.user_id, source.user_id_alt) if person}
        if any(self._pairing.is_approved(platform, person) for person in sorted(ids)):
            return Admission("pairing")
        listed = self._listed(platform, config)
        if ids & listed:
            return Admission("list")
        if source.is_bot:
            return Admission("")
        if source.role_authorized:
            return Admission("role")
        if not ids:
            return Admission("")
        if ANYONE in listed or self._is_open(platform, config):
            return Admission("everybody")
        if not listed and _is_on(self._environ.get("GATEWAY_ALLOW_ALL_USERS", "")):
            return Admission("everybody")
        entry, rules = self._entry(platform), ("enforces_own_access_policy", "authorization_is_upstream")
        if (entry and entry.trusted_inbound) or any(getattr(adapter, rule, False) is True for rule in rules):
            return Admission("platform")
        return Admission("")

    def variables(self, platform: str) -> tuple[str, str]:
        """Return the variables that list the allowed users, and that allow all users."""
        entry = self._entry(platform)
        start = platform.upper().replace("-", "_")
        allowed = (entry.allowed_users_env if entry else "") or f"{start}_ALLOWED_USERS"
        return allowed, (entry.allow_all_env if entry else "") or f"{start}_ALLOW_ALL_USERS"

    def _listed(self, platform: str, config: PlatformConfig) -> set[str]:
        own, _ = self.variables(platform)
        texts = (self._environ.get(own, ""), self._environ.get("GATEWAY_ALLOWED_USERS", ""))
        return {*_ids(config.extra.get("allow_from")), *(item for text in texts for item in _ids(text))}

    def _is_open(self, platform: str, config: PlatformConfig) -> bool:
        return _is_on(self._environ.get(self.variables(platform)[1], "")) or config.extra.get("allow_all_users") is True


def may_run_command(
    command: str, right: Right, source: SessionSource, admission: Admission, config: PlatformConfig
) -> bool:
    """Return whether a user may run a command.

    `platforms.<name>.allow_admin_from` lists the users who may run all of them; the others then have those of
    `user_allowed_commands`. In groups the keys begin with `group_`. Without such a list `right` decides.

    Args:
        command: its name, not an alias.
    """
    if right == "always":
        return True
    start = "" if source.chat_type == "dm" else "group_"
    admins = config.extra.get(f"{start}allow_admin_from")
    if admins is None:
        return admission.is_known or right != "known"
    if {source.user_id, source.user_id_alt} & set(_ids(admins)):
        return True
    return command in {
        str(name).lstrip("/").lower() for name in _ids(config.extra.get(f"{start}user_allowed_commands"))
    }


def principal(source: SessionSource) -> str:
    """Return the principal of a user in all chats: `platform:user`."""
    return f"{source.platform.value}:{source.user_id_alt or source.user_id or source.chat_id}"


def _ids(value: Any) -> Iterable[str]:
    """Return the ids of a list, or of a text separated by commas."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple, set)) else ()
    if isinstance(value, int) and not isinstance(value, bool):
        given = [value]
    return [text for item in given if (text := str(item).strip())]


def _is_on(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
