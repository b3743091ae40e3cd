"""`ctx.register_command` and `ctx.register_cli_command`. Source: plugin contract §7."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from hermes_agent.commands import normalise
from hermes_agent.contracts.cli_command import CLI_COMMAND, CliCommand
from hermes_agent.contracts.command import COMMAND
from hermes_agent.core.registry import BUILTIN, Conflict
from hermes_agent.plugins.registering.registrant import Registrant, add_once

__all__ = ["OWN_CLI_COMMANDS", "register_cli_command", "register_command"]

logger = logging.getLogger(__name__)

OWN_CLI_COMMANDS = frozenset(
    {
        "auth",
        "completion",
        "config",
        "cron",
        "doctor",
        "gateway",
        "insights",
        "logs",
        "memory",
        "model",
        "pairing",
        "plugins",
        "profile",
        "rollback",
        "send",
        "sessions",
        "skills",
        "state",
        "tools",
    }
)
"""The agent's own `hermes NAME`; a plugin's command of that name would never be reached."""


def register_command(
    by: Registrant, ctx: Any, name: str, handler: Callable[..., Any], *, description: str, args_hint: str
) -> None:
    """Register a slash command.

    Args:
        ctx: the first argument of a handler that asks for two.

    Raises:
        TypeError: the handler cannot be called.
    """
    if not callable(handler):
        raise TypeError(f"the handler of command {name!r} is {handler!r}: expected something that can be called")
    if _required_arguments(handler) == 2:
        handler = partial(handler, ctx)
    key = normalise(name)
    try:
        taken = by.ground.commands.register(name, handler, plugin=by.key, description=description, args_hint=args_hint)
    except Conflict as exc:
        by.refused(COMMAND.label, f"/{key}", exc.owner)
        return
    if taken:
        add_once(by.record.commands_registered, key)
    elif key:
        by.refused(COMMAND.label, f"/{key}", BUILTIN, log=False)
    else:
        by.note("a slash command without a name was not registered")


def register_cli_command(by: Registrant, command: CliCommand) -> None:
    """Register a terminal command.

    Raises:
        TypeError: its `setup_fn` cannot be called.
    """
    if not callable(command.setup_fn):
        raise TypeError(
            f"the setup_fn of {command.name!r} is {command.setup_fn!r}: expected something that can be called"
        )
    key = command.name.strip()
    if not key or key.startswith("-"):
        logger.warning("Plugin '%s' tried to register the terminal command %r.", by.name, command.name)
        by.note(f"the terminal command {command.name!r} has no usable name and was not registered")
        return
    if key in OWN_CLI_COMMANDS:
        by.refused(CLI_COMMAND.label, f"hermes {key}", BUILTIN)
        return
    try:
        by.ground.cli_commands.add(key, command, owner=by.key)
    except Conflict as exc:
        by.refused(CLI_COMMAND.label, f"hermes {key}", exc.owner)
        return
    add_once(by.record.cli_commands_registered, key)


def _required_arguments(handler: Callable[..., Any]) -> int:
    """Return how many positional arguments `handler` must be given; 1 when it cannot be told."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
