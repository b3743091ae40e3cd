"""Upstream's functions over slash commands. Source: plugin contract §7, §11.1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hermes_agent.commands import RESERVED, exact, normalise
from hermes_agent.compat.hosting import host
from hermes_agent.core.registry import BUILTIN

__all__ = [
    "CommandDef",
    "command_registry",
    "is_gateway_known_command",
    "iter_plugin_command_entries",
    "resolve_command",
]


@dataclass(frozen=True)
class CommandDef:
    """One command of the agent's own."""

    name: str
    description: str
    category: str = "Session"
    aliases: tuple[str, ...] = ()
    args_hint: str = ""


def command_registry() -> list[CommandDef]:
    """Return the agent's own commands that are there in this process, sorted by name."""
    commands = host().commands
    return [
        CommandDef(name, command.description, args_hint=command.args_hint)
        for name, command in sorted(commands.items())
        if commands.owner(name) == BUILTIN
    ]


def resolve_command(name: str) -> CommandDef | None:
    """Return the agent's own command of that name, or None."""
    return next((entry for entry in command_registry() if entry.name == normalise(name)), None)


def is_gateway_known_command(name: str | None) -> bool:
    """Say whether a name is a command: of the agent, reserved by it, or a plugin's."""
    return bool(name) and (normalise(str(name)) in RESERVED or exact(host().commands, str(name)) is not None)


def iter_plugin_command_entries() -> Iterator[tuple[str, str, str]]:
    """Yield name, description and hint of each plugin's command."""
    commands = host().commands
    for name, command in commands.items():
        if commands.owner(name) != BUILTIN:
            yield name, command.description, command.args_hint
