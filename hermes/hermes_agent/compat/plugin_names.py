"""Upstream's module functions over plugins and slash commands. Source: plugin contract §1.11, §1.14, §7, §11.1."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.commands import RESERVED, await_result, find_command, normalise_name
from hermes_agent.compat.hosting import host, of_host
from hermes_agent.config import hermes_home
from hermes_agent.core.read_only import ReadOnlyList
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.discovery import discover
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.memory_folder import add_memory_folder

__all__ = [
    "CommandDef",
    "command_registry",
    "discover_plugins",
    "find_provider_dir",
    "get_plugin_auxiliary_tasks",
    "get_plugin_command_handler",
    "get_plugin_commands",
    "get_plugin_manager",
    "get_plugin_toolsets",
    "has_hook",
    "has_middleware",
    "invoke_hook",
    "invoke_middleware",
    "is_gateway_known_command",
    "plugin_command_entries",
    "resolve_command",
    "resolve_plugin_command_result",
]


@dataclass(frozen=True)
class CommandDef:
    """One command of the agent's own."""

    name: str
    description: str
    category: str = "Session"
    aliases: tuple[str, ...] = ()
    args_hint: str = ""


def get_plugin_manager() -> PluginManager:
    """Return the host's plugin manager."""
    return host().plugins


discover_plugins = of_host(lambda host: host.plugins, PluginManager.discover_and_load)
has_hook = of_host(lambda host: host.plugins, PluginManager.has_hook)
has_middleware = of_host(lambda host: host.plugins, PluginManager.has_middleware)


def invoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Call a hook's listeners and return what they answered."""
    return host().plugins.invoke_hook(hook_name, **kwargs)


def invoke_middleware(kind: str, **kwargs: Any) -> list[Any]:
    """Go through the middleware of a kind and return the answers; those of an execution kind stand around `next_call`.

    Raises:
        TypeError: an execution kind without `next_call`.
    """
    return host().plugins.invoke_middleware(kind, **kwargs)


def get_plugin_commands() -> dict[str, dict[str, Any]]:
    """Return the slash commands of plugins: `handler`, `description`, `plugin`, `args_hint` by name."""
    discover_plugins()
    return host().plugins._plugin_commands


def get_plugin_command_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of a plugin's slash command, or None."""
    command = get_plugin_commands().get(normalise_name(name))
    return None if command is None else command["handler"]


def resolve_plugin_command_result(value: Any) -> Any:
    """Return what a command's handler returned, awaited when it is a coroutine.

    Raises:
        TimeoutError: it did not finish within 30 s, or raised one itself.
    """
    return await_result(value, host().bridge)


def get_plugin_auxiliary_tasks() -> list[dict[str, Any]]:
    """Return the side tasks of plugins: `key`, `display_name`, `description`, `defaults`, `plugin`."""
    return list(get_plugin_manager()._aux_tasks.values())


def get_plugin_toolsets() -> list[tuple[str, str, str]]:
    """Return toolset, title and description of each toolset that plugins bring."""
    found: dict[str, tuple[str, str, str]] = {}
    current = host()
    for record in current.plugins.records:
        for tool in record.tools_registered:
            toolset = current.tools.get_toolset_for_tool(tool)
            if toolset is not None and toolset not in found:
                title = toolset.replace("-", " ").replace("_", " ").title()
                found[toolset] = (toolset, f"🔌 {title}", record.manifest.description)
    return [found[name] for name in sorted(found)]


def find_provider_dir(name: str) -> Path | None:
    """Return the folder of the memory plugin that `memory.provider: NAME` would take; None when there is none.

    Nothing of it is imported, and it need not be enabled. An installed package has no folder of this kind.
    """
    home = hermes_home()
    found = discover(home, os.environ, Path.cwd())
    add_memory_folder(found, home, name)
    for manifest in found.plugins.values():
        if manifest.kind == "exclusive" and manifest.folder and name in (*manifest.answers_to, manifest.folder):
            return Path(manifest.path)
    return None


def command_registry() -> list[CommandDef]:
    """Return the agent's own commands that are there in this process, sorted by name."""
    commands = host().commands
    found = [
        CommandDef(name, command.description, args_hint=command.args_hint)
        for name, command in sorted(commands.items())
        if commands.owner(name) == BUILTIN
    ]
    return ReadOnlyList(found, "ctx.register_command(name, handler) registers a command")


def plugin_command_entries() -> list[tuple[str, str, str]]:
    """Return name, description and what may follow it, for each slash command of plugins."""
    return [(name, c["description"], c["args_hint"]) for name, c in sorted(get_plugin_commands().items())]


def resolve_command(name: str) -> CommandDef | None:
    """Return the agent's own command of that name, or None."""
    return next((entry for entry in command_registry() if entry.name == normalise_name(name)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """Say whether a name is a command: of the agent, reserved by it, or a plugin's."""
    return bool(name) and (
        normalise_name(str(name)) in RESERVED or find_command(host().commands, str(name)) is not None
    )
