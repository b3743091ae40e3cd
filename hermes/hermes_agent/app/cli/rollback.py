"""`hermes rollback`: the files as they were before the agent changed them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import JSON, YES, Args, Command, argument, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    from hermes_agent.workspace.checkpoints import Checkpoints
    from hermes_agent.workspace.checkpoints.shadow import Checkpoint

__all__ = ["add"]

ID = argument("id", metavar="NUMBER|ID", help="number of `hermes rollback list` in this folder, or id of any folder")
FILES = argument("files", metavar="FILE", nargs="*", help="these files or folders alone")

command = Command("rollback", "put files back as they were before the agent changed them")
add = command.add


def _checkpoints() -> Checkpoints:
    from hermes_agent.workspace.checkpoints import Checkpoints

    return Checkpoints.of(hermes_home(), load(hermes_home()).get, os.environ)


@command.alone(all=False, json=False)
@command.action(
    "list",
    "list the checkpoints of this folder (also without an action)",
    argument("--all", action="store_true", help="those of every folder"),
    JSON,
)
def _list(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import listed
    from hermes_agent.workspace.rollback import OFF

    checkpoints = _checkpoints()
    found = checkpoints.every("" if args.all else _here())
    if args.json:
        print_json([one._asdict() for one in found])
    elif found:
        print("\n".join(listed(found, folders=args.all, numbers=not args.all)))
    else:
        print("there are no checkpoints" + ("" if args.all else " of this folder (--all lists the others')"))
    if not checkpoints.limits.enabled:
        print(OFF, file=sys.stderr)
    return 0


def _here() -> str:
    return os.path.realpath(os.curdir)


def _places(names: list[str]) -> list[str]:
    from hermes_agent.workspace.rollback import place

    return [place(name, _here()) for name in names]


@command.action("diff", "show what changed since a checkpoint", ID, FILES)
def _diff(args: Args) -> int:
    checkpoints = _checkpoints()
    _show(checkpoints, checkpoints.choose(args.id, _here()), _places(args.files))
    return 0


def _show(checkpoints: Checkpoints, chosen: Checkpoint, files: list[str]) -> None:
    from hermes_agent.workspace.output import visible

    for line in checkpoints.diff(chosen, files).splitlines():
        print(visible(line) if sys.stdout.isatty() else line)


@command.action("restore", "put files back, after a checkpoint of what is there", ID, FILES, YES)
def _restore(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import told

    checkpoints, files = _checkpoints(), _places(args.files)
    chosen = checkpoints.choose(args.id, _here())  # once: numbers change with each new checkpoint
    if not args.yes:
        if not sys.stdin.isatty():
            raise UserError("files are put back only when somebody says so", hint="Add --yes.")
        _show(checkpoints, chosen, files)
        if input("Put this back as it was? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    print(told([checkpoints.restore(chosen, files)]))
    return 0


@command.action("prune", "remove what is over the limits of `checkpoints` in the config")
def _prune(args: Args) -> int:
    print(f"{_checkpoints().prune()} checkpoints removed")
    return 0
