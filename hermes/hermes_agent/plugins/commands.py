"""The slash commands of this package."""

from __future__ import annotations

from functools import partial

from hermes_agent.commands import CommandRegistry
from hermes_agent.plugins.manager import PluginManager

__all__ = ["register"]


def register(registry: CommandRegistry, plugins: PluginManager) -> None:
    """Register `/plugins`."""
    registry.register(
        "plugins",
        partial(_plugins, plugins),
        description="List plugins and their state, or say more about one",
        args_hint="[NAME]",
    )


def _plugins(plugins: PluginManager, raw_args: str) -> str:
    name = raw_args.strip()
    return plugins.plugin_text(name) if name else plugins.status_text()
