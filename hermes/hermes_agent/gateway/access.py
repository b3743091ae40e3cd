"""Who may talk to the agent on a chat platform, and which commands they may give. Source: plugin contract §8.2.1.

Nobody may, unless something lets them in. Who was let in by name may give every command; who came through a door that
is open for everybody may not approve, nor change how the agent works, until the operator names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from hermes_agent.contracts.platform.entry import PlatformEntry
from hermes_agent.contracts.platform.pairing import PairingStore
from hermes_agent.contracts.platform.settings import PlatformConfig
from hermes_agent.contracts.platform.source import SessionSource

__all__ = ["ADMIN_COMMANDS", "AccessControl", "Admission", "may_run_command", "principal"]

By = Literal["", "pairing", "list", "role", "platform", "everybody"]

ANYONE = "*"
ALWAYS_ALLOWED = frozenset({"help", "whoami", "status", "stop", "deny"})
"""Commands that whoever may talk may give."""
ADMIN_COMMANDS = frozenset({"approve", "model", "plugins", "restart", "rollback", "sethome"})
"""Commands that want somebody who is known by name."""


class Admission(NamedTuple):
    """Whether somebody may talk, and what let them in."""

    by: By
    """Empty: nothing did. `role` and `platform`: the service's own rules; `everybody`: a door without a list."""

    @property
    def is_allowed(self) -> bool:
        """Whether they may talk."""
        return bool(self.by)

    @property
    def is_known(self) -> bool:
        """Whether they were let in one by one."""
        return self.by in ("pairing", "list", "role")


class AccessControl:
    """The doors of all platforms. It reads files: not for the core loop.

    Args:
        entry: what a plugin said of a platform.
        environ: read at each message.
    """

    def __init__(
        self, entry: Callable[[str], PlatformEntry | None], pairing: PairingStore, environ: Mapping[str, str]
    ) -> None:
        self._entry = entry
        self._pairing = pairing
        self._environ = environ

    def admit(self, source: SessionSource, config: PlatformConfig, adapter: Any = None) -> Admission:
        """Return what lets a sender in. A bot is let in by name alone."""
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
        rules = ("enforces_own_access_policy", "authorization_is_upstream")
        if any(getattr(adapter, rule, False) is True for rule in rules):
            return Admission("platform")
        return Admission("")

    def variables(self, platform: str) -> tuple[str, str]:
        """Return the variable that lists who may talk, and the one that lets everybody."""
        entry = self._entry(platform)
        start = platform.upper().replace("-", "_")
        allowed = (entry.allowed_users_env if entry else "") or f"{start}_ALLOWED_USERS"
        return allowed, (entry.allow_all_env if entry else "") or f"{start}_ALLOW_ALL_USERS"

    def _listed(self, platform: str, config: PlatformConfig) -> set[str]:
        own, _ = self.variables(platform)
        texts = (self._environ.get(own, ""), self._environ.get("GATEWAY_ALLOWED_USERS", ""))
        return {*_ids(config.extra.get("allow_from")), *(one for text in texts for one in _ids(text))}

    def _is_open(self, platform: str, config: PlatformConfig) -> bool:
        return _is_on(self._environ.get(self.variables(platform)[1], "")) or config.extra.get("allow_all_users") is True


def may_run_command(
    command: str, source: SessionSource, admission: Admission, config: PlatformConfig, *, strict: bool = False
) -> bool:
    """Say whether somebody may give a command.

    `platforms.<name>.allow_admin_from` lists who may give all of them; the others then have those of
    `user_allowed_commands`. In groups the keys begin with `group_`. Without such a list, who is known by name may
    give all, and the others all but `ADMIN_COMMANDS`.

    Args:
        command: its canonical name.
        strict: it is like one of `ADMIN_COMMANDS`.
    """
    if command in ALWAYS_ALLOWED:
        return True
    start = "" if source.chat_type == "dm" else "group_"
    admins = config.extra.get(f"{start}allow_admin_from")
    if admins is None:
        return admission.is_known or not (strict or command in ADMIN_COMMANDS)
    if {source.user_id, source.user_id_alt} & set(_ids(admins)):
        return True
    return command in {
        str(name).lstrip("/").lower() for name in _ids(config.extra.get(f"{start}user_allowed_commands"))
    }


def principal(source: SessionSource) -> str:
    """Return who somebody is across chats: `platform:user`."""
    return f"{source.platform.value}:{source.user_id_alt or source.user_id or source.chat_id}"


def _ids(value: Any) -> Iterable[str]:
    """Return the ids of a list, or of a text with commas."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple, set)) else ()
    if isinstance(value, int) and not isinstance(value, bool):
        given = [value]
    return [text for one in given if (text := str(one).strip())]


def _is_on(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
