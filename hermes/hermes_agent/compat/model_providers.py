"""Upstream's module functions over model providers and their models. Source: plugin contract §8.1, §11.1, §11.2."""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.compat import CONTRACT_LEVEL
from hermes_agent.compat.hosting import host, of_host
from hermes_agent.compat.settings import get_env_value
from hermes_agent.contracts.model_provider import ProviderProfile, check_profile
from hermes_agent.contracts.owner import current_owner, staged_store
from hermes_agent.core.registry import Conflict
from hermes_agent.models.catalogue import ProviderCatalog

__all__ = [
    "cached_provider_model_ids",
    "clear_provider_models_cache",
    "get_default_model_for_provider",
    "get_label",
    "get_provider_env",
    "get_provider_profile",
    "list_providers",
    "nous_portal_tags",
    "provider_model_ids",
    "provider_models",
    "register_provider",
    "sign_in_providers",
]

logger = logging.getLogger(__name__)

_tables: dict[int, dict[str, list[str]]] = {}
_fetched: dict[str, list[str]] = {}


def register_provider(profile: ProviderProfile) -> None:
    """Register a profile for the plugin that is being loaded; a name that another plugin has is refused with a warning.

    Raises:
        TypeError: it is no profile.
        ValueError: it has no name.
    """
    reason = check_profile(profile)
    if reason:
        raise TypeError(f"register_provider({type(profile).__name__}): it {reason}")
    catalogue = staged_store(host().model_providers)
    try:
        catalogue.register(profile, current_owner().key)
    except Conflict as exc:
        catalogue.refusals.append(exc)
        logger.warning("%s", exc)


get_provider_profile = of_host(lambda host: host.model_providers, ProviderCatalog.profile)
list_providers = of_host(lambda host: host.model_providers, ProviderCatalog.profiles)


def get_label(provider_id: str) -> str:
    """Return what people call a provider; the id itself when nobody has it."""
    found = get_provider_profile(provider_id)
    return found.display_name or found.name if found is not None else provider_id


def provider_models() -> dict[str, list[str]]:
    """Return the models that each provider's profile names, by provider; a plugin may add to it."""
    key = id(host())
    if key not in _tables:
        _tables.clear()
        _tables[key] = {}
    for profile in list_providers():  # also one that came since
        _tables[key].setdefault(profile.name, list(profile.fallback_models))
    return _tables[key]


def provider_model_ids(provider: str, *, force_refresh: bool = False, **options: Any) -> list[str]:
    """Return the ids of a provider's models: what its service lists, else what its profile names.

    Args:
        force_refresh: ask the service even when its list is known.
        options: taken and not needed.
    """
    if force_refresh:
        _fetched.pop(provider, None)
    if provider not in _fetched:
        found = _fetch_models(provider)
        if found is None:
            return list(provider_models().get(provider, ()))
        _fetched[provider] = found
    return list(_fetched[provider])


def cached_provider_model_ids(provider: str, **options: Any) -> list[str]:
    """Return the ids without asking the service.

    Args:
        options: taken and not needed.
    """
    return list(_fetched.get(provider) or provider_models().get(provider) or [])


def clear_provider_models_cache(provider: str | None = None) -> None:
    """Forget what services listed."""
    if provider is None:
        _fetched.clear()
    else:
        _fetched.pop(provider, None)


def get_default_model_for_provider(provider: str) -> str:
    """Return the first model of a provider; empty when none is known."""
    known = cached_provider_model_ids(provider)
    return known[0] if known else ""


def get_provider_env(name: str) -> str:
    """Return a variable or secret without blanks around it; empty when there is none."""
    return (get_env_value(name) or "").strip()


def sign_in_providers() -> list[Any]:
    """Return the registered providers of the dashboard's sign-in, in order of registration."""
    return [provider for _, provider in host().providers["dashboard_auth"].items()]


def nous_portal_tags() -> list[str]:
    """Return what tells upstream's model service which program sends a request: `tags` of its body, a new list."""
    return ["product=hermes-agent", f"client=hermes-client-v{CONTRACT_LEVEL}"]


def _fetch_models(provider: str) -> list[str] | None:
    profile = get_provider_profile(provider)
    key = next((v for name in profile.env_vars if (v := get_env_value(name))), None) if profile is not None else None
    if profile is None or key is None:
        return None
    try:
        found = profile.fetch_models(api_key=key)
    except Exception as exc:  # noqa: BLE001 - a plugin's profile: its list falls back to what it names
        logger.warning("the models of provider %s cannot be listed: %s", provider, exc)
        return None
    return [str(model) for model in found] if found else None
