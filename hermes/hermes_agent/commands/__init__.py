"""Slash commands: how a line is read, who has which name, and running one."""

from hermes_agent.commands.line import normalise, parse
from hermes_agent.commands.meaning import by_prefix, exact
from hermes_agent.commands.registry import CommandRegistry
from hermes_agent.commands.reserved import RESERVED
from hermes_agent.commands.run import run_command, settled

__all__ = ["RESERVED", "CommandRegistry", "by_prefix", "exact", "normalise", "parse", "run_command", "settled"]
