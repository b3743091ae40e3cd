"""What a plugin may choose when it asks the model. Source: plugin contract §5.4; the texts are word for word."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.config import load, stamp
from hermes_agent.core.errors import ConfigError
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.models.keys import list_key_profiles

__all__ = ["LlmPermissions", "Overrides", "PluginLlmTrustError", "check_overrides", "known_profile"]

logger = logging.getLogger(__name__)


class PluginLlmTrustError(PermissionError):
    """A plugin wants to choose what the operator did not let it choose."""


class Overrides(NamedTuple):
    """What a call wants to be other than the operator's choice; empty where it wants nothing."""

    provider: str
    model: str
    agent_id: str
    profile: str

    @classmethod
    def of(cls, *wanted: str | None) -> Overrides:
        """Read the four arguments of a call; None and blanks want nothing."""
        return cls(*(str(value or "").strip() for value in wanted))


_OVERRIDE_VERBS = {
    "provider": "override the provider",
    "model": "override the model",
    "agent_id": "run completions against a non-default agent id",
    "profile": "override the auth profile",
}


def check_overrides(plugin_id: str, policy: Mapping[str, Any], wanted: Overrides) -> None:
    """Let the call pass, or not.

    Args:
        policy: `plugins.entries.<plugin id>.llm`.

    Raises:
        PluginLlmTrustError: it wants something that is not allowed.
    """
    place = f"plugins.entries.{plugin_id}.llm"
    for name, doing in _OVERRIDE_VERBS.items():
        value = getattr(wanted, name)
        if value and policy.get(f"allow_{name}_override") is not True:
            raise PluginLlmTrustError(
                f"Plugin '{plugin_id}' cannot {doing} (set {place}.allow_{name}_override to true to allow)."
            )
        allowed = policy.get(f"allowed_{name}s") if value and name in ("provider", "model") else None
        if not isinstance(allowed, list):  # no list lets anything pass; an empty one nothing
            continue
        names = {str(each).strip().lower() for each in allowed}
        if "*" not in names and value.lower() not in names:
            raise PluginLlmTrustError(
                f"Plugin '{plugin_id}' {name} override '{value}' is not in {place}.allowed_{name}s."
            )


def known_profile(name: str, values: Mapping[str, Any], logins: LoginStore) -> None:
    """Check the name of a credential.

    Args:
        values: the effective config; `providers.<name>.profiles` names the credentials.
        logins: those that were stored by signing in, each with its name.

    Raises:
        ValueError: no provider has a credential of that name.
    """
    known = list_key_profiles(values.get("providers"), logins) if name else ()
    if name and name not in known:
        raise ValueError(f"unknown auth profile {name!r}; known: {', '.join(known)}")


class LlmPermissions:
    """The permissions of one plugin as the config's files have them now: taking one back needs no restart.

    Args:
        home: whose config.
        plugin_id: key in `plugins.entries`.
    """

    def __init__(self, home: Path, plugin_id: str) -> None:
        self._home = home
        self._plugin_id = plugin_id
        self._known: tuple[object, Mapping[str, Any]] | None = None

    def read(self) -> Mapping[str, Any]:
        """Return `plugins.entries.<plugin id>.llm`; the files are read when one of them has changed.

        While one is broken nothing is allowed.
        """
        now = stamp(self._home)
        if self._known is None or self._known[0] != now:
            self._known = (now, self._load())
        return self._known[1]

    def _load(self) -> Mapping[str, Any]:
        try:
            found: Any = load(self._home).values
        except ConfigError as exc:
            logger.warning("the config is broken: plugin %s may choose nothing for the model: %s", self._plugin_id, exc)
            return {}
        for key in ("plugins", "entries", self._plugin_id, "llm"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}
