"""Slash commands (`/name arguments`) and subcommands (`hermes name …`) of plugins.

The handler of a subcommand gets a `Namespace` of argparse. Source: plugin contract §7.1, §7.4.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hermes_agent.contracts.kind import Kind

__all__ = [
    "CLI_COMMAND",
    "COMMAND",
    "DEFAULT_DESCRIPTION",
    "EVERYWHERE",
    "FOR_OPERATORS",
    "CliCommand",
    "CommandHandler",
    "Confirmation",
    "Right",
    "SlashCommand",
    "Where",
]


COMMAND = Kind("command", "register_command", "slash command")

CommandHandler = Callable[[Any], Any]
"""`handler(raw_args: str) -> str | None`, or a coroutine function of that shape.

A command of a single front end is run by that front end. The console and the gateway await it on the core loop, and
the gateway passes a `CommandInvocation`.
"""

DEFAULT_DESCRIPTION = "Plugin command"

Where = Literal["terminal", "chat", "http", "socket"]
"""A front end: the console, chat platforms, the HTTP server, the control socket (for members of the daemon's group)."""
EVERYWHERE: frozenset[Where] = frozenset({"terminal", "chat", "http", "socket"})
FOR_OPERATORS: frozenset[Where] = EVERYWHERE - {"socket"}
"""Front ends of a command that changes or shows more than the session in which it runs."""

Right = Literal["always", "anyone", "known"]
"""Which users may run a command in a chat.

`always`: every user, including users that `allow_admin_from` excludes. `anyone`: every user, unless that list excludes
them. `known`: users that the operator allowed individually.
"""


class Confirmation(NamedTuple):
    """Question that a user answers in a chat before a command runs."""

    title: str
    text: str
    """What the command ends or deletes."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command, as every front end shows and runs it.

    Attributes:
        name: normalized: lower case, no slash, `-` for blanks.
        args_hint: shown after the name in help and menus: `<text>`.
        during_turn: whether it runs at once during a turn of the conversation; otherwise it waits for the end.
        aliases: other names; the help lists them after the description.
        where: the front ends that have it.
        right: which users may run it in a chat.
        confirm: the question before it runs in a chat; None runs it at once.
        argument_mode: how front ends complete arguments: `options`, `text`, `mixed`; None if it has no arguments.
    """

    name: str
    handler: CommandHandler
    description: str = DEFAULT_DESCRIPTION
    args_hint: str = ""
    during_turn: bool = True
    aliases: tuple[str, ...] = ()
    where: frozenset[Where] = EVERYWHERE
    right: Right = "anyone"
    confirm: Confirmation | None = None
    argument_mode: str | None = None

    @property
    def is_of_one_front_end(self) -> bool:
        """Whether a single front end declares and runs it."""
        return len(self.where) == 1


CLI_COMMAND = Kind("cli_command", "register_cli_command", "terminal command")


@dataclass(frozen=True, slots=True)
class CliCommand:
    """A subcommand of `hermes`.

    Attributes:
        setup_fn: gets the subparser and adds the arguments.
        handler_fn: becomes the default `func` after `setup_fn`; called with the `Namespace`.
    """

    name: str
    help: str
    setup_fn: Callable[[argparse.ArgumentParser], Any]
    handler_fn: Callable[[argparse.Namespace], Any] | None = None
    description: str = ""
