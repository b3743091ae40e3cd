"""Read the command line, find the subcommand, show errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import cast

from hermes_agent.app.cli import completion, config, gateway, logs, model, plugins, sessions
from hermes_agent.core.errors import UserError

__all__ = ["build_parser", "run"]

SUBCOMMANDS = (completion, config, gateway, logs, model, plugins, sessions)

EPILOG = """\
Without a command `hermes` opens a conversation in the terminal.
A question on standard input is answered like -z: `echo "what is in this folder?" | hermes`.
Plugins bring commands of their own: `hermes PLUGIN-COMMAND --help`.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of everything but plugin commands."""
    parser = argparse.ArgumentParser(
        prog="hermes",
        description="An agent that lives on your machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("-z", "--oneshot", metavar="QUESTION", help="answer one question on stdout and exit")
    parser.add_argument("-f", "--first", metavar="QUESTION", help="open a conversation and ask this first")
    parser.add_argument(
        "-c", "--continue", dest="continue_last", action="store_true", help="go on with the last session"
    )
    parser.add_argument("-r", "--resume", metavar="ID", help="go on with this session (see `hermes sessions list`)")
    parser.add_argument("-m", "--model", metavar="NAME", help="use this model instead of the configured one")
    parser.set_defaults(run=_converse)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands", dest="command")
    for module in SUBCOMMANDS:
        module.add(subparsers)
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    parser = build_parser()
    try:
        name = argv[0] if argv and not argv[0].startswith("-") else None
        built_in = _subcommands(parser)
        if name is not None and name not in built_in:
            from hermes_agent.app import plugin_command  # loads plugins: only for a name that is not ours

            return plugin_command.run(name, argv[1:], built_in)
        args = parser.parse_args(argv)
        return cast("Callable[[argparse.Namespace], int]", args.run)(args)
    except UserError as error:
        print(f"hermes: {error}", file=sys.stderr)
        return error.exit_status


def _subcommands(parser: argparse.ArgumentParser) -> set[str]:
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {name for action in actions for name in action.choices}


def _converse(args: argparse.Namespace) -> int:
    if args.version:
        from hermes_agent.app.main import main

        return main(["--version"])
    from hermes_agent.app import conversation  # asyncio, the model and the plugins

    return conversation.run(
        oneshot=args.oneshot,
        first=args.first,
        continue_last=args.continue_last,
        resume=args.resume,
        model=args.model,
    )
