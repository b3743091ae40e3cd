"""Where requests go: a provider as its profile (plugin contract §8.1) and the config say it, its address and a key.

Texts about an endpoint never show the key.

The keys of a provider: those with a name (`providers.<name>.profiles`), and in which order several are used.

By `credential_pool_strategies` the first one that does not rest is used (`models.chosen.Health`); a key that its
provider does not accept, that has no credit or is used too often rests, and the next one takes its place.

Source: plugin contract §5.1, §13 row 27.

Which providers there are: the bundled profiles, and those that plugins registered. Source: plugin contract §8.1.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.model_client import ClientProfile
from hermes_agent.contracts.model_provider import MODEL_PROVIDER, ProviderProfile
from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import BUILTIN, Conflict, Registry, StoreGroup
from hermes_agent.core.secrecy import MASK
from hermes_agent.core.text import shorten
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.models.bundled import BUNDLED_ORDER, bundled_profile

CUSTOM = "custom"
"""Any other server, at `model.base_url`."""
CHAT_COMPLETIONS = "chat_completions"
"""The wire protocol of most."""


@dataclass(frozen=True, slots=True)
class ModelProvider:
    """One provider: its profile, and what the config says otherwise."""

    profile: ProviderProfile = field(hash=False, repr=False)
    base_url: str = ""
    """Address of its API, without the final slash; empty when the operator has to say it."""
    env_vars: tuple[str, ...] = ()
    """Names of its key, best first; one that ends in `_BASE_URL` overrides `base_url` instead."""
    needs_key: bool = True
    """False for a server of one's own: a request without a key is tried."""
    default_headers: tuple[tuple[str, str], ...] = ()
    """Name and value of headers that each request gets."""
    default_model: str = ""
    """Model to take when none is named; empty asks for one."""
    api_mode: str = CHAT_COMPLETIONS
    """Its wire protocol."""
    cache_ttl: str = "5m"
    """How long a prompt prefix that is marked lives in the provider's cache, in its words."""

    @property
    def name(self) -> str:
        """Value of `model.provider` that selects it."""
        return self.profile.name

    @property
    def display_name(self) -> str:
        """As it stands in the middle of a sentence."""
        return self.profile.display_name or self.profile.name

    @property
    def display_name_at_start(self) -> str:
        """`display_name` at the beginning of a sentence; a name keeps its case (`xAI`, `vLLM`)."""
        return _at_start(self.display_name)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of credentials that may hold its key, best first."""
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
        """What marks the end of a prefix for Claude's cache; without a time it lives 5 minutes."""
        return {"type": "ephemeral"} | ({"ttl": self.cache_ttl} if self.cache_ttl != "5m" else {})


def _at_start(name: str) -> str:
    return f"T{name[1:]}" if name.startswith("the ") else name


def provider_from_profile(profile: ProviderProfile) -> ModelProvider:
    """Return a profile as requests are made of it."""
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


def _is_local_address(base_url: str) -> bool:
    """Say whether an address is this machine's."""
    try:
        return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def provider_from_config(name: str, entry: Mapping[str, Any], known: ModelProvider | None = None) -> ModelProvider:
    """Return the provider that an entry of the config's `providers` describes.

    Args:
        name: its key there.
        entry: `base_url`, `api_key_env`, `default_model`, `headers`; what is empty changes nothing.
        known: the provider of that name, which the entry changes; None when it is the operator's own.
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
"""Characters of somebody else's text that a message of ours may bear."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """One provider as this process uses it."""

    provider: ModelProvider
    base_url: str
    """Absolute, `http` or `https`, without the final slash."""
    key: str = field(default="", repr=False)
    """Empty when there is none."""
    key_name: str = ""
    """Which credential the key is from; empty when there is none."""
    login: str = ""
    """The login whose token stands for the key; it is asked for with each request, since it ends."""

    @property
    def client_profile(self) -> ClientProfile | None:
        """The provider's profile if it brings its own client, else None."""
        return self.provider.profile if isinstance(self.provider.profile, ClientProfile) else None

    @property
    def host(self) -> str:
        """Host and port of `base_url`: what may stand in a message."""
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
        """Whether the provider is by its nature a server of one's own on this machine (Ollama, LM Studio, …)."""
        return _is_local_address(self.provider.profile.base_url) and _is_local_address(self.base_url)

    @property
    def public_url(self) -> str:
        """`base_url` without what could be secret: user, password, query."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{self.host}{parts.path}"

    def quote(self, text: str, limit: int = LONGEST_QUOTE) -> str:
        """Return somebody else's text on one line, without secrets, of at most `limit` characters."""
        if self.key:
            text = text.replace(self.key, MASK)
        text = _CONTROL.sub(" ", redactor(text)).strip()
        return shorten(text, limit)


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


