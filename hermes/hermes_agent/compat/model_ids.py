"""Upstream's `hermes_cli.models`: which models a provider has. Source: plugin contract §8.1, §11.1."""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.compat.model_providers import get_provider_profile, list_providers
from hermes_agent.compat.settings import get_env_value

__all__ = [
    "cached_provider_model_ids",
    "clear_provider_models_cache",
    "get_default_model_for_provider",
    "provider_model_ids",
    "provider_models",
]

logger = logging.getLogger(__name__)

_tables: dict[int, dict[str, list[str]]] = {}
_fetched: dict[str, list[str]] = {}


def provider_models() -> dict[str, list[str]]:
    """Return the models that each provider's profile names, by provider; a plugin may add to it."""
    key = id(host())
    if key not in _tables:
        _tables.clear()
        _tables[key] = {p.name: list(p.fallback_models) for p in list_providers()}
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
        found = _ask(provider)
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


def _ask(provider: str) -> list[str] | None:
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
