"""Run a terminal command that a plugin brings. Source: plugin contract §7.4."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import logging
from collections.abc import Iterator, Sequence

from hermes_agent.contracts.cli_command import CliCommand
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.io.bridge import Bridge

__all__ = ["run_cli_command"]

logger = logging.getLogger(__name__)


def run_cli_command(command: CliCommand, argv: Sequence[str], bridge: Bridge) -> int:
    """Parse what follows the command's name, call its handler, and return the exit status.

    Raises:
        SystemExit: argparse ends the process: `--help`, or a line that it cannot read.
        UserError: the plugin's function failed; the log has the traceback.
    """
    parser = argparse.ArgumentParser(prog=f"hermes {command.name}", description=command.description or command.help)
    with _explain_failure(command, "could not be set up"):
        command.setup_fn(parser)
    if command.handler_fn is not None:
        parser.set_defaults(func=command.handler_fn)
    args = parser.parse_args(list(argv))
    handler = getattr(args, "func", None)
    if handler is None:
        parser.print_help()
        return EXIT_USAGE
    with _explain_failure(command, "failed"):
        outcome = handler(args)
        if inspect.iscoroutine(outcome):
            outcome = bridge.wait_plugin(outcome)
    return outcome if isinstance(outcome, int) and not isinstance(outcome, bool) else 0  # `return True` is no status


@contextlib.contextmanager
def _explain_failure(command: CliCommand, what: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as exc:
        logger.warning("hermes %s %s", command.name, what, exc_info=True)
        raise UserError(
            f"`hermes {command.name}`, a plugin's command, {what}: {type(exc).__name__}: {exc}",
            hint="`hermes logs --source file` has the traceback.",
        ) from exc
