"""`hermes plugins`: the life of a plugin, a module per subcommand; each is imported when it is run."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, cast

__all__ = ["add"]

_Subparsers = Any
"""argparse gives its sub-parsers object no public type."""
NAME_HELP = "key or name, as `hermes plugins list` shows it"


def add(subparsers: _Subparsers, action: str = "") -> None:
    """Add the command `plugins`.

    Args:
        action: the subcommand that is asked for, which needs not wait for the others; another word adds them all.
    """
    parser = subparsers.add_parser("plugins", help="install, list, enable, update, check and write plugins")
    commands = parser.add_subparsers(prog=parser.prog, dest="plugins_command", metavar="COMMAND")
    _runs(parser, "choosing", "run_checklist")
    parts: dict[tuple[str, ...], Callable[[_Subparsers], None]] = {
        ("install",): _add_install,
        ("list",): _add_list,
        ("info",): _add_info,
        ("update",): _add_update,
        ("remove",): _add_remove,
        ("enable", "disable"): _add_switches,
        ("grant",): _add_grant,
        ("check",): _add_check,
        ("doctor",): _add_doctor,
        ("new",): _add_new,
        ("reload",): _add_reload,
        ("explain",): _add_explain,
        ("index",): _add_index,
    }
    for part in [part for names, part in parts.items() if action in names] or parts.values():
        part(commands)


def _runs(parser: argparse.ArgumentParser, module: str, function: str) -> None:
    """Let the parser's command be a function of a module of this package, imported when it is run."""

    def run(args: argparse.Namespace) -> int:
        found = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return cast("Callable[[argparse.Namespace], int]", found)(args)

    parser.set_defaults(run=run)


def _parser(commands: _Subparsers, name: str, about: str, examples: str = "", **more: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=f"{about[:1].upper()}{about[1:]}.",
        epilog=examples and f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )
    return parser


INSTALL_EXAMPLES = """\
  hermes plugins install owner/repo                     from GitHub
  hermes plugins install owner/repo/subdir --ref v1.2   a folder of it, at a tag
  hermes plugins install https://git.example.org/x.git@main#plugins/x
  hermes plugins install ./my-plugin --enable           a copy of a directory
  hermes plugins install plugin.zip --no-enable
  hermes plugins install pip:some-plugin                a Python package with an entry point"""


def _add_install(commands: _Subparsers) -> None:
    install = _parser(
        commands, "install", "fetch a plugin, show what it registers, and put it in its place", INSTALL_EXAMPLES
    )
    install.add_argument("source", metavar="SRC", help="where it comes from, see the examples")
    install.add_argument("--ref", metavar="REF", help="branch, tag or full commit of a git source")
    install.add_argument(
        "--enable", action=argparse.BooleanOptionalAction, default=None, help="whether it runs from the next start on"
    )
    install.add_argument("--force", action="store_true", help="replace the installed plugin of that name")
    install.add_argument(
        "-y", "--yes", action="store_true", help="answer every question with yes, and prompt for nothing"
    )
    _runs(install, "installing", "run_install")


def _add_list(commands: _Subparsers) -> None:
    listing = _parser(commands, "list", "show every plugin and whether it runs", aliases=["ls"])
    form = listing.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects")
    form.add_argument("--plain", action="store_true", help="print status, source, version and name, a line each")
    listing.add_argument("--enabled", action="store_true", help="only those that run")
    listing.add_argument("--user", action="store_true", help="only those of the home and the project")
    listing.add_argument("--no-bundled", action="store_true", help="leave out what came with the agent")
    _runs(listing, "listing", "run_list")


def _add_info(commands: _Subparsers) -> None:
    examples = "  hermes plugins info calculator\n  hermes plugins info image_gen/foo --json"
    info = _parser(commands, "info", "show everything that is known of one plugin", examples)
    info.add_argument("name", metavar="NAME", help=NAME_HELP)
    info.add_argument("--json", action="store_true", help="print an object")
    _runs(info, "informing", "run_info")


def _add_update(commands: _Subparsers) -> None:
    examples = "  hermes plugins update calculator --diff\n  hermes plugins update --all --yes"
    update = _parser(
        commands, "update", "fetch a plugin again from where it came, and show what is different", examples
    )
    update.add_argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP)
    update.add_argument("--all", action="store_true", help="every plugin whose origin is known")
    update.add_argument("--diff", action="store_true", help="show the differences of texts, not only names of files")
    update.add_argument("--force", action="store_true", help="although it was changed here, or does not load")
    update.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _runs(update, "updating", "run_update")


