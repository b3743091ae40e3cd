"""Model providers, their endpoints and keys, and the catalog of bundled and registered profiles.

A provider is its profile with the changes of the config. An endpoint is a provider with its base URL and a key; no text
about an endpoint shows the key.

A provider may have several keys (`providers.<name>.profiles`, logins). `credential_pool_strategies` sets their order. A
key that is rejected, has no credit or is used too often is paused (`models.client_pool`), and the next one is used.

Source: plugin contract §5.1, §8.1, §13 row 27.
"""

from __future__ import annotations

import functools
import logging
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.model_client import ClientProfile
from hermes_agent.contracts.model_provider import MODEL_PROVIDER, ProviderProfile, split_names
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import BUILTIN, Conflict, Registry, StoreGroup
from hermes_agent.core.secrecy import MASK
from hermes_agent.core.text import shorten
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.models.bundled import BUNDLED_ORDER, bundled_profile

CUSTOM = "custom"
"""The provider for any other server, at `model.base_url`."""
CHAT_COMPLETIONS = "chat_completions"
"""The wire protocol of most providers."""


@lazy_dataclass(frozen=True, slots=True)
class ModelProvider:
    """One provider: its profile, with the changes of the config."""

    profile: ProviderProfile = field(hash=False, repr=False)
    base_url: str = ""
    """Base URL of its API, without the final slash; "" if the config has to set it."""
    env_vars: tuple[str, ...] = ()
    """Variables of its key, best first; a name that ends in `_BASE_URL` overrides `base_url` instead."""
    needs_key: bool = True
    """False for a server of the user: requests without a key are allowed."""
    default_headers: tuple[tuple[str, str], ...] = ()
    """Name and value of additional headers."""
    default_model: str = ""
    """Model that is used if none is named; "" requires a name."""
    api_mode: str = CHAT_COMPLETIONS
    """Its wire protocol."""
    cache_ttl: str = "5m"
    """Lifetime of a marked prompt prefix in the provider's cache, in its words."""

    @property
    def name(self) -> str:
        """Value of `model.provider` that selects it."""
        return self.profile.name

    @property
    def display_name(self) -> str:
        """Name in the middle of a sentence."""
        return self.profile.display_name or self.profile.name

    @property
    def display_name_at_start(self) -> str:
        """`display_name` at the beginning of a sentence; a name keeps its case (`xAI`, `vLLM`)."""
        return _at_start(self.display_name)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Variables that may hold its key, best first."""
        return tuple(name for name in self.env_vars if not name.endswith("_BASE_URL"))

    @property
    def base_url_names(self) -> tuple[str, ...]:
        """Names of variables that override its address."""
        return tuple(name for name in self.env_vars if name.endswith("_BASE_URL"))

    @property
    def signs_requests(self) -> bool:
        """Its profile signs requests that have no key."""
        return type(self.profile).sign is not ProviderProfile.sign

    @property
    def cache_mark(self) -> dict[str, str]:
        """Mark at the end of a prefix for Claude's cache; without a lifetime it is 5 minutes."""
        return {"type": "ephemeral"} | ({"ttl": self.cache_ttl} if self.cache_ttl != "5m" else {})


def _at_start(name: str) -> str:
    return f"T{name[1:]}" if name.startswith("the ") else name


def _with_client(profile: ProviderProfile) -> ProviderProfile:
    """Return the profile of a program as one that brings its client; any other profile unchanged."""
    if not profile.process_command or isinstance(profile, ClientProfile):
        return profile
    from hermes_agent.models.process_profile import profile_of_program  # few providers are programs

    return profile_of_program(profile)


def provider_from_profile(profile: ProviderProfile) -> ModelProvider:
    """Return the provider of a profile; that of a program brings its own client."""
    profile = _with_client(profile)
    provider = ModelProvider(
        profile,
        profile.base_url.rstrip("/"),
        tuple(profile.env_vars),
        default_headers=_headers(profile.default_headers),
        default_model=profile.default_model,
        api_mode=profile.api_mode or CHAT_COMPLETIONS,
    )
    has_key = bool(provider.key_names) and not _is_local_address(profile.base_url)
    return replace(provider, needs_key=profile.needs_key and has_key)


def _headers(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(k), str(v)) for k, v in given.items())


