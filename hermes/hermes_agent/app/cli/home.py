"""`hermes profile`, `hermes state`, `hermes logs` and `hermes doctor`.

A profile is an agent with a home of its own (docs/operator/profiles.md). `state` checks and restores `state.db`. `logs`
reads the log of the daemon from the journal or the log file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, activity, argument, exclusive, print_json
from hermes_agent.config import hermes_home, load, make_home
from hermes_agent.config.home import (
    ACTIVE_PROFILE_FILE,
    DEFAULT_PROFILE,
    HomeProfile,
    profile_at,
    profiles,
    root_home,
)
from hermes_agent.core.errors import EXIT_OK, ConfigError, UserError
from hermes_agent.system.files import write_atomic

if TYPE_CHECKING:
    from hermes_agent.logs.entries import LogEntry, LogFilter
    from hermes_agent.logs.readers import JournalReader, LogFile


CLONED_FILES = ("config.yaml", "config.local.yaml", ".env", "SOUL.md")
"""Files that a clone copies. `auth.json` is left out: the first refresh of a login invalidates its copies."""
FIRST_PORT = 8642

profile_command = CliSubcommand(
    "profile",
    "manage profiles: several agents on this machine, each with its own home",
    epilog="`hermes -p NAME COMMAND` works in a profile once, `hermes profile use NAME` from now on.",
)
add_profile = profile_command.add

PROFILE_NAME = argument("name", metavar="NAME")


@profile_command.default(json=False)
@profile_command.action("list", "list the profiles, with the one in use and running daemons", JSON)
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
    from hermes_agent.service.daemon_state import lock_holder

    try:
        model = load(one.home).settings.model.default
    except ConfigError:
        model = "(its config is wrong)"
    pid = lock_holder(one.home)
    return {"name": one.name, "home": str(one.home), "used": one.home == used, "pid": pid, "model": model}


@profile_command.action(
    "create",
    "create a profile",
    PROFILE_NAME,
    argument("--clone", action="store_true", help="copy config, .env and SOUL.md of the current profile"),
    argument("--clone-from", metavar="OTHER", help="copy them from this profile"),
)
def _create_profile(args: Args) -> None:
    import shutil  # imports every compressor, which the help does not need

    from hermes_agent.config.edit import set_value

    made = profile_at(args.name, must_exist=False)
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
    """Return a port that no profile uses."""
    taken = set()
    for one in profiles():
        try:
            taken.add(load(one.home).settings.server.port)
        except ConfigError as exc:
            print(f"hermes: profile {one.name}: {exc.message}", file=sys.stderr)
    return next(port for port in range(FIRST_PORT, 65536) if port not in taken)


@profile_command.action("use", "use a profile from now on, unless -p or HERMES_HOME is given", PROFILE_NAME)
def _use_profile(args: Args) -> None:
    found = profile_at(args.name)
    write_atomic(root_home() / ACTIVE_PROFILE_FILE, found.name + "\n")
    print(f"{found.name} is used from now on ({found.home})")


@profile_command.action(
    "rename", "rename a profile; its daemon must not run", PROFILE_NAME, argument("new_name", metavar="NEW_NAME")
)
def _rename_profile(args: Args) -> None:
    found, wanted = _find_named_profile(args.name), profile_at(args.new_name, must_exist=False)
    if wanted.home.exists():
        raise UserError(f"there is a profile {args.new_name!r} already", hint="Choose another name.")
    _check_unused(found)
    found.home.rename(wanted.home)
    _replace_active(found.name, wanted.name)
    print(f"{args.name} is {args.new_name} now")


@profile_command.action("delete", "delete a profile with everything in it; its daemon must not run", PROFILE_NAME, YES)
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
    from hermes_agent.service.daemon_state import lock_holder

    if lock_holder(found.home) is not None:
        raise UserError(
            f"the daemon of profile {found.name} runs", hint=f"`hermes -p {found.name} gateway stop` ends it."
        )


def _replace_active(name: str, instead: str) -> None:
    """Activate another profile in place of `name`; "" stands for the default home."""
    place = root_home() / ACTIVE_PROFILE_FILE
    if place.is_file() and place.read_text(encoding="utf-8").strip() == name:
        if instead:
            write_atomic(place, instead + "\n")
        else:
            place.unlink()


state_command = CliSubcommand("state", "check, trim and restore what is stored in state.db")
add_state = state_command.add


def _state_path() -> Path:
    return hermes_home() / "state.db"


@state_command.action("check", "read every page (exit status 1: it is damaged)", JSON)
def _check_state(args: Args) -> int:
    from hermes_agent.store.database import check_database

    path = _state_path()
    if not path.exists():
        if args.json:
            return print_json({"versions": {}, "rows": {}, "size": [0, 0], "faults": []})
        print("nothing is stored yet")
        return 0
    with activity("reading every page"):
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


@state_command.action("expire", "remove sessions and files that were not used for sessions.retention_days")
def _expire_state(args: Args) -> int:
    from hermes_agent.host.maintenance import EXPIRING, expire_files
    from hermes_agent.store.database import expire_rows

    limits = load(hermes_home()).settings.sessions
    path = _state_path()
    removed = 0
    if path.exists():
        with activity("removing old sessions"):
            removed = expire_rows(path, EXPIRING, limits.retention_days, limits.max_size_mb)
    with activity("removing old files"):
        files = expire_files(path.parent, limits.retention_days)
    print(f"{removed} rows removed" + (f", and {files} files of the cache" if files else ""))
    return 0


@state_command.action("restore-points", "list the copies from before migrations", JSON)
def _list_restore_points(args: Args) -> int:
    from hermes_agent.store.migrations import list_restore_points

    found = list_restore_points(_state_path())
    if args.json:
        stats = [(point.name, point.stat()) for point in found]
        return print_json([{"name": name, "made_at": s.st_mtime, "bytes": s.st_size} for name, s in stats])
    for point in found:
        stat = point.stat()
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stat.st_mtime))
        print(f"{point.name}  {made}  {stat.st_size / 1e6:.1f} MB")
    if not found:
        print("none yet: one is made before the tables of a release that was in use are changed")
    return 0


@state_command.action(
    "restore",
    "restore a copy; the daemon must not run",
    argument("name", metavar="NAME", help="name of the copy in `hermes state restore-points`"),
)
def _restore_point(args: Args) -> int:
    from hermes_agent.service.daemon_state import HomeLock
    from hermes_agent.store.migrations import list_restore_points, restore_from_point

    path = _state_path()
    point = next((one for one in list_restore_points(path) if one.name == args.name), None)
    if point is None:
        raise UserError(
            f"there is no restore point {args.name!r}", hint="`hermes state restore-points` lists what there is."
        )
    with HomeLock(hermes_home()), activity(f"restoring {point.name}"):
        aside = restore_from_point(path, point)
    print(f"{point.name} is in place; what was there before is {aside}")
    return 0


LEVELS = {level: level.upper() for level in ("debug", "info", "warning", "error", "critical")} | {"warn": "WARNING"}

logs_command = CliSubcommand("logs", "show the log of the daemon and of the terminal")
add_logs = logs_command.add


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records")
    return int(text)


@logs_command.default(
    argument("-f", "--follow", action="store_true", help="show new records until Ctrl-C"),
    argument("-n", "--lines", type=_parse_count, default=50, metavar="N", help="number of records (default: 50)"),
    argument(
        "--level",
        type=str.lower,
        choices=LEVELS,
        default="debug",
        metavar="LEVEL",
        help="lowest level: debug, info, warning, error or critical",
    ),
    argument("--session", metavar="ID", help="only records of this session"),
    argument("--plugin", metavar="NAME", help="only records of this plugin"),
    argument(
        "--since", metavar="TIME", help="2026-11-21, '2026-11-21 08:30', today, yesterday, or how long ago: 10m, 2h, 3d"
    ),
    argument("--json", action="store_true", help="one JSON object a line: time, level, logger, message, session, …"),
    argument(
        "--source",
        choices=("auto", "journal", "file"),
        default="auto",
        help="where to read; auto: what the daemon recorded at its start",
    ),
    argument("--unit", metavar="NAME", help="read the journal of this systemd unit"),
)
def _show_logs(args: Args) -> None:
    # In the function: no other command needs these modules, and start-up must be quick.
    from hermes_agent.logs.entries import LogFilter
    from hermes_agent.logs.readers import choose_reader, parse_since

    wanted = LogFilter(
        level=LEVELS[args.level],
        session=args.session,
        plugin=args.plugin,
        since=parse_since(args.since) if args.since else None,
    )
    home = hermes_home()
    log = choose_reader(home, source=args.source, unit=args.unit)
    try:
        found = log.recent(args.lines, wanted)
        _print_entries(found, as_json=args.json)
        if not found:
            _explain_empty(log, wanted, following=args.follow)
        elif (note := _other_log_hint(log, home)) and not args.json:
            _print_note(note)
        if args.follow:
            _print_entries(log.follow(wanted), as_json=args.json)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader closed the pipe (`hermes logs | head`); Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_entries(entries: Iterable[LogEntry], *, as_json: bool) -> None:
    from hermes_agent.logs.entries import as_json as json_form
    from hermes_agent.logs.entries import as_text as text_form

    form = json_form if as_json else text_form
    for entry in entries:
        print(form(entry), flush=True)


def _explain_empty(log: LogFile | JournalReader, wanted: LogFilter, *, following: bool) -> None:
    """Explain on stderr why no entry is shown."""
    from hermes_agent.logs.entries import LogFilter
    from hermes_agent.logs.readers import LogFile

    ahead = " Waiting for more." if following else ""
    if isinstance(log, LogFile) and not log.exists():
        _print_note(
            f"Nothing is logged yet: there is no {log.path}, and no daemon has recorded with this home that it logs"
            f" to the journal. `hermes logs --unit hermes-agent` reads the journal of a unit.{ahead}"
        )
    elif wanted != LogFilter():
        _print_note(f"No record in {_log_name(log)} matches.{ahead}")
    else:
        _print_note(f"{_log_name(log)[0].upper()}{_log_name(log)[1:]} is empty.{ahead}")
    if not isinstance(log, LogFile) and log.may_be_hidden():
        _print_note("This user may not read the whole journal: run it with sudo, or join the group systemd-journal.")


def _other_log_hint(log: LogFile | JournalReader, home: Path) -> str:
    """Return the hint about the other log.

    Commands at a terminal log to the file even if the daemon logs to the journal.
    """
    from hermes_agent.logs.readers import LogFile

    if isinstance(log, LogFile) or not (home / "logs" / "agent.log").exists():
        return ""
    return f"This was {_log_name(log)}; what commands in a terminal logged: hermes logs --source file"


def _log_name(log: LogFile | JournalReader) -> str:
    from hermes_agent.logs.readers import LogFile

    if isinstance(log, LogFile):
        return str(log.path)
    return f"the journal of {log.unit}" if log.unit else f"the journal of invocation {log.invocation}"


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


doctor_command = CliSubcommand("doctor", "check the installation and suggest fixes")
add_doctor = doctor_command.add


@doctor_command.default(
    exclusive(
        argument("--offline", action="store_true", help="send no request to the model's server"),
        argument("--ask", action="store_true", help="ask the model a question and measure the time to the answer"),
    ),
    JSON,
    argument("--declared", metavar="FILE", help="start with this config in an empty home, without network, and stop"),
    argument(
        "--given",
        action="append",
        default=[],
        metavar="NAME",
        help="with --declared: a variable or credential that the service will have (may be repeated)",
    ),
    argument("--service", metavar="FILE", help="with --declared: what the unit gives, as JSON (docs/nix.md)"),
    argument("--strict", action="store_true", help="with --declared: warnings are errors"),
)
def _run_doctor(args: Args) -> int:
    if args.declared is not None:
        return _check_declared(args)
    from hermes_agent.app.cli.command import report_checks
    from hermes_agent.app.doctor import run_checks  # imports plugins, config and models

    return report_checks(run_checks(offline=args.offline, ask=args.ask), as_json=args.json)


def _check_declared(args: Args) -> int:
    """Check a declared config; status 78: the daemon would not start with it, or not do what it says."""
    from hermes_agent.app.cli.command import Diagnosis, print_lines
    from hermes_agent.app.declared import check_declared, read_declaration  # imports plugins, config and models
    from hermes_agent.core.errors import EXIT_CONFIG

    found = check_declared(read_declaration(Path(args.declared), args.given, args.service))
    is_refused = any(each.level == "error" or args.strict for each in found)
    if args.json:
        print_json({"valid": not is_refused, "findings": [each._asdict() for each in found]})
    else:
        levels = {"error": "wrong", "warning": "wrong" if args.strict else "note"}
        for each in found:
            print_lines([Diagnosis(levels[each.level], "declared", each.text, each.remedy)], width=10)  # type: ignore[arg-type]
        if not found:
            print_lines([Diagnosis("ok", "declared", f"the daemon starts with {args.declared}")], width=10)
    return EXIT_CONFIG if is_refused else EXIT_OK
