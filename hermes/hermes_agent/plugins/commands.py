"""The slash commands of this package."""

from __future__ import annotations

from functools import partial

from hermes_agent.commands import CommandTable
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.manager import PluginManager

__all__ = ["register_plugins_command"]


def register_plugins_command(registry: CommandTable, plugins: PluginManager) -> None:
    """Register `/plugins`."""
    registry.register(
        "plugins",
        partial(_run_plugins_command, plugins),
        description="List plugins and their state, say more about one, or load changed ones anew",
        args_hint="[NAME | reload [NAME]]",
    )


def _run_plugins_command(plugins: PluginManager, raw_args: str) -> str:
    word, _, rest = raw_args.strip().partition(" ")
    if word == "reload":
        try:
            return "\n".join(f"  {done}" for done in plugins.reload(rest.strip() or None)) or "There are no plugins."
        except UserError as error:
            return str(error)
    return plugins.plugin_text(raw_args.strip()) if word else plugins.status_text()
