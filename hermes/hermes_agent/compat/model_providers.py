"""Upstream's module functions over model providers. Source: plugin contract §8.1."""

from __future__ import annotations

import logging

from hermes_agent.compat.hosting import host
from hermes_agent.contracts.model_provider import ProviderProfile, refuse_profile
from hermes_agent.contracts.owner import current_owner, stand_in
from hermes_agent.core.registry import Conflict

__all__ = ["get_label", "get_provider_profile", "list_providers", "register_provider"]

logger = logging.getLogger(__name__)


def register_provider(profile: ProviderProfile) -> None:
    """Register a profile for the plugin that is being loaded; a name that another plugin has is refused with a warning.

    Raises:
        TypeError: it is no profile.
        ValueError: it has no name.
    """
    reason = refuse_profile(profile)
    if reason:
        raise TypeError(f"register_provider({type(profile).__name__}): it {reason}")
    catalogue = stand_in(host().model_providers)
    try:
        catalogue.register(profile, current_owner().key)
    except Conflict as exc:
        catalogue.refusals.append(exc)
        logger.warning("%s", exc)


def get_provider_profile(name: str) -> ProviderProfile | None:
    """Return the profile of this name or alias, None when there is none."""
    return host().model_providers.profile(name)


def list_providers() -> list[ProviderProfile]:
    """Return every profile: the bundled ones and those of plugins, a plugin's in the place of one of its name."""
    return host().model_providers.profiles()


def get_label(provider_id: str) -> str:
    """Return what people call a provider; the id itself when nobody has it."""
    found = get_provider_profile(provider_id)
    return found.display_name or found.name if found is not None else provider_id