def _add_remove(commands: _Subparsers) -> None:
    examples = "  hermes plugins remove calculator\n  hermes plugins rm calculator --yes"
    remove = _parser(
        commands, "remove", "take a plugin away; its files, settings and data are kept", examples,
        aliases=["rm", "uninstall"],
    )  # fmt: skip
    remove.add_argument("name", metavar="NAME", help=NAME_HELP)
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _runs(remove, "removing", "run_remove")


def _add_switches(commands: _Subparsers) -> None:
    enable = _parser(commands, "enable", "let a plugin run from the next start on")
    enable.add_argument("name", metavar="NAME", help=NAME_HELP)
    enable.add_argument(
        "--allow-tool-override",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether it may replace tools of the agent or of other plugins",
    )
    _runs(enable, "switching", "run_enable")
    disable = _parser(commands, "disable", "do not run a plugin any more")
    disable.add_argument("name", metavar="NAME", help=NAME_HELP)
    _runs(disable, "switching", "run_disable")


def _add_grant(commands: _Subparsers) -> None:
    examples = "  hermes plugins grant calculator\n  hermes plugins grant calculator --yes"
    grant = _parser(
        commands, "grant", "show what changed in a plugin since it was granted, and grant it as it is now", examples
    )
    grant.add_argument("name", metavar="NAME", help=NAME_HELP)
    grant.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _runs(grant, "granting", "run_grant")


def _add_check(commands: _Subparsers) -> None:
    examples = "  hermes plugins check ./my-plugin\n  hermes plugins check --strict --json ./plugins"
    check = _parser(commands, "check", "load every plugin in an empty home and report conflicts (status 1)", examples)
    check.add_argument("directories", nargs="*", metavar="DIR", help="further plugins, or folders of plugins")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.add_argument("--strict", action="store_true", help="warnings are errors")
    check.add_argument("--config", metavar="FILE", help="config file whose `plugins` section holds")
    check.add_argument("--out", metavar="FILE", help="write plugins.json")
    _runs(check, "checking", "run_check")


def _add_reload(commands: _Subparsers) -> None:
    examples = "  hermes plugins reload\n  hermes plugins reload calculator"
    reload = _parser(commands, "reload", "have the running daemon load changed plugins anew", examples)
    reload.add_argument("name", nargs="?", metavar="NAME", help=NAME_HELP)
    _runs(reload, "reloading", "run_reload")


def _add_index(commands: _Subparsers) -> None:
    examples = "  hermes plugins index --output /srv/plugins.json"
    index = _parser(
        commands, "index", "write down the bundled and declared plugins, so that a start looks less", examples
    )
    index.add_argument("--output", metavar="FILE", help="where to; without it the index is printed")
    _runs(index, "indexing", "run_index")


def _add_doctor(commands: _Subparsers) -> None:
    doctor = _parser(
        commands,
        "doctor",
        "say of every plugin why it runs or not, and what is wrong around them (status 1)",
        "  hermes plugins doctor\n  hermes plugins doctor --json",
    )
    doctor.add_argument("--json", action="store_true", help="print a list of objects")
    _runs(doctor, "doctor", "run_doctor")


NEW_EXAMPLES = """\
  hermes plugins new dice                          a tool, in ./dice
  hermes plugins new guard --kind hook
  hermes plugins new notebook --kind memory --dir ~/src/notebook
  hermes plugins new dice --package                a Python package with an entry point"""


def _add_new(commands: _Subparsers) -> None:
    from hermes_agent.plugins.template import kinds  # it lists a folder: only where the command line is read

    new = _parser(commands, "new", "write a plugin that works, with its test", NEW_EXAMPLES)
    new.add_argument("name", metavar="NAME", help="name of the plugin, and of the folder")
    new.add_argument("--kind", choices=kinds(), default="tool", help="what it brings (default: tool)")
    new.add_argument("--package", action="store_true", help="a Python package with an entry point")
    new.add_argument("--dir", metavar="DIR", help="folder to write, in place of ./NAME")
    _runs(new, "making", "run_new")


def _add_explain(commands: _Subparsers) -> None:
    explain = _parser(commands, "explain", "load the plugins and say why one runs, or does not (exit status 1)")
    explain.add_argument("name", metavar="NAME", help=NAME_HELP)
    _runs(explain, "explaining", "run_explain")
