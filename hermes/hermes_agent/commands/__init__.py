"""Slash commands: parsing a line, the table of commands, running one."""

from hermes_agent.commands.runner import CommandOutcome, await_result, run_command
from hermes_agent.commands.table import RESERVED, CommandTable, HelpRow, help_text, normalise_name, parse_command

__all__ = [
    "RESERVED",
    "CommandOutcome",
    "CommandTable",
    "HelpRow",
    "await_result",
    "help_text",
    "normalise_name",
    "parse_command",
    "run_command",
]
