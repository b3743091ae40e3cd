"""The keys of a provider: those with a name (`providers.<name>.profiles`), and in which order several are used.

By `credential_pool_strategies` the first one that does not rest is used (`models.chosen.Health`); a key that its
provider does not accept, that has no credit or is used too often rests, and the next one takes its place.

Source: plugin contract §5.1, §13 row 27.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.core.redact import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.models.providers import ModelEndpoint

__all__ = ["DEFAULT_PROFILE", "KeyPools", "list_key_profiles", "find_profile_key"]

DEFAULT_PROFILE = "default"
"""Name of the key that a provider has anyway."""


def list_key_profiles(providers: Any, logins: LoginStore) -> list[str]:
    """Return the names in the config's block `providers` and those of logins, `default` first."""
    entries = providers.values() if isinstance(providers, Mapping) else ()
    names = {name for entry in entries for name in _profiles(entry)} | {login.label for login in logins.entries()}
    return [DEFAULT_PROFILE, *sorted(names - {DEFAULT_PROFILE})]


def find_profile_key(
    provider: str, entry: Mapping[str, Any], profile: str, credentials: Credentials, logins: LoginStore
) -> tuple[str, str] | None:
    """Return the variable of a profile and the key that it holds; None for the usual key.

    Args:
        entry: the provider's settings at `providers.<name>`.
        logins: further ones, for the list of those that are known.

    Raises:
        ValueError: the provider has no such profile.
        UserError: its variable has no value.
    """
    names = _profiles(entry)
    if profile in ("", DEFAULT_PROFILE) and profile not in names:
        return None
    if profile not in names:
        known = ", ".join((DEFAULT_PROFILE, *sorted({*names, *(login.label for login in logins.entries(provider))})))
        raise ValueError(f"unknown auth profile {profile!r} of provider {provider!r}; known: {known}")
    key = (credentials.get(names[profile]) or "").strip()
    if not key:
        raise UserError(
            f"The auth profile {profile!r} of {provider} has no key: {names[profile]} has no value.",
            hint=f"Put {names[profile]}=… into the file .env of the home, or give a systemd credential of that name.",
        )
    redactor.learn([key])
    return names[profile], key


def _profiles(entry: Any) -> Mapping[str, str]:
    profiles = entry.get("profiles") if isinstance(entry, Mapping) else None
    return {str(k): str(v) for k, v in profiles.items()} if isinstance(profiles, Mapping) else {}


class KeyPools:
    """Whose turn it is; lives as long as the process."""

    def __init__(self) -> None:
        self._used: Counter[ModelEndpoint] = Counter()

    def in_rotation(self, keys: Sequence[ModelEndpoint], strategy: str) -> list[ModelEndpoint]:
        """Return a provider's endpoint with each of its keys, the one to use first at the front.

        A conversation keeps to it, for the provider's prompt cache.

        Args:
            strategy: `fill_first` (the first as long as it works), `round_robin`, `random`, `least_used`.
        """
        if strategy == "random":
            return random.sample(keys, len(keys))
        if strategy not in ("round_robin", "least_used"):
            return list(keys)
        # in turns, each one is the least used one when it is its turn
        found = sorted(keys, key=self._used.__getitem__)
        self._used[found[0]] += 1
        return found
