"""`hermes profile`: several agents on one machine, each with a home of its own. `docs/operator/profiles.md`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_agent.config.profiles import Profile

__all__ = ["add"]

CLONED = ("config.yaml", "config.local.yaml", ".env", "SOUL.md")
"""What a clone takes over. Not `auth.json`: a login is renewed by one home, and the other's would become void."""
FIRST_PORT = 8642


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "profile",
        help="several agents on this machine, each with a home of its own",
        epilog="`hermes -p NAME COMMAND` works in a profile once, `hermes profile use NAME` from now on.",
    )
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION")
    parser.set_defaults(run=_list, json=False)
    listing = actions.add_parser("list", help="which there are, which is used, which daemons run")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    create = actions.add_parser("create", help="make one")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--clone", action="store_true", help="begin with config, .env and SOUL.md of the present one")
    create.add_argument("--clone-from", metavar="OTHER", help="the same of another one")
    create.set_defaults(run=_create)
    use = actions.add_parser("use", help="work in one from now on, where neither -p nor HERMES_HOME says otherwise")
    use.add_argument("name", metavar="NAME")
    use.set_defaults(run=_use)
    rename = actions.add_parser("rename", help="give one another name; its daemon must not run")
    rename.add_argument("name", metavar="NAME")
    rename.add_argument("new_name", metavar="NEW_NAME")
    rename.set_defaults(run=_rename)
    delete = actions.add_parser("delete", help="remove one with everything in it; its daemon must not run")
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")
    delete.set_defaults(run=_delete)


def _list(args: argparse.Namespace) -> int:
    from hermes_agent.config.home import hermes_home
    from hermes_agent.config.profiles import profiles

    found = [_described(one, hermes_home()) for one in profiles()]
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    width = max(len(one["name"]) for one in found)
    for one in found:
        daemon = "no daemon" if one["pid"] is None else f"daemon {one['pid'] or 'runs'}"
        print(f"{'*' if one['used'] else ' '} {one['name']:{width}}  {daemon:13}  {one['model'] or '-'}  {one['home']}")
    return 0


def _described(one: Profile, used: Path) -> dict[str, Any]:
    from hermes_agent.config import load
    from hermes_agent.core.errors import ConfigError
    from hermes_agent.service.lock import holder

    try:
        model = str(load(one.home).get("model.default") or "")
    except ConfigError:
        model = "(its config is wrong)"
    pid = holder(one.home)
    return {"name": one.name, "home": str(one.home), "used": one.home == used, "pid": pid, "model": model}


def _create(args: argparse.Namespace) -> int:
    from hermes_agent.config.edit import set_value
    from hermes_agent.config.home import hermes_home, make_home
    from hermes_agent.config.profiles import profile_at
    from hermes_agent.core.errors import UserError

    made = profile_at(args.name, there=False)
    if made.home.exists():
        raise UserError(f"there is a profile {args.name!r} already", hint=f"It lies in {made.home}.")
    source = profile_at(args.clone_from).home if args.clone_from else hermes_home() if args.clone else None
    port = _free_port()
    make_home(made.home)
    cloned = [] if source is None else [source / name for name in CLONED]
    for file in cloned:
        if file.is_file():
            shutil.copy2(file, made.home / file.name)
    set_value(made.home, ("server", "port"), port)
    print(f"profile {args.name} is made, in {made.home}; its daemon listens on port {port}")
    print(f"`hermes -p {args.name}` talks to it, `hermes -p {args.name} gateway run` runs its daemon")
    return 0


def _free_port() -> int:
    """Return a port that no profile's config names."""
    from hermes_agent.config import load
    from hermes_agent.config.profiles import profiles
    from hermes_agent.core.errors import ConfigError

    taken = set()
    for one in profiles():
        try:
            taken.add(load(one.home).get("server.port"))
        except ConfigError as exc:
            print(f"hermes: profile {one.name}: {exc.message}", file=sys.stderr)
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


def _use(args: argparse.Namespace) -> int:
    from hermes_agent.config.profiles import ACTIVE, profile_at, root_home
    from hermes_agent.io.files import write_atomic

    found = profile_at(args.name)
    write_atomic(root_home() / ACTIVE, found.name + "\n")
    print(f"{found.name} is used from now on ({found.home})")
    return 0


def _rename(args: argparse.Namespace) -> int:
    from hermes_agent.config.profiles import profile_at
    from hermes_agent.core.errors import UserError

    found, wanted = _own(args.name), profile_at(args.new_name, there=False)
    if wanted.home.exists():
        raise UserError(f"there is a profile {args.new_name!r} already", hint="Choose another name.")
    _unused(found)
    found.home.rename(wanted.home)
    _forget(found.name, wanted.name)
    print(f"{args.name} is {args.new_name} now")
    return 0


def _delete(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError

    found = _own(args.name)
    _unused(found)
    if not args.yes:
        try:
            said = input(f"Remove {found.home} with its sessions, memories and keys? Write its name: ")
        except EOFError:
            said = ""
        if said.strip() != found.name:
            raise UserError("nothing is removed", hint="-y removes without a question.")
    shutil.rmtree(found.home)
    _forget(found.name, "")
    print(f"{found.name} is removed")
    return 0


def _own(name: str) -> Profile:
    from hermes_agent.config.profiles import DEFAULT, profile_at
    from hermes_agent.core.errors import UserError

    if name == DEFAULT:
        raise UserError("the default home is no profile that can be renamed or removed", hint="It holds the others.")
    return profile_at(name)


def _unused(found: Profile) -> None:
    from hermes_agent.core.errors import UserError
    from hermes_agent.service.lock import holder

    if holder(found.home) is not None:
        raise UserError(
            f"the daemon of profile {found.name} runs", hint=f"`hermes -p {found.name} gateway stop` ends it."
        )


def _forget(name: str, instead: str) -> None:
    """Let the profile that is used be another one, when it was this one; empty is the default home."""
    from hermes_agent.config.profiles import ACTIVE, root_home
    from hermes_agent.io.files import write_atomic

    place = root_home() / ACTIVE
    if place.is_file() and place.read_text(encoding="utf-8").strip() == name:
        if instead:
            write_atomic(place, instead + "\n")
        else:
            place.unlink()
