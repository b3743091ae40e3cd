"""Slash commands (`/name arguments`) and subcommands (`hermes name …`) of plugins.

The handler of a subcommand gets a `Namespace` of argparse. Source: plugin contract §7.1, §7.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

if TYPE_CHECKING:
    import argparse

__all__ = [
    "BY_FRONT_END",
    "CLI_COMMAND",
    "COMMAND",
    "DEFAULT_DESCRIPTION",
    "EVERYWHERE",
    "FOR_OPERATORS",
    "ArgumentSource",
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

Front ends bind handlers of their own to commands of the agent and run these themselves. The console and the gateway
await such a handler on the core loop, and the gateway passes a `CommandInvocation`.
"""


def _unbound(raw_args: str) -> str | None:
    raise LookupError("this command has no handler before a front end binds one")


BY_FRONT_END: CommandHandler = _unbound
"""Stands for the handlers that front ends bind to a command."""


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


ArgumentSource = Literal["models", "personalities", "sessions", "themes"]
"""Source of the values that complete an argument."""


class Confirmation(LazyNamedTuple):
    """Question that a user answers in a chat before a command runs."""

    title: str
    text: str
    """What the command ends or deletes."""


@lazy_dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command, declared once for all front ends that show and run it.

    Attributes:
        name: normalized: lower case, no slash, `-` for blanks.
        handler: `BY_FRONT_END` for a command that each of its front ends runs itself (`CommandTable.bind`).
        args_hint: shown after the name in help and menus: `<text>`.
        during_turn: whether it runs at once during a turn of the conversation; otherwise it waits for the end.
        waits_in: front ends where it waits for the end of the turn all the same.
        aliases: other names; the help lists them after the description.
        where: the front ends that have it.
        right: which users may run it in a chat.
        confirm: the question before it runs in a chat; None runs it at once.
        argument_mode: how front ends complete arguments: `options`, `text`, `mixed`; None if it has no arguments.
        values: words that complete the argument, or their source.
        starts_session: whether a chat without a session starts one before it runs.
        is_bound: whether the handler is one of a front end, which runs it.
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
    values: tuple[str, ...] | ArgumentSource = ()
    waits_in: frozenset[Where] = frozenset()
    starts_session: bool = False
    is_bound: bool = False


CLI_COMMAND = Kind("cli_command", "register_cli_command", "terminal command")


@lazy_dataclass(frozen=True, slots=True)
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
