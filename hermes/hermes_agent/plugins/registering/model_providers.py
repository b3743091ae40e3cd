"""`ctx.register_model_provider`, and what came past the context. Source: plugin contract §8.1."""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.contracts.model_provider import MODEL_PROVIDER, refuse_profile
from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.registering.registrant import Registrant, add_once

__all__ = ["count_model_providers", "register_model_provider"]

logger = logging.getLogger(__name__)


def register_model_provider(by: Registrant, profile: Any) -> None:
    """Register a profile; one of the wrong type, or whose name another plugin has, is refused with a line in the log.

    Raises:
        ValueError: it has no usable name.
    """
    reason = refuse_profile(profile)
    if reason:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, MODEL_PROVIDER.label, reason)
        by.note(f"{type(profile).__name__} was not registered as {MODEL_PROVIDER.label}: it {reason}")
        return
    try:
        name = by.ground.model_providers.register(profile, by.key)
    except Conflict as exc:
        by.refused(MODEL_PROVIDER.label, exc.name, exc.owner)
    else:
        by.registered(MODEL_PROVIDER, name)


def count_model_providers(by: Registrant, refusals: int) -> None:
    """Note what the plugin registered with `providers.register_provider`.

    Args:
        refusals: how many there were in the catalogue before the plugin was loaded.
    """
    catalogue = by.ground.model_providers
    for name in catalogue.owned_by(by.key):
        add_once(by.record.providers_registered, (MODEL_PROVIDER, name))
    for refusal in catalogue.refusals[refusals:]:
        if refusal.claimed_by == by.key:
            by.refused(MODEL_PROVIDER.label, refusal.name, refusal.owner)
