"""`hermes rollback`: the files as they were before the agent changed them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    from hermes_agent.workspace.checkpoints import Checkpoints
    from hermes_agent.workspace.checkpoints.shadow import Checkpoint

__all__ = ["add_rollback"]

CHECKPOINT_ID = argument(
    "id", metavar="NUMBER|ID", help="number of `hermes rollback list` in this folder, or id of any folder"
)
FILES = argument("files", metavar="FILE", nargs="*", help="these files or folders alone")

rollback_command = CliSubcommand("rollback", "put files back as they were before the agent changed them")
add_rollback = rollback_command.add


def _checkpoints() -> Checkpoints:
    from hermes_agent.workspace.checkpoints import Checkpoints

    return Checkpoints.from_config(hermes_home(), load(hermes_home()).get, os.environ)


@rollback_command.default(all=False, json=False)
@rollback_command.action(
    "list",
    "list the checkpoints of this folder (also without an action)",
    argument("--all", action="store_true", help="those of every folder"),
    JSON,
)
def _list_checkpoints(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import checkpoint_rows
    from hermes_agent.workspace.rollback import CHECKPOINTS_OFF

    checkpoints = _checkpoints()
    found = checkpoints.all("" if args.all else _current_folder())
    if args.json:
        print_json([one._asdict() for one in found])
    elif found:
        print("\n".join(checkpoint_rows(found, folders=args.all, numbers=not args.all)))
    else:
        print("there are no checkpoints" + ("" if args.all else " of this folder (--all lists the others')"))
    if not checkpoints.limits.enabled:
        print(CHECKPOINTS_OFF, file=sys.stderr)
    return 0


def _current_folder() -> str:
    return os.path.realpath(os.curdir)


def _resolve_places(names: list[str]) -> list[str]:
    from hermes_agent.workspace.rollback import checkpoint_path

    return [checkpoint_path(name, _current_folder()) for name in names]


@rollback_command.action("diff", "show what changed since a checkpoint", CHECKPOINT_ID, FILES)
def _diff_checkpoint(args: Args) -> int:
    checkpoints = _checkpoints()
    _show_difference(checkpoints, checkpoints.choose(args.id, _current_folder()), _resolve_places(args.files))
    return 0


def _show_difference(checkpoints: Checkpoints, chosen: Checkpoint, files: list[str]) -> None:
    from hermes_agent.workspace.output import printable

    for line in checkpoints.diff(chosen, files).splitlines():
        print(printable(line) if sys.stdout.isatty() else line)


@rollback_command.action("restore", "put files back, after a checkpoint of what is there", CHECKPOINT_ID, FILES, YES)
def _restore_checkpoint(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import restore_text

    checkpoints, files = _checkpoints(), _resolve_places(args.files)
    chosen = checkpoints.choose(args.id, _current_folder())  # once: numbers change with each new checkpoint
    if not args.yes:
        if not sys.stdin.isatty():
            raise UserError("files are put back only when somebody says so", hint="Add --yes.")
        _show_difference(checkpoints, chosen, files)
        if input("Put this back as it was? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    print(restore_text([checkpoints.restore(chosen, files)]))
    return 0


@rollback_command.action("prune", "remove what is over the limits of `checkpoints` in the config")
def _prune_checkpoints(args: Args) -> int:
    print(f"{_checkpoints().prune()} checkpoints removed")
    return 0
