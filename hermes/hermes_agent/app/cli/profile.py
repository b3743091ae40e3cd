"""`hermes profile`: several agents on one machine, each with a home of its own. `docs/operator/profiles.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, argument, print_json
from hermes_agent.config import hermes_home, load, make_home
from hermes_agent.config.profiles import (
    ACTIVE_PROFILE_FILE,
    DEFAULT_PROFILE,
    HomeProfile,
    profile_at,
    profiles,
    root_home,
)
from hermes_agent.core.errors import EXIT_OK, ConfigError, UserError
from hermes_agent.io.files import write_atomic

__all__ = ["add_profile"]

CLONED_FILES = ("config.yaml", "config.local.yaml", ".env", "SOUL.md")
"""What a clone takes over. Not `auth.json`: a login is renewed by one home, and the other's would become void."""
FIRST_PORT = 8642

profile_command = CliSubcommand(
    "profile",
    "several agents on this machine, each with a home of its own",
    epilog="`hermes -p NAME COMMAND` works in a profile once, `hermes profile use NAME` from now on.",
)
add_profile = profile_command.add

PROFILE_NAME = argument("name", metavar="NAME")


@profile_command.default(json=False)
@profile_command.action("list", "which there are, which is used, which daemons run", JSON)
def _list_profiles(args: Args) -> int:
    found = [_describe_profile(one, hermes_home()) for one in profiles()]
    if args.json:
        return print_json(found)
    width = max(len(one["name"]) for one in found)
    for one in found:
        daemon = "no daemon" if one["pid"] is None else f"daemon {one['pid'] or 'runs'}"
        print(f"{'*' if one['used'] else ' '} {one['name']:{width}}  {daemon:13}  {one['model'] or '-'}  {one['home']}")
    return EXIT_OK


def _describe_profile(one: HomeProfile, used: Path) -> dict[str, Any]:
    from hermes_agent.service.lock import lock_holder

    try:
        model = str(load(one.home).get("model.default") or "")
    except ConfigError:
        model = "(its config is wrong)"
    pid = lock_holder(one.home)
    return {"name": one.name, "home": str(one.home), "used": one.home == used, "pid": pid, "model": model}


@profile_command.action(
    "create",
    "make one",
    PROFILE_NAME,
    argument("--clone", action="store_true", help="begin with config, .env and SOUL.md of the present one"),
    argument("--clone-from", metavar="OTHER", help="the same of another one"),
)
def _create_profile(args: Args) -> None:
    import shutil  # with every compressor: the help lists every command

    from hermes_agent.config.edit import set_value

    made = profile_at(args.name, there=False)
    if made.home.exists():
        raise UserError(f"there is a profile {args.name!r} already", hint=f"It lies in {made.home}.")
    source = profile_at(args.clone_from).home if args.clone_from else hermes_home() if args.clone else None
    port = _free_port()
    make_home(made.home)
    cloned = [] if source is None else [source / name for name in CLONED_FILES]
    for file in cloned:
        if file.is_file():
            shutil.copy2(file, made.home / file.name)
    set_value(made.home, ("server", "port"), port)
    print(f"profile {args.name} is made, in {made.home}; its daemon listens on port {port}")
    print(f"`hermes -p {args.name}` talks to it, `hermes -p {args.name} gateway run` runs its daemon")


def _free_port() -> int:
    """Return a port that no profile's config names."""
    taken = set()
    for one in profiles():
        try:
            taken.add(load(one.home).get("server.port"))
        except ConfigError as exc:
            print(f"hermes: profile {one.name}: {exc.message}", file=sys.stderr)
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


@profile_command.action("use", "work in one from now on, where neither -p nor HERMES_HOME says otherwise", PROFILE_NAME)
def _use_profile(args: Args) -> None:
    found = profile_at(args.name)
    write_atomic(root_home() / ACTIVE_PROFILE_FILE, found.name + "\n")
    print(f"{found.name} is used from now on ({found.home})")


@profile_command.action(
    "rename", "give one another name; its daemon must not run", PROFILE_NAME, argument("new_name", metavar="NEW_NAME")
)
def _rename_profile(args: Args) -> None:
    found, wanted = _find_named_profile(args.name), profile_at(args.new_name, there=False)
    if wanted.home.exists():
        raise UserError(f"there is a profile {args.new_name!r} already", hint="Choose another name.")
    _check_unused(found)
    found.home.rename(wanted.home)
    _replace_active(found.name, wanted.name)
    print(f"{args.name} is {args.new_name} now")


@profile_command.action("delete", "remove one with everything in it; its daemon must not run", PROFILE_NAME, YES)
def _delete_profile(args: Args) -> None:
    import shutil  # as in _create

    found = _find_named_profile(args.name)
    _check_unused(found)
    if not args.yes:
        try:
            said = input(f"Remove {found.home} with its sessions, memories and keys? Write its name: ")
        except EOFError:
            said = ""
        if said.strip() != found.name:
            raise UserError("nothing is removed", hint="-y removes without a question.")
    shutil.rmtree(found.home)
    _replace_active(found.name, "")
    print(f"{found.name} is removed")


def _find_named_profile(name: str) -> HomeProfile:
    if name == DEFAULT_PROFILE:
        raise UserError("the default home is no profile that can be renamed or removed", hint="It holds the others.")
    return profile_at(name)


def _check_unused(found: HomeProfile) -> None:
    from hermes_agent.service.lock import lock_holder

    if lock_holder(found.home) is not None:
        raise UserError(
            f"the daemon of profile {found.name} runs", hint=f"`hermes -p {found.name} gateway stop` ends it."
        )


def _replace_active(name: str, instead: str) -> None:
    """Let the profile that is used be another one, when it was this one; empty is the default home."""
    place = root_home() / ACTIVE_PROFILE_FILE
    if place.is_file() and place.read_text(encoding="utf-8").strip() == name:
        if instead:
            write_atomic(place, instead + "\n")
        else:
            place.unlink()
