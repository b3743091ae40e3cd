"""`hermes NAME …` where a plugin brings NAME. Source: plugin contract §7.4."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import inspect
import sys
from collections.abc import Collection, Sequence

from hermes_agent.app.start import start_host
from hermes_agent.core.errors import EXIT_USAGE

__all__ = ["run"]


def run(name: str, argv: Sequence[str], built_in: Collection[str]) -> int:
    """Load the plugins and run their command `name`; an unknown one is a usage error with the nearest name.

    Args:
        built_in: our own commands, for the nearest name.
    """
    host = start_host()
    command = host.cli_commands.get(name)
    if command is None:
        known = [*host.cli_commands.names(), *built_in]
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" (did you mean `{near[0]}`?)" if near else ""
        print(f"hermes: there is no command {name!r}{meant}", file=sys.stderr)
        print("`hermes --help` lists the commands; to ask a question use `hermes -z`.", file=sys.stderr)
        return EXIT_USAGE
    parser = argparse.ArgumentParser(prog=f"hermes {name}", description=command.description or command.help)
    command.setup_fn(parser)
    if command.handler_fn is not None:
        parser.set_defaults(func=command.handler_fn)
    args = parser.parse_args(list(argv))
    handler = getattr(args, "func", None)
    if handler is None:
        parser.print_help()
        return EXIT_USAGE
    try:
        outcome = handler(args)
        if inspect.iscoroutine(outcome):
            outcome = host.bridge.wait_plugin(outcome)
    finally:
        asyncio.run(host.aclose())
    return outcome if isinstance(outcome, int) else 0
