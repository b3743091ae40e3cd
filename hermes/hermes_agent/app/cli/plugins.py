"""`hermes plugins`: list, enable, disable, check."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.credentials import Credentials
    from hermes_agent.host import Host
    from hermes_agent.plugins.listing import Row

__all__ = ["add"]

_Subparsers = Any
"""argparse gives its sub-parsers object no public type."""


def add(subparsers: _Subparsers) -> None:
    """Add the command `plugins`."""
    parser = subparsers.add_parser("plugins", help="list, enable, disable and check plugins")
    commands = parser.add_subparsers(prog=parser.prog, dest="plugins_command", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", aliases=["ls"], help="show every plugin and whether it runs")
    form = listing.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects")
    form.add_argument("--plain", action="store_true", help="print status, source, version and name, a line each")
    listing.add_argument("--enabled", action="store_true", help="only those that run")
    listing.add_argument("--user", action="store_true", help="only those of the home and the project")
    listing.add_argument("--no-bundled", action="store_true", help="leave out what came with the agent")
    listing.set_defaults(run=_list)

    enable = commands.add_parser("enable", help="let a plugin run from the next start on")
    enable.add_argument("name", metavar="NAME", help="key or name, as `hermes plugins list` shows it")
    enable.add_argument(
        "--allow-tool-override",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether it may replace tools of the agent or of other plugins",
    )
    enable.set_defaults(run=_enable)

    disable = commands.add_parser("disable", help="do not run a plugin any more")
    disable.add_argument("name", metavar="NAME", help="key or name, as `hermes plugins list` shows it")
    disable.set_defaults(run=_disable)

    check = commands.add_parser("check", help="load every plugin in an empty home and report conflicts (status 1)")
    check.add_argument("directories", nargs="*", metavar="DIR", help="further plugins, or folders of plugins")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    check.add_argument("--strict", action="store_true", help="warnings are errors")
    check.add_argument("--config", metavar="FILE", help="config file whose `plugins` section holds")
    check.add_argument("--out", metavar="FILE", help="write plugins.json")
    check.set_defaults(run=_check)


def _list(args: argparse.Namespace) -> int:
    # only for this command: the config, YAML and the discovery
    from hermes_agent.config import hermes_home, load
    from hermes_agent.plugins.debug_log import quiet_or_debug
    from hermes_agent.plugins.gate import PluginSettings
    from hermes_agent.plugins.listing import list_plugins

    quiet_or_debug(os.environ)
    home = hermes_home()
    settings = PluginSettings.of(load(home).values)
    listing = list_plugins(home, os.environ, Path.cwd(), settings, _Secrets(home))
    rows = [row for row in listing.rows if _is_wanted(row, args)]
    if args.json:
        print(json.dumps([_as_object(row) for row in rows], indent=2, ensure_ascii=False))
    elif args.plain:
        for row in rows:
            print(f"{row.status:<12} {row.source:<8} {row.version:<8} {row.key}")
    else:
        print("\n".join(_table(rows)) if rows else f"No plugins. Those of this home go to {home}/plugins/.")
    for unknown in listing.unknown:
        print(f"warning: plugins.enabled: {unknown.text}", file=sys.stderr)
    return EXIT_OK


class _Secrets:
    """The secrets of a home, opened when a plugin asks for one: most ask for none, and a listing is to be quick."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._opened: Credentials | None = None

    def get(self, name: str, /) -> str | None:
        if self._opened is None:
            from hermes_agent.credentials import Credentials

            self._opened = Credentials(self._home, os.environ)
        return self._opened.get(name)


def _is_wanted(row: Row, args: argparse.Namespace) -> bool:
    if args.enabled and row.status != "enabled":
        return False
    if args.user and row.source not in ("user", "project"):
        return False
    return not (args.no_bundled and row.source == "bundled")


def _as_object(row: Row) -> dict[str, str]:
    first = ("name", "status", "version", "description", "source")  # upstream's keys, then ours
    values = row._asdict()
    return {key: values[key] for key in (*first, "key", "kind", "path", "reason")}


def _table(rows: list[Row]) -> list[str]:
    cells = [("NAME", "VERSION", "STATUS", "SOURCE", "")]
    cells += [(row.key, row.version, row.status, row.source, row.reason or row.description) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[4]]).rstrip() for line in cells]


def _enable(args: argparse.Namespace) -> int:
    return _switch(args.name, on=True, allow_tool_override=args.allow_tool_override)


def _disable(args: argparse.Namespace) -> int:
    return _switch(args.name, on=False, allow_tool_override=None)


def _switch(name: str, *, on: bool, allow_tool_override: bool | None) -> int:
    # only for these commands: the config and its editor
    from hermes_agent.config import hermes_home, load
    from hermes_agent.plugins.debug_log import quiet_or_debug
    from hermes_agent.plugins.enabling import switch
    from hermes_agent.plugins.gate import PluginSettings, decide, has_value

    quiet_or_debug(os.environ)
    home = hermes_home()
    settings = PluginSettings.of(load(home).values)
    done = switch(
        home,
        name,
        on=on,
        settings=settings,
        environ=os.environ,
        cwd=Path.cwd(),
        allow_tool_override=allow_tool_override,
    )
    key = done.manifest.key
    word = "enabled" if on else "disabled"
    if not done.changed:
        print(f"{key} is {word} already.")
    else:
        print(f"{key} is {word} from the next start on; a running daemon keeps what it has until then.")
    if on:
        gate = decide(done.manifest, PluginSettings.of(load(home).values), has_value(_Secrets(home)))
        if gate.reason:
            print(f"It will not run yet: {gate.reason}")
    return EXIT_OK


def _check(args: argparse.Namespace) -> int:
    from hermes_agent.plugins.check import check  # the tool pipeline

    report = check(
        [Path(directory) for directory in args.directories],
        _open_host,
        config=Path(args.config) if args.config else None,
    )
    document = report.document(strict=args.strict)
    if args.out:
        _write(Path(args.out), document)
    if args.json:
        print(document, end="")
    text = report.render(strict=args.strict)
    if text:
        print(text, file=sys.stderr)
    if report.errors(strict=args.strict):
        return EXIT_FAILED
    if not args.json:
        print(f"{len(report.plugins)} plugin(s) checked, no conflicts.")
    return EXIT_OK


def _open_host(home: Path) -> Host:
    from hermes_agent.compat import import_hook  # both after the fork: the parent stays small
    from hermes_agent.host import Host

    host = Host.build(home)
    import_hook.install()
    return host


def _write(path: Path, text: str) -> None:
    from hermes_agent.io.files import write_atomic

    try:
        write_atomic(path, text)
    except OSError as exc:
        raise UserError(f"cannot write {path}: {exc.strerror}") from exc
