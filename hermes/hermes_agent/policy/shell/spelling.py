"""The spellings of a parsed command: without the directory of its program and the options before its subcommand."""

from __future__ import annotations

from collections.abc import Iterator

from hermes_agent.policy.shell import table
from hermes_agent.policy.shell.script import ShellCommand

__all__ = ["spellings", "subcommand_args"]


def subcommand_args(command: ShellCommand) -> tuple[str, ...]:
    """Return the arguments from the subcommand on; of git an alias given with `-c` is replaced."""
    words, aliases = table.split_subcommand(command)
    args = [word.text for word in words]
    if args and args[0] in aliases:
        args[:1] = aliases[args[0]].split()
    return tuple(args)


def spellings(command: ShellCommand) -> Iterator[str]:
    """Yield the command as written, by the name of its program, and without the options before its subcommand."""
    yield command.text
    if command.name:
        yield " ".join((command.name, *command.args))
        yield " ".join((command.name, *subcommand_args(command)))
