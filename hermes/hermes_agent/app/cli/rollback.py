"""`hermes rollback`: the files as they were before the agent changed them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_agent.workspace.checkpoints import Checkpoints

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("rollback", help="put files back as they were before the agent changed them")
    parser.set_defaults(run=_list, all=False, json=False)
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION")
    listing = actions.add_parser("list", help="list the checkpoints of this folder (also without an action)")
    listing.add_argument("--all", action="store_true", help="those of every folder")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    for name, text in (
        ("diff", "show what changed since a checkpoint"),
        ("restore", "put files back, after a checkpoint of what is there"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("id", metavar="ID", help="as `hermes rollback list` shows it")
        action.add_argument("files", metavar="FILE", nargs="*", help="these files or folders alone")
        action.set_defaults(run=_diff if name == "diff" else _restore)
    action.add_argument("-y", "--yes", action="store_true", help="do not ask")
    prune = actions.add_parser("prune", help="remove what is over the limits of `checkpoints` in the config")
    prune.set_defaults(run=_prune)


def _checkpoints() -> Checkpoints:
    import os

    from hermes_agent.config import hermes_home, load
    from hermes_agent.workspace.checkpoints import Checkpoints

    return Checkpoints.of(hermes_home(), load(hermes_home()).get, os.environ)


def _list(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from hermes_agent.workspace.checkpoints import listed
    from hermes_agent.workspace.rollback import OFF

    checkpoints = _checkpoints()
    found = checkpoints.every("" if args.all else str(Path.cwd().resolve()))
    if args.json:
        print(json.dumps([one._asdict() for one in found], indent=2))
    elif found:
        print("\n".join(listed(found, folders=args.all)))
    else:
        print("there are no checkpoints" + ("" if args.all else " of this folder (--all lists the others')"))
    if not checkpoints.limits.enabled:
        print(OFF, file=sys.stderr)
    return 0


def _places(names: list[str]) -> list[str]:
    import os

    from hermes_agent.workspace.rollback import place

    return [place(name, os.path.realpath(os.curdir)) for name in names]


def _diff(args: argparse.Namespace) -> int:
    from hermes_agent.workspace.output import visible

    for line in _checkpoints().diff(args.id, _places(args.files)).splitlines():
        print(visible(line) if sys.stdout.isatty() else line)
    return 0


def _restore(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError
    from hermes_agent.workspace.checkpoints import told

    checkpoints, files = _checkpoints(), _places(args.files)
    if not args.yes:
        if not sys.stdin.isatty():
            raise UserError("files are put back only when somebody says so", hint="Add --yes.")
        if not _diff(args) and input("Put this back as it was? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    print(told([checkpoints.restore(args.id, files)]))
    return 0


def _prune(args: argparse.Namespace) -> int:
    print(f"{_checkpoints().prune()} checkpoints removed")
    return 0
