"""`hermes NAME …` where a plugin brings NAME. Source: plugin contract §7.4."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Collection, Sequence

from hermes_agent.app.start import start_host
from hermes_agent.core.errors import EXIT_USAGE
from hermes_agent.plugins.cli_command import run_cli_command

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
    try:
        return run_cli_command(command, argv, host.bridge)
    finally:
        asyncio.run(host.aclose())
