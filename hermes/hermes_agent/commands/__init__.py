"""Slash commands: how a line is read, who has which name, and running one."""

from hermes_agent.commands.runner import await_result, run_command
from hermes_agent.commands.table import (
    RESERVED,
    CommandTable,
    find_by_prefix,
    find_command,
    normalise_name,
    parse_command,
)

__all__ = [
    "RESERVED",
    "CommandTable",
    "find_by_prefix",
    "find_command",
    "normalise_name",
    "parse_command",
    "run_command",
    "await_result",
]
