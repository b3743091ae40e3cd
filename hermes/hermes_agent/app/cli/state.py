"""`hermes state`: is state.db whole, what is too old, which copies are there to go back to."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("state", help="check, trim and restore what is stored in state.db")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)
    check = actions.add_parser("check", help="read every page (exit status 1: it is damaged)")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=_check)
    expire = actions.add_parser("expire", help="remove sessions that nobody used for sessions.retention_days")
    expire.set_defaults(run=_expire)
    listing = actions.add_parser("restore-points", help="list the copies from before migrations")
    listing.set_defaults(run=_points)
    restore = actions.add_parser("restore", help="put a copy back; the daemon must not run")
    restore.add_argument("name", metavar="NAME", help="as `hermes state restore-points` lists it")
    restore.set_defaults(run=_restore)


def _path() -> Path:
    from hermes_agent.config import hermes_home

    return hermes_home() / "state.db"


def _check(args: argparse.Namespace) -> int:
    from hermes_agent.store.upkeep import check

    path = _path()
    if not path.exists():
        print("nothing is stored yet")
        return 0
    found = check(path)
    if args.json:
        print(json.dumps(found._asdict(), indent=2))
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


def _expire(args: argparse.Namespace) -> int:
    from hermes_agent.config import hermes_home, load
    from hermes_agent.host.upkeep import EXPIRING
    from hermes_agent.store.upkeep import expire

    config = load(hermes_home())
    path = _path()
    removed = 0
    if path.exists():
        removed = expire(path, EXPIRING, config.get("sessions.retention_days"), config.get("sessions.max_size_mb"))
    print(f"{removed} rows removed")
    return 0


def _points(args: argparse.Namespace) -> int:
    from hermes_agent.store.restore_points import points

    found = points(_path())
    for point in found:
        stat = point.stat()
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stat.st_mtime))
        print(f"{point.name}  {made}  {stat.st_size / 1e6:.1f} MB")
    if not found:
        print("none yet: one is made before the tables of a release that was in use are changed")
    return 0


def _restore(args: argparse.Namespace) -> int:
    from hermes_agent.config import hermes_home
    from hermes_agent.core.errors import UserError
    from hermes_agent.service.lock import HomeLock
    from hermes_agent.store.restore_points import points, put_back

    path = _path()
    point = next((one for one in points(path) if one.name == args.name), None)
    if point is None:
        raise UserError(
            f"there is no restore point {args.name!r}", hint="`hermes state restore-points` lists what there is."
        )
    with HomeLock(hermes_home()):
        aside = put_back(path, point)
    print(f"{point.name} is in place; what was there before is {aside}")
    return 0
