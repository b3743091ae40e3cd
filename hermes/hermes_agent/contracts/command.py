"""Slash commands: `/name arguments`, typed in a conversation. Source: plugin contract §7.1.

Terminal commands: `hermes name …`, with an argparse tree of the plugin's. Source: plugin contract §7.4.
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

A command that only one front end has is run by that front end: the console and the gateway await it on the core loop,
and the gateway passes a `CommandInvocation`.
"""

DEFAULT_DESCRIPTION = "Plugin command"

Where = Literal["terminal", "chat", "http", "socket"]
"""A front end: the console, chat platforms, the HTTP server, the control socket (for members of the daemon's group)."""
EVERYWHERE: frozenset[Where] = frozenset({"terminal", "chat", "http", "socket"})
FOR_OPERATORS: frozenset[Where] = EVERYWHERE - {"socket"}
"""Front ends of a command that changes, or shows, more than the session in which it is run."""

Right = Literal["always", "anyone", "known"]
"""Who may run a command in a chat.

`always`: every user, also one whom `allow_admin_from` leaves out; `anyone`: every user, unless that list says
otherwise; `known`: users that were allowed one by one.
"""


class Confirmation(NamedTuple):
    """The question that is put in a chat before a command runs."""

    title: str
    text: str
    """What the command ends or deletes."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command, as every front end shows and runs it.

    Attributes:
        name: normalised: lower case, no slash, `-` for blanks.
        args_hint: shown after the name in help and menus: `<text>`.
        during_turn: whether it runs at once while a turn runs in the same conversation; else it waits for its end.
        aliases: other names; help shows them behind the description.
        where: the front ends that have it.
        right: who may run it in a chat.
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
        """Whether a front end brings it for itself, and runs it."""
        return len(self.where) == 1


CLI_COMMAND = Kind("cli_command", "register_cli_command", "terminal command")


@dataclass(frozen=True, slots=True)
class CliCommand:
    """One command.

    Attributes:
        setup_fn: is given the subparser and builds the tree.
        handler_fn: becomes the default `func` after `setup_fn`; called with the `Namespace`.
    """

    name: str
    help: str
    setup_fn: Callable[[argparse.ArgumentParser], Any]
    handler_fn: Callable[[argparse.Namespace], Any] | None = None
    description: str = ""
