"""Slash commands: `/name arguments`, typed in a conversation. Source: plugin contract §7.1.

Terminal commands: `hermes name …`, with an argparse tree of the plugin's. Source: plugin contract §7.4.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = ["CLI_COMMAND", "COMMAND", "CliCommand", "CommandHandler", "SlashCommand"]


COMMAND = Kind("command", "register_command", "slash command")

CommandHandler = Callable[[str], Any]
"""`handler(raw_args: str) -> str | None`, or a coroutine function of that shape."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command.

    Attributes:
        name: normalised: lower case, no slash, `-` for blanks.
        args_hint: shown after the name in help and menus: `<text>`.
        beside: whether it may run while the agent works on a turn of the same conversation.
    """

    name: str
    handler: CommandHandler
    description: str = "Plugin command"
    args_hint: str = ""
    during_turn: bool = True


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
