"""`hermes plugins`: its subcommands; the module of a subcommand is imported when it runs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any, cast

from hermes_agent.app.cli.command import JSON, YES, Argument, argument, exclusive
from hermes_agent.core.lazy_types import LazyNamedTuple

__all__ = ["add"]

_Subparsers = Any
"""The object that `add_subparsers` returns; argparse has no public type for it."""


class _Action(LazyNamedTuple):
    """A subcommand of `hermes plugins`."""

    about: str
    runs: str
    """Its function, as `module.function` of this package."""
    arguments: Sequence[Argument] = ()
    examples: str = ""
    aliases: Sequence[str] = ()


def _kind(parser: argparse._ActionsContainer) -> object:
    from hermes_agent.app.plugins.new import kinds  # lists a folder: only when arguments are parsed

    return parser.add_argument("--kind", choices=kinds(), default="tool", help="what it registers (default: tool)")


NAME_HELP = "key or name, as `hermes plugins list` shows it"
NAME = argument("name", metavar="NAME", help=NAME_HELP)

ACTIONS = {
    "install": _Action(
        "fetch a plugin, show what it registers, and install it",
        "install.run_install",
        (
            argument("source", metavar="SRC", help="source of the plugin, see the examples"),
            argument("--ref", metavar="REF", help="branch, tag or full commit of a git source"),
            argument(
                "--enable",
                action=argparse.BooleanOptionalAction,
                default=None,
                help="whether it runs; a running daemon takes it at once",
            ),
            argument("--force", action="store_true", help="replace the installed plugin of that name"),
            argument("--allow-removed", action="store_true", help="install it although the catalogue removed it"),
            argument("-y", "--yes", action="store_true", help="answer every question with yes, and prompt for nothing"),
        ),
        """\
  hermes plugins install owner/repo                     from GitHub
  hermes plugins install dice                           from the catalogue (plugins.catalog), at its commit
  hermes plugins install owner/repo/subdir --ref v1.2   a folder of it, at a tag
  hermes plugins install https://git.example.org/x.git@main#plugins/x
  hermes plugins install ./my-plugin --enable           a copy of a directory
  hermes plugins install plugin.zip --no-enable
  hermes plugins install pip:some-plugin                a Python package with an entry point""",
    ),
    "list": _Action(
        "show every plugin and whether it runs",
        "home.run_list",
        (
            exclusive(
                argument("--json", action="store_true", help="print a list of objects"),
                argument("--plain", action="store_true", help="print status, source, version and name, a line each"),
            ),
            argument("--enabled", action="store_true", help="only enabled plugins"),
            argument("--user", action="store_true", help="only plugins of the home and the project"),
            argument("--no-bundled", action="store_true", help="leave out the bundled plugins"),
        ),
        aliases=["ls"],
    ),
    "info": _Action(
        "show all details of a plugin",
        "info.run_info",
        (NAME, argument("--json", action="store_true", help="print an object")),
        "  hermes plugins info calculator\n  hermes plugins info image_gen/foo --json",
    ),
    "update": _Action(
        "fetch a plugin again from its source, and show the differences",
        "install.run_update",
        (
            argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP),
            argument("--all", action="store_true", help="every plugin with a known origin"),
            argument("--diff", action="store_true", help="show the differences of texts, not only the names of files"),
            argument("--force", action="store_true", help="update it even if it was changed here or does not load"),
            YES,
        ),
        "  hermes plugins update calculator --diff\n  hermes plugins update --all --yes",
    ),
    "search": _Action(
        "search the catalogue of plugins that `plugins.catalog` names",
        "catalog_commands.run_search",
        (argument("term", nargs="?", default="", metavar="TERM", help="words of names and descriptions"), JSON),
        "  hermes plugins search\n  hermes plugins search calendar --json",
        aliases=["browse"],
    ),
    "check-updates": _Action(
        "show which installed plugins have an update; nothing is changed",
        "catalog_commands.run_check_updates",
        (JSON,),
        "  hermes plugins check-updates\n  hermes plugins check-updates --json",
    ),
    "trust-update-url": _Action(
        "trust the address that a plugin names for its updates",
        "catalog_commands.run_trust_update_url",
        (NAME, YES),
        "  hermes plugins trust-update-url calculator",
    ),
    "pack": _Action(
        "install, show or write a pack of several plugins",
        "pack.run_pack",
        (
            argument("action", choices=("install", "show", "export"), help="what to do"),
            argument("source", nargs="?", default="", metavar="SRC", help="file or https address of a pack"),
            argument("-f", "--force", action="store_true", help="replace installed plugins of the same names"),
            argument("--enabled-only", action="store_true", help="export only enabled plugins"),
            argument("--name", default="my-pack", metavar="NAME", help="name of the exported pack"),
        ),
        """\
  hermes plugins pack show ./hermes-pack.yaml
  hermes plugins pack install https://example.org/hermes-pack.yaml
  hermes plugins pack export --enabled-only --name mine > hermes-pack.yaml""",
    ),
    "validate": _Action(
        "check a plugin before it is published (exit status 1: a check failed)",
        "validate.run_validate",
        (
            argument("path", metavar="PATH", help="folder of the plugin"),
            argument("--json", action="store_true", help="print an object"),
            argument("--no-sandbox", action="store_true", help="load it with your rights"),
        ),
        "  hermes plugins validate ./my-plugin\n  hermes plugins validate ./my-plugin --json",
    ),
    "remove": _Action(
        "remove a plugin; its files, settings and data are kept",
        "remove.run_remove",
        (NAME, YES),
        "  hermes plugins remove calculator\n  hermes plugins rm calculator --yes",
        aliases=["rm", "uninstall"],
    ),
    "enable": _Action(
        "enable a plugin; a running daemon loads it at once",
        "enable.run_enable",
        (
            NAME,
            argument(
                "--allow-tool-override",
                action=argparse.BooleanOptionalAction,
                default=None,
                help="whether it may replace tools of the agent or of other plugins",
            ),
            argument(
                "--dev",
                action="store_true",
                help="for development: run it without a comparison of its files, see `grant`",
            ),
        ),
        "  hermes plugins enable calculator\n  hermes plugins enable mine --dev",
    ),
    "capabilities": _Action(
        "show the permissions that plugins ask for and have; grant or withdraw some of one plugin",
        "consent.run_capabilities",
        (
            argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP),
            argument(
                "--grant", action="append", default=[], metavar="ID", help="grant a capability, such as tool:todo"
            ),
            argument("--revoke", action="append", default=[], metavar="ID", help="withdraw a granted capability"),
            argument("--json", action="store_true", help="print an object"),
        ),
        """\
  hermes plugins capabilities
  hermes plugins capabilities calculator --grant network:api.example.org
  hermes plugins capabilities calculator --json""",
    ),
    "disable": _Action("disable a plugin", "enable.run_disable", (NAME,)),
    "grant": _Action(
        "show what changed in a plugin since it was granted, and grant it as it is now",
        "enable.run_grant",
        (NAME, YES),
        "  hermes plugins grant calculator\n  hermes plugins grant calculator --yes",
    ),
    "check": _Action(
        "load every plugin in an empty home and report conflicts (exit status 1)",
        "check.run_check",
        (
            argument("directories", nargs="*", metavar="DIR", help="further plugins, or folders of plugins"),
            argument("--json", action="store_true", help="print the report as JSON"),
            argument("--strict", action="store_true", help="warnings are errors"),
            argument("--config", metavar="FILE", help="config file with the `plugins` section to use"),
            argument("--out", metavar="FILE", help="write plugins.json"),
            argument(
                "--no-sandbox",
                action="store_true",
                help="load them with your rights, on a machine that is a sandbox itself, such as a builder",
            ),
            argument(
                "--report", metavar="FILE", help=argparse.SUPPRESS
            ),  # how the check in the sandbox passes its report to its parent
        ),
        "  hermes plugins check ./my-plugin\n  hermes plugins check --strict --json ./plugins",
    ),
    "doctor": _Action(
        "say for each plugin why it runs or not, and list problems (exit status 1)",
        "doctor.run_doctor",
        (argument("--json", action="store_true", help="print a list of objects"),),
        "  hermes plugins doctor\n  hermes plugins doctor --json",
    ),
    "new": _Action(
        "create a working plugin with its test",
        "new.run_new",
        (
            argument("name", metavar="NAME", help="name of the plugin, and of the folder"),
            _kind,
            argument("--package", action="store_true", help="a Python package with an entry point"),
            argument("--dir", metavar="DIR", help="folder to write, in place of ./NAME"),
        ),
        """\
  hermes plugins new dice                          a tool, in ./dice
  hermes plugins new guard --kind hook
  hermes plugins new notebook --kind memory --dir ~/src/notebook
  hermes plugins new dice --package                a Python package with an entry point""",
    ),
    "reload": _Action(
        "let the running daemon load changed plugins again",
        "info.run_reload",
        (argument("name", nargs="?", metavar="NAME", help=NAME_HELP),),
        "  hermes plugins reload\n  hermes plugins reload calculator",
    ),
    "explain": _Action(
        "load the plugins and explain why one runs or not (exit status 1: it does not)",
        "info.run_explain",
        (NAME, JSON),
    ),
    "index": _Action(
        "write an index of the bundled and declared plugins, which makes starts faster",
        "packages.run_index",
        (argument("--output", metavar="FILE", help="file to write; without it, print the index"),),
        "  hermes plugins index --output /srv/plugins.json",
    ),
}


def add(subparsers: _Subparsers, action: str = "") -> None:
    """Add the command `plugins`.

    Args:
        action: the only subcommand to add, for a quick start; any other word adds all of them.
    """
    parser = subparsers.add_parser("plugins", help="install, list, enable, update, check and write plugins")
    commands = parser.add_subparsers(prog=parser.prog, dest="plugins_command", metavar="COMMAND")
    _runs(parser, "enable.run_checklist")
    for name in (action,) if action in ACTIONS else ACTIONS:
        one = ACTIONS[name]
        known = commands.add_parser(
            name,
            help=one.about,
            description=f"{one.about[:1].upper()}{one.about[1:]}.",
            epilog=one.examples and f"examples:\n{one.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            aliases=one.aliases,
        )
        for each in one.arguments:
            each(known)
        _runs(known, one.runs)


def _runs(parser: argparse.ArgumentParser, place: str) -> None:
    """Set the function that runs the command: `module.function` of this package, imported when it runs."""

    def run(args: argparse.Namespace) -> int:
        module, _, function = place.partition(".")
        found = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return cast("Callable[[argparse.Namespace], int]", found)(args)

    parser.set_defaults(run=run)
