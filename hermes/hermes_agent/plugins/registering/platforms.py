"""`ctx.register_platform` and `ctx.register_slack_action_handler`. Source: plugin contract §2.2, §8.2.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.owner import Owner
from hermes_agent.contracts.platform.entry import PLATFORM, PLUGIN_SOURCE, SLACK_ACTION, PlatformEntry
from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.registering.registrant import Registration

__all__ = ["is_deferred", "register_platform", "register_slack_action_handler"]


def is_deferred(manifest: PluginManifest) -> bool:
    """Say whether a plugin is loaded when somebody asks for its platform, and not before (contract §1.8)."""
    return manifest.kind == "platform" and manifest.source == "bundled"


def register_platform(
    by: Registration,
    name: str,
    label: str,
    adapter_factory: Callable[..., Any],
    check_fn: Callable[[], bool],
    *,
    required_env: list[str] | None,
    **details: Any,
) -> None:
    """Register a platform; a name that is the agent's or another plugin's is refused, with a line in the log."""
    entry = PlatformEntry(
        name=name,
        label=label,
        adapter_factory=adapter_factory,
        check_fn=check_fn,
        required_env=list(required_env or ()),
        source=PLUGIN_SOURCE,
        plugin_name=by.name,
        **details,
    )
    for what in ("adapter_factory", "check_fn"):
        if not callable(getattr(entry, what)):
            given = getattr(entry, what)
            raise TypeError(f"the {what} of platform {name!r} is {given!r}: expected something that can be called")
    owner = Owner(by.key, by.settings.may_override(by.manifest))
    try:
        by.services.platforms.add(entry, owner, builtin=by.manifest.source == "bundled")
    except Conflict as exc:
        by.refused(PLATFORM.label, exc.name, exc.owner)
    else:
        by.registered(PLATFORM, name)


def register_slack_action_handler(by: Registration, action_id: Any, callback: Any) -> None:
    """Keep a handler of one of Slack's buttons for when a Slack adapter connects."""
    action = by.services.slack_actions.add(action_id, callback, plugin=by.key)
    by.registered(SLACK_ACTION, action.display_id)
