"""`hermes state`: is state.db whole, what is too old, which copies are there to go back to."""

from __future__ import annotations

import time
from pathlib import Path

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import UserError

__all__ = ["add_state"]

state_command = CliSubcommand("state", "check, trim and restore what is stored in state.db")
add_state = state_command.add


def _state_path() -> Path:
    return hermes_home() / "state.db"


@state_command.action("check", "read every page (exit status 1: it is damaged)", JSON)
def _check_state(args: Args) -> int:
    from hermes_agent.store.upkeep import check_database

    path = _state_path()
    if not path.exists():
        print("nothing is stored yet")
        return 0
    found = check_database(path)
    if args.json:
        print_json(found._asdict())
        return 1 if found.faults else 0
    size, free = found.size
    print(f"{path}: {size / 1e6:.1f} MB, {free / 1e6:.1f} MB of them free")
    for owner, (version, reader) in sorted(found.versions.items()):
        print(f"  {owner}: version {version}, readable by releases that know {reader}")
    print("  " + ", ".join(f"{name} {count}" for name, count in found.rows.items()))
    for fault in found.faults:
        print(f"damaged: {fault}")
    print("damaged; `hermes state restore-points` lists copies to put back" if found.faults else "whole")
    return 1 if found.faults else 0


@state_command.action("expire", "remove sessions and files that nobody used for sessions.retention_days")
def _expire_state(args: Args) -> int:
    from hermes_agent.host.upkeep import EXPIRING, expire_files
    from hermes_agent.store.upkeep import expire_rows

    config = load(hermes_home())
    path = _state_path()
    removed = 0
    if path.exists():
        removed = expire_rows(path, EXPIRING, config.get("sessions.retention_days"), config.get("sessions.max_size_mb"))
    files = expire_files(path.parent, config.get("sessions.retention_days"))
    print(f"{removed} rows removed" + (f", and {files} files of the cache" if files else ""))
    return 0


@state_command.action("restore-points", "list the copies from before migrations")
def _list_restore_points(args: Args) -> int:
    from hermes_agent.store.restore_points import list_restore_points

    found = list_restore_points(_state_path())
    for point in found:
        stat = point.stat()
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stat.st_mtime))
        print(f"{point.name}  {made}  {stat.st_size / 1e6:.1f} MB")
    if not found:
        print("none yet: one is made before the tables of a release that was in use are changed")
    return 0


@state_command.action(
    "restore",
    "put a copy back; the daemon must not run",
    argument("name", metavar="NAME", help="as `hermes state restore-points` lists it"),
)
def _restore_point(args: Args) -> int:
    from hermes_agent.service.lock import HomeLock
    from hermes_agent.store.restore_points import list_restore_points, restore_from_point

    path = _state_path()
    point = next((one for one in list_restore_points(path) if one.name == args.name), None)
    if point is None:
        raise UserError(
            f"there is no restore point {args.name!r}", hint="`hermes state restore-points` lists what there is."
        )
    with HomeLock(hermes_home()):
        aside = restore_from_point(path, point)
    print(f"{point.name} is in place; what was there before is {aside}")
    return 0
