"""The command line: find the subcommand, parse its arguments, show errors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes_agent import __version__
from hermes_agent.config.home import selected_profile
from hermes_agent.core.errors import UserError
from hermes_agent.core.text import SUBCOMMANDS

if TYPE_CHECKING:
    import argparse

DAEMON = ["gateway", "run"]
"""The command of a daemon's unit: a daemon keeps what it imports, so that no parser of arguments is loaded for it."""
EPILOG = """\
Without a command, `hermes` opens a chat in the terminal.
A question on standard input is answered like -z: `echo "what is in this folder?" | hermes`.
Exit status of -z: 0: answered; 1: not or only partly answered (the reason is on stderr); 2: wrong usage.
The pages that messages name are installed with the program: `hermes self docs docs/operator/models.md`.
Plugins may add commands: `hermes PLUGIN-COMMAND --help`. Those that were loaded once are listed above.
"""


MODULES = {
    "auth": "cli.model:add_auth",
    "bundles": "cli.bundles:add_bundles",
    "chat": "cli.chat:add_chat",
    "commands": "cli.commands:add_commands",
    "completion": "cli.completion:add_completion",
    "config": "cli.config:add_config",
    "cron": "cli.features:add_cron",
    "doctor": "cli.home:add_doctor",
    "gateway": "cli.gateway:add_gateway",
    "hooks": "cli.hooks:add_hooks",
    "import": "imports.command:add_import",
    "insights": "cli.insights:add_insights",
    "logs": "cli.home:add_logs",
    "mcp": "cli.tools:add_mcp",
    "memory": "cli.features:add_memory",
    "model": "cli.model:add_model",
    "pairing": "cli.gateway:add_pairing",
    "plugins": "plugins:add",
    "profile": "cli.home:add_profile",
    "proposals": "cli.proposals:add_proposals",
    "rollback": "cli.sessions:add_rollback",
    "self": "program.commands:add_self",
    "send": "cli.gateway:add_send",
    "sessions": "cli.sessions:add_sessions",
    "setup": "setup.command:add_setup",
    "skills": "skills.command:add_skills",
    "state": "cli.home:add_state",
    "tools": "cli.tools:add_tools",
    "uninstall": "program.commands:add_uninstall",
    "update": "program.commands:add_update",
}
"""Module and function of each subcommand; the module is imported when its subcommand is used."""
SUMMARIES = Path(__file__).with_name("cli") / "summaries.txt"
"""A line `NAME SUMMARY` for each subcommand, from the declarations; so `hermes --help` imports none of them."""


def read_summaries() -> dict[str, str]:
    """Return what each subcommand does, by name."""
    lines = SUMMARIES.read_text("utf-8").splitlines()
    return {name: summary.strip() for name, _, summary in (line.partition(" ") for line in lines)}


