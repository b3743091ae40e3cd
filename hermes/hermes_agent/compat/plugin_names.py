"""Upstream's module functions over the plugin manager. Source: plugin contract §1.11, §7.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.commands import normalise, settled
from hermes_agent.compat.hosting import host
from hermes_agent.plugins.manager import PluginManager

__all__ = [
    "discover_plugins",
    "get_plugin_auxiliary_tasks",
    "get_plugin_command_handler",
    "get_plugin_commands",
    "get_plugin_manager",
    "get_plugin_toolsets",
    "has_hook",
    "has_middleware",
    "invoke_hook",
    "invoke_middleware",
    "resolve_plugin_command_result",
]


def get_plugin_manager() -> PluginManager:
    """Return the host's plugin manager."""
    return host().plugins


def discover_plugins(force: bool = False) -> None:
    """Find and load the plugins, once; with `force` what is new, too."""
    host().plugins.discover_and_load(force=force)


def invoke_hook(hook_name: str, **kwargs: Any) -> list[Any]:
    """Call a hook's listeners and return what they answered."""
    return host().plugins.invoke_hook(hook_name, **kwargs)


def has_hook(hook_name: str) -> bool:
    """Say whether anybody listens to a hook."""
    return host().plugins.has_hook(hook_name)


def has_middleware(kind: str) -> bool:
    """Say whether anybody registered middleware of a kind."""
    return host().plugins.has_middleware(kind)


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
    command = get_plugin_commands().get(normalise(name))
    return None if command is None else command["handler"]


def resolve_plugin_command_result(value: Any) -> Any:
    """Return what a command's handler returned, awaited when it is a coroutine.

    Raises:
        TimeoutError: it did not finish within 30 s, or raised one itself.
    """
    return settled(value, host().bridge)


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
