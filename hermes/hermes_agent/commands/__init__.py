"""Slash commands: how a line is read, who has which name, and running one."""

from hermes_agent.commands.line import normalise_name, parse_command
from hermes_agent.commands.meaning import find_by_prefix, find_command
from hermes_agent.commands.registry import CommandTable
from hermes_agent.commands.reserved import RESERVED
from hermes_agent.commands.run import await_result, run_command

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