def build_parser(
    subcommands: Sequence[str] = SUBCOMMANDS, plugins_action: str = "", *, listed: bool = False
) -> argparse.ArgumentParser:
    """Return the parser of all commands except those of plugins.

    Args:
        subcommands: the subcommands to add; a used subcommand need not import the others.
        listed: names and summaries of all subcommands, without their arguments, as `hermes --help` shows them.
        plugins_action: the same for the many subcommands of `plugins`; empty adds all of them.
    """
    import argparse

    from hermes_agent.app.cli.command import ACCEPT_HOOKS
    from hermes_agent.app.cli.parser import Parser

    parser = Parser(
        prog="hermes",
        description="An agent that lives on your machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("-z", "--oneshot", metavar="QUESTION", help="answer one question on stdout and exit")
    parser.add_argument("-f", "--first", metavar="QUESTION", help="open a chat and ask this first")
    parser.add_argument("-c", "--continue", dest="continue_last", action="store_true", help="resume the last session")
    parser.add_argument("-r", "--resume", metavar="ID", help="resume this session (see `hermes sessions list`)")
    parser.add_argument("-p", "--profile", metavar="NAME", help="work in this profile (`hermes profile`); comes first")
    parser.add_argument("--instance", metavar="NAME", help="ask this agent of the machine; comes first")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error; comes first")
    parser.add_argument("-m", "--model", metavar="NAME", help="use this model instead of the configured one")
    ACCEPT_HOOKS(parser)
    parser.set_defaults(run=_open_conversation)
    # prog: without it argparse makes a help formatter, which imports shutil
    subparsers = parser.add_subparsers(prog=parser.prog, metavar="COMMAND", title="commands", dest="command")
    if listed:
        for name, summary in read_summaries().items():
            subparsers.add_parser(name, help=summary, add_help=False)
    for name in subcommands:
        module, _, function = MODULES[name].partition(":")
        add = getattr(importlib.import_module(f"hermes_agent.app.{module}"), function)
        add(subparsers, *([plugins_action] if name == "plugins" else []))
    return parser


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    is_debugged = list(argv[:1]) == ["--debug"]
    argv = argv[1:] if is_debugged else argv
    try:
        if argv and argv[0].partition("=")[0] == "--instance":
            from hermes_agent.app import daemon_client  # most commands name no agent of the machine

            argv = daemon_client.select_instance(argv, os.environ)
        else:
            argv = selected_profile(argv, os.environ)
        if list(argv) == DAEMON:
            from hermes_agent.app.daemon_process import run_daemon_process

            return run_daemon_process()
        name = argv[0] if argv and not argv[0].startswith("-") else None
        if name is not None and name not in SUBCOMMANDS:
            from hermes_agent.app import (
                plugin_subcommands,
            )  # loads plugins: only for a name that no built-in subcommand has

            return plugin_subcommands.run_plugin_command(name, argv[1:], SUBCOMMANDS)
        if name is not None:
            parser = build_parser((name,), "".join(argv[1:2]))
        elif argv and argv[0] in ("-h", "--help"):
            parser = build_parser((), listed=True)
            _add_plugin_commands(parser)
        else:
            parser = build_parser(SUBCOMMANDS)
            if not {"-h", "--help"}.isdisjoint(argv):
                _add_plugin_commands(parser)
        args = parser.parse_args(argv)
        return cast("Callable[[argparse.Namespace], int]", args.run)(args)
    except UserError as error:
        if is_debugged:
            import traceback  # only for --debug

            traceback.print_exc()
        print(f"{_journal_prefix()}hermes: {error}", file=sys.stderr)
        return error.exit_status


def _add_plugin_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of plugins to the help, in a section of their own; no command adds no section."""
    from hermes_agent.app import plugin_subcommands  # scans plugins: only when the help is shown

    text = plugin_subcommands.help_text(SUBCOMMANDS).replace("%(", "% (")  # otherwise argparse fills it in
    if text:
        parser.add_argument_group("commands of plugins", text.removeprefix("  "))


def _journal_prefix() -> str:
    """Return the priority prefix of an error line if stderr is the journal, or ""."""
    if "JOURNAL_STREAM" not in os.environ:
        return ""
    from hermes_agent.logs.handlers import stderr_is_journal  # a terminal shows no priorities

    return "<3>" if stderr_is_journal(os.environ) else ""


def _open_conversation(args: argparse.Namespace) -> int:
    if args.version:
        print(f"hermes-agent {__version__}")
        return 0
    from hermes_agent.app import daemon_client

    if (door := daemon_client.daemon_socket(os.environ)) is not None:
        if args.accept_hooks:
            raise UserError(f"the daemon at {door} has no option --accept-hooks", hint="Its operator allows hooks.")
        return daemon_client.converse(door, args)
    from hermes_agent.app import conversation  # asyncio, the model and the plugins

    return conversation.run(
        conversation.ConversationRequest(args.oneshot, args.first, args.continue_last, args.resume, args.model)
    )
