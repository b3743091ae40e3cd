"""Slash commands: `/name arguments`, typed in a conversation. Source: plugin contract §7.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = ["COMMAND", "CommandHandler", "SlashCommand"]

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
