"""Where requests go: a provider as its profile (plugin contract §8.1) and the config say it, its address and a key.

Texts about an endpoint never show the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.redact import MASK, redactor

__all__ = [
    "CHAT_COMPLETIONS",
    "CUSTOM",
    "ModelEndpoint",
    "LOCAL",
    "LONGEST_QUOTE",
    "ModelProvider",
    "provider_from_config",
    "provider_from_profile",
]

LOCAL = "local"
"""The embedded model; its client is not this wire's."""
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
        """`place` at the beginning of a sentence; a name keeps its case (`xAI`, `vLLM`)."""
        return f"T{self.display_name[1:]}" if self.display_name.startswith("the ") else self.display_name

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
        return text if len(text) <= limit else text[: limit - 1] + "…"