@functools.lru_cache(maxsize=256)
def _is_local_address(base_url: str) -> bool:
    """Return whether a URL leads to this machine."""
    try:
        return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def provider_from_config(name: str, entry: Mapping[str, Any], known: ModelProvider | None = None) -> ModelProvider:
    """Return the provider that an entry of the config's `providers` describes.

    Args:
        name: its key there.
        entry: `base_url`, `api_key_env`, `default_model`, `headers`; an empty value changes nothing.
        known: the provider that the entry changes; None for a provider of the operator's own.
    """
    own_key = str(entry.get("api_key_env") or entry.get("key_env") or "")
    if known is None:
        own_key = own_key or re.sub(r"\W", "_", name).upper() + "_API_KEY"
        known = provider_from_profile(ProviderProfile(name, needs_key=False, has_own_models=True))
    return replace(
        known,
        base_url=str(entry.get("base_url") or known.base_url),
        env_vars=((own_key,) if own_key else ()) + known.env_vars,
        default_headers=known.default_headers + _headers(entry.get("headers") or {}),
        default_model=str(entry.get("default_model") or known.default_model),
    )


LONGEST_QUOTE = 300
"""Longest text of a provider in a message, in characters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


@lazy_dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A provider with its base URL and a key."""

    provider: ModelProvider
    base_url: str
    """Absolute, `http` or `https`, without the final slash."""
    key: str = field(default="", repr=False)
    """Empty when there is none."""
    key_name: str = ""
    """Name of the credential that holds the key; "" without a key."""
    login: str = ""
    """The login that supplies a token in place of a key; it is read for each request, since it expires."""

    @property
    def client_profile(self) -> ClientProfile | None:
        """The provider's profile if it brings its own client, else None."""
        return self.provider.profile if isinstance(self.provider.profile, ClientProfile) else None

    @property
    def host(self) -> str:
        """Host and port of `base_url`, for messages."""
        parts = urlsplit(self.base_url)
        host = parts.hostname or self.base_url
        return f"{host}:{parts.port}" if parts.port else host

    @property
    def display_name(self) -> str:
        """The provider in words: `OpenAI (api.openai.com)`."""
        return f"{self.provider.display_name} ({self.host})"

    @property
    def display_name_at_start(self) -> str:
        """`display_name` at the beginning of a sentence."""
        return _at_start(self.display_name)

    @property
    def is_own_server(self) -> bool:
        """Whether it is a server of the user on this machine (Ollama, LM Studio, …)."""
        return _is_local_address(self.provider.profile.base_url) and _is_local_address(self.base_url)

    @property
    def public_url(self) -> str:
        """`base_url` without user, password and query, which may be secret."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{self.host}{parts.path}"

    def quote(self, text: str, limit: int = LONGEST_QUOTE) -> str:
        """Return a text of the provider on one line, without secrets, of at most `limit` characters."""
        if self.key:
            text = text.replace(self.key, MASK)
        text = _CONTROL.sub(" ", redactor(text)).strip()
        return shorten(text, limit)


DEFAULT_PROFILE = "default"
"""Name of the key that is used if no other is named."""


def list_key_profiles(providers: Any, logins: LoginStore) -> list[str]:
    """Return the names in the config's block `providers` and those of logins, `default` first."""
    entries = providers.values() if isinstance(providers, Mapping) else ()
    names = {name for entry in entries for name in _profiles(entry)} | {login.label for login in logins.entries()}
    return [DEFAULT_PROFILE, *sorted(names - {DEFAULT_PROFILE})]


