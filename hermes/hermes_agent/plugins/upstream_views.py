"""Upstream's private attributes of the plugin manager, as read-only views of the host's registries.

Published plugins read them. A change would have no effect, so each view refuses it and names the method to call. Those
that published plugins also change are in `live_tables`. Source: plugin contract §1.11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.adapters.questions import SlackActions
from hermes_agent.contracts.command import CliCommand
from hermes_agent.contracts.model_provider import AuxiliaryTask
from hermes_agent.core.read_only import ReadOnlyDict, ReadOnlyList, ReadOnlySet
from hermes_agent.core.registry import Registry
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.skills import PluginSkills


def tool_names(plugins: Mapping[str, LoadedPlugin]) -> set[str]:
    """Return the names of the tools of plugins."""
    found = (name for record in plugins.values() for name in record.tools_registered)
    return ReadOnlySet(found, "ctx.register_tool registers a tool")


def cli_commands(registry: Registry[CliCommand], plugins: Mapping[str, LoadedPlugin]) -> dict[str, dict[str, Any]]:
    """Return the terminal commands of plugins by name."""
    found = {
        name: {
            "name": name,
            "help": command.help,
            "setup_fn": command.setup_fn,
            "handler_fn": command.handler_fn,
            "description": command.description,
            "plugin": owner,
        }
        for name, command in registry.items()
        if (owner := registry.owner(name)) in plugins
    }
    return ReadOnlyDict(found, "ctx.register_cli_command(name, help, setup_fn) registers a command")


def auxiliary_tasks(registry: Registry[AuxiliaryTask]) -> dict[str, dict[str, Any]]:
    """Return the auxiliary tasks of plugins by key."""
    found = {
        key: {
            "key": key,
            "display_name": task.display_name,
            "description": task.description,
            "defaults": dict(task.defaults),
            "plugin": registry.owner(key),
        }
        for key, task in registry.items()
    }
    return ReadOnlyDict(found, "ctx.register_auxiliary_task registers an auxiliary task")


def skills(registry: PluginSkills) -> dict[str, dict[str, Any]]:
    """Return the skills of plugins by qualified name."""
    found = {
        name: {"path": s.path, "plugin": s.plugin, "bare_name": s.bare_name, "description": s.description}
        for name, s in registry.items()
    }
    return ReadOnlyDict(found, "ctx.register_skill(name, path) registers a skill")


def slack_actions(actions: SlackActions) -> list[tuple[Any, Callable[..., Any], str]]:
    """Return the handlers of Slack buttons."""
    found = [(a.action_id, a.callback, a.plugin) for a in actions.items()]
    return ReadOnlyList(found, "ctx.register_slack_action_handler(action_id, callback) registers a handler")


class UpstreamAttributes:
    """The attributes of upstream's plugin manager that published plugins read."""

    _services: HostServices
    _plugins: dict[str, LoadedPlugin]

    @property
    def _plugin_tool_names(self) -> set[str]:
        return tool_names(self._plugins)

    @property
    def _cli_commands(self) -> dict[str, dict[str, Any]]:
        return cli_commands(self._services.cli_commands, self._plugins)

    @property
    def _aux_tasks(self) -> dict[str, dict[str, Any]]:
        return auxiliary_tasks(self._services.auxiliary_tasks)

    @property
    def _plugin_skills(self) -> dict[str, dict[str, Any]]:
        return skills(self._services.plugin_skills)

    @property
    def _context_engine(self) -> Any:
        return next((engine for _, engine in self._services.providers["context_engine"].items()), None)

    @property
    def _slack_action_handlers(self) -> list[tuple[Any, Callable[..., Any], str]]:
        return slack_actions(self._services.slack_actions)
