"""Run a terminal command that a plugin brings. Source: plugin contract §7.4."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence

from hermes_agent.contracts.cli_command import CliCommand
from hermes_agent.core.errors import EXIT_USAGE
from hermes_agent.io.bridge import Bridge

__all__ = ["run_cli_command"]


def run_cli_command(command: CliCommand, argv: Sequence[str], bridge: Bridge) -> int:
    """Parse what follows the command's name, call its handler, and return the exit status.

    Raises:
        SystemExit: argparse ends the process: `--help`, or a line that it cannot read.
    """
    parser = argparse.ArgumentParser(prog=f"hermes {command.name}", description=command.description or command.help)
    command.setup_fn(parser)
    if command.handler_fn is not None:
        parser.set_defaults(func=command.handler_fn)
    args = parser.parse_args(list(argv))
    handler = getattr(args, "func", None)
    if handler is None:
        parser.print_help()
        return EXIT_USAGE
    outcome = handler(args)
    if inspect.iscoroutine(outcome):
        outcome = bridge.wait_plugin(outcome)
    return outcome if isinstance(outcome, int) else 0
