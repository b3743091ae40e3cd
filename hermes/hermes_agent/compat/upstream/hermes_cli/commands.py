"""Slash commands. The menus of chat platforms are not here. Source: plugin contract §11.1."""

from typing import TYPE_CHECKING

from hermes_agent.compat.command_names import CommandDef as CommandDef
from hermes_agent.compat.command_names import command_registry
from hermes_agent.compat.command_names import is_gateway_known_command as is_gateway_known_command
from hermes_agent.compat.command_names import resolve_command as resolve_command

__all__ = ["COMMAND_REGISTRY", "CommandDef", "is_gateway_known_command", "resolve_command"]

if TYPE_CHECKING:
    COMMAND_REGISTRY: list[CommandDef]


def __getattr__(name: str) -> list[CommandDef]:
    if name == "COMMAND_REGISTRY":
        return command_registry()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