logger = logging.getLogger(__name__)


class ProviderCatalog(StoreGroup):
    """Profiles by name and alias. A plugin's stands in for a bundled one of its name; of two plugins the first stays.

    The bundled ones are read one by one as they are asked for by name, and all of them when an alias, a host or the
    list is wanted.
    """

    def __init__(self) -> None:
        self._entries: Registry[ProviderProfile] = Registry(MODEL_PROVIDER.label)
        self.refusals: list[Conflict] = []
        """What `providers.register_provider` could not take, since somebody else has the name."""

    def register(self, profile: ProviderProfile, owner: str) -> str:
        """Take a profile and return its name.

        Raises:
            Conflict: another plugin has the name; or, for code that no plugin owns, the agent has it.
            ValueError: it has no usable name.
        """
        name = profile.name.strip().lower() if isinstance(profile.name, str) else ""
        if not name:
            raise ValueError(
                f"a {MODEL_PROVIDER.label} needs a name: {type(profile).__name__}.name is {profile.name!r}"
            )
        if name in BUNDLED_ORDER and not owner:
            raise Conflict(MODEL_PROVIDER.label, name, BUILTIN, owner)
        self._entries.add(name, profile, owner=owner)
        if name in BUNDLED_ORDER:
            logger.warning("the model provider `%s` of plugin `%s` replaces the bundled one", name, owner)
        return name

    def withdraw(self, name: str, profile: ProviderProfile) -> bool:
        """Remove one registration by its profile; return whether it was there. What it had replaced returns."""
        return self._entries.withdraw(name, profile)

    def profile(self, name: str) -> ProviderProfile | None:
        """Return the profile with this name or alias; case does not matter, names go before aliases."""
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
        """Return every profile: the bundled ones in their order, those that stand in for them, then the others."""
        registered = dict(self._entries.items())
        bundled = [registered.pop(name) if name in registered else bundled_profile(name) for name in BUNDLED_ORDER]
        return [*bundled, *registered.values()]

    def providers(self) -> list[ModelProvider]:
        """Return every provider, in the order of `profiles`."""
        return [provider_from_profile(profile) for profile in self.profiles()]

    def client_profiles(self) -> list[ClientProfile]:
        """Return the profiles that bring their own client, in the order of `profiles`."""
        return [profile for profile in self.profiles() if isinstance(profile, ClientProfile)]

    def names(self) -> list[str]:
        """Return every name; no profile is read for it."""
        return [*BUNDLED_ORDER, *(name for name in self._entries.names() if name not in BUNDLED_ORDER)]

    def find_by_url(self, base_url: str) -> ModelProvider | None:
        """Return the provider at whose host `base_url` points; None for a server that none of them runs."""
        try:
            host = urlsplit(base_url).hostname or ""
        except ValueError:
            return None
        found = (provider_from_profile(profile) for profile in self.profiles() if host and _hostname(profile) == host)
        return next((provider for provider in found if provider.needs_key), None)

    def owner(self, name: str) -> str | None:
        """Return whose the profile is: a plugin's key, or `builtin`."""
        return self._entries.owner(name) or (BUILTIN if name in BUNDLED_ORDER else None)


def _hostname(profile: ProviderProfile) -> str:
    try:
        return profile.get_hostname()
    except Exception as exc:  # noqa: BLE001 - a plugin's code: one that fails must not hide the others
        logger.warning("model provider `%s` cannot say its host: %s: %s", profile.name, type(exc).__name__, exc)
        return ""
