"""Registration of providers, model profiles, auxiliary tasks, hooks and middleware by the context.

Source: plugin contract §2.2, §2.5, §3.1, §3.9, §8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from hermes_agent.adapters.registry import PLATFORM
from hermes_agent.contracts.hook import ACCEPTED_MIDDLEWARE, VALID_MIDDLEWARE
from hermes_agent.contracts.model_provider import (
    AUXILIARY_TASK,
    BUILTIN_TASKS,
    MODEL_PROVIDER,
    AuxiliaryTask,
    ProviderProfile,
    check_profile,
    fields_without_effect,
)
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import Conflict, describe_owner
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks import ACCEPTED_HOOKS, HOOKS, OWN_HOOKS
from hermes_agent.plugins.handles import PluginRegistration
from hermes_agent.plugins.host_services import KINDS, WrongProviderType
from hermes_agent.plugins.prompt_sections import PromptSection
from hermes_agent.plugins.registration import Registration, add_once, note_refused_tool

logger = logging.getLogger(__name__)


def register_provider(by: Registration, kind: str, provider: Any) -> PluginRegistration | None:
    """Register a provider; log and return None if it has the wrong type or its name is taken.

    Raises:
        ValueError: the provider has no name, for kinds that are not lenient.
    """
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
        persistent = kind == "dashboard_auth"
        by.registered(spec.kind, name)
        if kind == "terminal_env":
            _withhold(by, provider)
        return by.enter(kind, name, lambda: _withdraw(by, kind, name, provider), persistent=persistent)
    return None


def _withhold(by: Registration, provider: Any) -> None:
    """Keep the variables of a terminal environment provider from other processes (`strip_env_keys`)."""
    from hermes_agent.system.processes import withhold_variables  # few plugins bring such a provider

    try:
        withhold_variables(by.key, provider.strip_env_keys)
    except Exception as exc:  # noqa: BLE001 - a plugin's code
        by.note(f"strip_env_keys failed, so that its variables are not withheld: {type(exc).__name__}: {exc}")


def _withdraw(by: Registration, kind: str, name: str, provider: Any) -> bool:
    if kind == "terminal_env":
        from hermes_agent.system.processes import withhold_variables  # as above

        withhold_variables(by.key, ())
    return by.services.providers[kind].withdraw(name, provider)


def register_model_provider(by: Registration, profile: Any) -> PluginRegistration | None:
    """Register a model profile; log and return None if it has the wrong type or its name is taken."""
    reason = check_profile(profile)
    if reason:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, MODEL_PROVIDER.label, reason)
        by.note(f"{type(profile).__name__} was not registered as {MODEL_PROVIDER.label}: it {reason}")
        return None
    try:
        name = by.services.model_providers.register(profile, by.key)
    except Conflict as exc:
        by.refused(MODEL_PROVIDER.label, exc.name, exc.owner)
        return None
    _note_unused_fields(by, profile)
    by.registered(MODEL_PROVIDER, name)
    return by.enter("model_provider", name, lambda: by.services.model_providers.withdraw(name, profile))


def _note_unused_fields(by: Registration, profile: ProviderProfile) -> None:
    if unused := fields_without_effect(profile):
        by.note(f"model provider `{profile.name}`: {', '.join(unused)} have no effect here")


def count_model_providers(by: Registration, refusals: int) -> None:
    """Record what the plugin registered with `providers.register_provider`.

    Args:
        refusals: length of the catalogue's list of refusals before the plugin was loaded.
    """
    catalogue = by.services.model_providers
    for name in catalogue.owned_by(by.key):
        add_once(by.record.providers_registered, (MODEL_PROVIDER, name))
        if (profile := catalogue.profile(name)) is not None:
            _note_unused_fields(by, profile)
    for refusal in catalogue.refusals[refusals:]:
        if refusal.claimed_by == by.key:
            by.refused(MODEL_PROVIDER.label, refusal.name, refusal.owner)


def count_direct_registrations(by: Registration, refusals: int) -> None:
    """Record registrations that the plugin made in upstream's tables directly, such as `tools.registry`.

    Args:
        refusals: length of the tool registry's list of refusals before the plugin was loaded.
    """
    services, record = by.services, by.record
    for name in services.tools.owned_by(by.key):
        add_once(record.tools_registered, name)
    for name in services.hooks.store.owned_by(by.key):
        add_once(record.hooks_registered, name)
    for name in services.hooks.middleware.store.owned_by(by.key):
        add_once(record.middleware_registered, name)
    for name in services.commands.owned_by(by.key):
        add_once(record.commands_registered, name)
    for name in services.platforms.owned_by(by.key):
        add_once(record.providers_registered, (PLATFORM, name))
    for refusal in services.tools.refusals[refusals:]:
        if refusal.claimed_by == by.key:
            note_refused_tool(by, refusal.tool, refusal.owner)


def has_registered(ctx: object) -> bool:
    """Return whether the import of a plugin registered something, so that it may do without `register`."""
    by = getattr(ctx, "registration", None)
    if by is None:
        return False
    count_direct_registrations(by, len(by.services.tools.refusals))
    return bool(by.record.registers())


def register_auxiliary_task(by: Registration, task: AuxiliaryTask) -> PluginRegistration:
    """Register an auxiliary task; the same plugin may register it again.

    Raises:
        ValueError: another plugin has the key.
    """
    try:
        by.services.auxiliary_tasks.add(task.key, task, owner=by.key)
    except Conflict as exc:
        raise ValueError(f"auxiliary task '{task.key}' is already registered by {describe_owner(exc.owner)}") from None
    by.registered(AUXILIARY_TASK, task.key)
    return by.enter("auxiliary_task", task.key, lambda: by.services.auxiliary_tasks.withdraw(task.key, task))


def checked_inheritance(by: Registration, key: str, inherit_from: str | None) -> str:
    """Return the task to inherit from, or "", with a warning, if there is no such task."""
    if not inherit_from:
        return ""
    if inherit_from != key and (inherit_from in BUILTIN_TASKS or by.services.auxiliary_tasks.get(inherit_from)):
        return inherit_from
    logger.warning(
        "Plugin '%s': auxiliary task '%s' cannot inherit from '%s': it is no other task; nothing is inherited",
        *(by.name, key, inherit_from),
    )
    return ""


def register_hook(by: Registration, hook_name: str, callback: Callable[..., Any]) -> PluginRegistration:
    """Register a callback; an unknown hook name is stored, with a warning that suggests a known name."""
    listener = by.services.hooks.add(hook_name, callback, by.key)
    add_once(by.record.hooks_registered, hook_name)
    if hook_name not in ACCEPTED_HOOKS and hook_name not in OWN_HOOKS:
        _warn_unknown(by, "hook", hook_name, HOOKS, tuple(HOOKS))
    return by.enter("hook", hook_name, lambda: by.services.hooks.store.remove(hook_name, listener))


def register_middleware(by: Registration, kind: str, callback: Callable[..., Any]) -> PluginRegistration:
    """Register middleware; an unknown kind is stored, with a warning that names the nearest known kind."""
    listener = by.services.hooks.middleware.add(kind, callback, by.key)
    add_once(by.record.middleware_registered, kind)
    if kind not in ACCEPTED_MIDDLEWARE:
        _warn_unknown(by, "middleware", kind, VALID_MIDDLEWARE, VALID_MIDDLEWARE)
    return by.enter("middleware", kind, lambda: by.services.hooks.middleware.store.remove(kind, listener))


def register_prompt_section(by: Registration, section: PromptSection) -> PluginRegistration:
    """Register a section of the system prompt.

    Raises:
        ValueError: the id is taken.
    """
    sections = by.services.extensions.prompt_sections
    owner = sections.owner(section.id)
    if owner is not None:
        raise ValueError(f"system prompt section '{section.id}' is already registered by plugin '{owner}'")
    sections.add(section.id, section, owner=by.key)
    return by.enter(
        "system_prompt_section",
        section.id,
        lambda: by.services.extensions.prompt_sections.withdraw(section.id, section),
    )


def register_redaction_patterns(by: Registration, patterns: Iterable[str]) -> int:
    """Add patterns of secrets and return how many were accepted."""
    added = redactor.add_patterns(patterns, f"plugin {by.key}")
    for pattern in added:
        by.ledger.add("redaction_pattern", pattern.pattern, partial(redactor.remove_pattern, pattern), staged=False)
    return len(added)


def _warn_unknown(by: Registration, what: str, name: str, known: Collection[str], valid: Collection[str]) -> None:
    near = nearest_name(str(name), tuple(known))
    meant = f"; did you mean '{near}'?" if near else ""
    logger.warning("Plugin '%s' registered unknown %s '%s' (valid: %s)%s", by.name, what, name, ", ".join(valid), meant)
    by.note(f"unknown {what} `{name}`{meant}")