def find_profile_key(
    provider: str, entry: Mapping[str, Any], profile: str, credentials: Credentials, logins: LoginStore
) -> tuple[str, str] | None:
    """Return the variable of a key profile and its value, or None for the default key.

    Args:
        entry: the provider's settings at `providers.<name>`.
        logins: for the list of known profiles in an error.

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
    """Rotation of keys; one object for the life of the process."""

    def __init__(self) -> None:
        self._used: Counter[ModelEndpoint] = Counter()

    def in_rotation(self, keys: Sequence[ModelEndpoint], strategy: str) -> list[ModelEndpoint]:
        """Return the endpoints of a provider, one for each key, in the order of use.

        A conversation stays with the first, for the provider's prompt cache.

        Args:
            strategy: `fill_first` (the first while it works), `round_robin`, `random`, `least_used`.
        """
        if strategy == "random":
            return random.sample(keys, len(keys))
        if strategy not in ("round_robin", "least_used"):
            return list(keys)
        # round robin: the next key is always the least used
        found = sorted(keys, key=self._used.__getitem__)
        self._used[found[0]] += 1
        return found


logger = logging.getLogger(__name__)


class ProviderCatalog(StoreGroup):
    """Provider profiles by name and alias.

    The profile of a plugin replaces a bundled one of its name; of two plugins the first one wins. A bundled profile is
    read when its name is used, and all are read for an alias, a host or the list.
    """

    def __init__(self) -> None:
        self._entries: Registry[ProviderProfile] = Registry(MODEL_PROVIDER.label)
        self.refusals: list[Conflict] = []
        """Profiles that `providers.register_provider` rejected, since their names are taken."""

    def register(self, profile: ProviderProfile, owner: str) -> str:
        """Register a profile and return its name.

        Raises:
            Conflict: another plugin has the name, or the agent has it and no plugin owns the code.
            ValueError: the profile has no usable name.
        """
        name = profile.name.strip().lower() if isinstance(profile.name, str) else ""
        if not name:
            raise ValueError(
                f"a {MODEL_PROVIDER.label} needs a name: {type(profile).__name__}.name is {profile.name!r}"
            )
        if name in BUNDLED_ORDER and not owner:
            raise Conflict(MODEL_PROVIDER.label, name, BUILTIN, owner)
        for field_name in split_names(profile):
            logger.warning("model provider `%s`: %s is one text: taken as one name", name, field_name)
        self._entries.add(name, profile, owner=owner)
        if name in BUNDLED_ORDER:
            logger.warning("the model provider `%s` of plugin `%s` replaces the bundled one", name, owner)
        return name

    def withdraw(self, name: str, profile: ProviderProfile) -> bool:
        """Remove one registration by its profile; return whether it was there. What it had replaced returns."""
        return self._entries.withdraw(name, profile)

    def profile(self, name: str) -> ProviderProfile | None:
        """Return the profile with this name or alias, in any case; names go before aliases."""
        wanted = name.strip().lower()
        found = self._entries.get(wanted)
        if found is not None:
            return found
        if wanted in BUNDLED_ORDER:
            return bundled_profile(wanted)
        own = [profile for _, profile in self._entries.items()]
        return next((p for p in (*own, *self.profiles()) if wanted in p.aliases), None)

    def get(self, name: str) -> ModelProvider | None:
        """Return the provider with this name or alias."""
        found = self.profile(name)
        return None if found is None else provider_from_profile(found)

    def profiles(self) -> list[ProviderProfile]:
        """Return every profile: bundled ones (or their replacements) in their order, then the others."""
        registered = dict(self._entries.items())
        bundled = [registered.pop(name) if name in registered else bundled_profile(name) for name in BUNDLED_ORDER]
        return [*bundled, *registered.values()]

    def providers(self) -> list[ModelProvider]:
        """Return every provider, in the order of `profiles`."""
        return [provider_from_profile(profile) for profile in self.profiles()]

    def client_profiles(self) -> list[ClientProfile]:
        """Return the profiles that bring their own client, in the order of `profiles`."""
        found = map(_with_client, self.profiles())
        return [profile for profile in found if isinstance(profile, ClientProfile)]

    def names(self) -> list[str]:
        """Return every name, without reading profiles."""
        return [*BUNDLED_ORDER, *(name for name in self._entries.names() if name not in BUNDLED_ORDER)]

    def find_by_url(self, base_url: str) -> ModelProvider | None:
        """Return the provider that runs the host of `base_url`, or None."""
        try:
            host = urlsplit(base_url).hostname or ""
        except ValueError:
            return None
        found = (provider_from_profile(profile) for profile in self.profiles() if host and _hostname(profile) == host)
        return next((provider for provider in found if provider.needs_key), None)

    def owner(self, name: str) -> str | None:
        """Return the owner of a profile: a plugin's key, or `builtin`."""
        return self._entries.owner(name) or (BUILTIN if name in BUNDLED_ORDER else None)


def _hostname(profile: ProviderProfile) -> str:
    try:
        return profile.get_hostname()
    except Exception as exc:  # noqa: BLE001 - a plugin's code: one that fails must not hide the others
        logger.warning("model provider: no host: `%s`: %s: %s", profile.name, type(exc).__name__, exc)
        return ""
