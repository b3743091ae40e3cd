"""The slash commands of this package."""

from __future__ import annotations

from hermes_agent.commands import CommandRegistry
from hermes_agent.plugins.manager import PluginManager

__all__ = ["register"]


def register(registry: CommandRegistry, plugins: PluginManager) -> None:
    """Register `/plugins`."""
    registry.register("plugins", lambda raw_args: plugins.status_text(), description="List plugins and their state")
