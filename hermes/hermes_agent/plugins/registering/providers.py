"""`ctx.register_*_provider` and its siblings, model providers and side tasks among them. Source: plugin contract
§2.2, §2.5, §8.
"""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.contracts.auxiliary_task import AUXILIARY_TASK, AuxiliaryTask
from hermes_agent.contracts.model_provider import MODEL_PROVIDER, check_profile
from hermes_agent.core.registry import Conflict, describe_owner
from hermes_agent.plugins.providers import KINDS, WrongProviderType
from hermes_agent.plugins.registering.registrant import Registration, add_once

__all__ = ["count_model_providers", "register_auxiliary_task", "register_model_provider", "register_provider"]

logger = logging.getLogger(__name__)


def register_provider(by: Registration, kind: str, provider: Any) -> None:
    """Register a provider; one of the wrong type, or whose name is taken, is refused with a line in the log."""
    spec = KINDS[kind]
    label, given = spec.kind.label, type(provider).__name__
    try:
        name = by.services.providers.add(kind, provider, owner=by.key)
    except WrongProviderType as exc:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, label, exc)
        by.note(f"{given} was not registered as {label}: it {exc}")
    except Conflict as exc:
        by.refused(label, exc.name, exc.owner)
    except ValueError as exc:
        if not spec.lenient:
            raise
        logger.warning("Plugin '%s' could not register a %s: %s", by.name, label, exc)
        by.note(f"{given} was not registered: {exc}")
    else:
        by.registered(spec.kind, name)


def register_model_provider(by: Registration, profile: Any) -> None:
    """Register a profile; one of the wrong type, or whose name is taken, is refused with a line in the log."""
    reason = check_profile(profile)
    if reason:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, MODEL_PROVIDER.label, reason)
        by.note(f"{type(profile).__name__} was not registered as {MODEL_PROVIDER.label}: it {reason}")
        return
    try:
        name = by.services.model_providers.register(profile, by.key)
    except Conflict as exc:
        by.refused(MODEL_PROVIDER.label, exc.name, exc.owner)
    else:
        by.registered(MODEL_PROVIDER, name)


def count_model_providers(by: Registration, refusals: int) -> None:
    """Note what the plugin registered with `providers.register_provider`.

    Args:
        refusals: how many there were in the catalogue before the plugin was loaded.
    """
    catalogue = by.services.model_providers
    for name in catalogue.owned_by(by.key):
        add_once(by.record.providers_registered, (MODEL_PROVIDER, name))
    for refusal in catalogue.refusals[refusals:]:
        if refusal.claimed_by == by.key:
            by.refused(MODEL_PROVIDER.label, refusal.name, refusal.owner)


def register_auxiliary_task(by: Registration, task: AuxiliaryTask) -> None:
    """Register a task; the same plugin may do so again."""
    try:
        by.services.auxiliary_tasks.add(task.key, task, owner=by.key)
    except Conflict as exc:
        raise ValueError(f"auxiliary task '{task.key}' is already registered by {describe_owner(exc.owner)}") from None
    by.registered(AUXILIARY_TASK, task.key)
