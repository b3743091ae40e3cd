"""`hermes logs`: the daemon's log, from the journal or from `agent.log`, whichever applies."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import Args, CliSubcommand, argument
from hermes_agent.config import hermes_home

if TYPE_CHECKING:
    from hermes_agent.service.entries import LogEntry, LogFilter
    from hermes_agent.service.log_file import LogFile
    from hermes_agent.service.log_journal import JournalReader

__all__ = ["add_logs"]

LEVELS = {level: level.upper() for level in ("debug", "info", "warning", "error", "critical")} | {"warn": "WARNING"}

logs_command = CliSubcommand("logs", "show the log of the daemon and of the terminal")
add_logs = logs_command.add


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records")
    return int(text)


@logs_command.default(
    argument("-f", "--follow", action="store_true", help="go on showing what is logged, until Ctrl-C"),
    argument("-n", "--lines", type=_parse_count, default=50, metavar="N", help="how many records (50)"),
    argument(
        "--level",
        type=str.lower,
        choices=LEVELS,
        default="debug",
        metavar="LEVEL",
        help="the least level: debug, info, warning, error or critical",
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
        help="where to read; auto takes what the daemon recorded at its start",
    ),
    argument("--unit", metavar="NAME", help="read the journal of this systemd unit"),
)
def _show_logs(args: Args) -> None:
    # In the function: no other command needs them, and start-up is to be quick.
    from hermes_agent.service.entries import LogFilter
    from hermes_agent.service.log_source import choose_reader, parse_since

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
        # The reader has enough (`hermes logs | head`); Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_entries(entries: Iterable[LogEntry], *, as_json: bool) -> None:
    from hermes_agent.service.entries import as_json as json_form
    from hermes_agent.service.entries import as_text as text_form

    form = json_form if as_json else text_form
    for entry in entries:
        print(form(entry), flush=True)


def _explain_empty(log: LogFile | JournalReader, wanted: LogFilter, *, following: bool) -> None:
    """Say on stderr why there is nothing to see."""
    from hermes_agent.service.entries import LogFilter
    from hermes_agent.service.log_file import LogFile

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
    """Commands in a terminal log to the file even where the daemon logs to the journal."""
    from hermes_agent.service.log_file import LogFile

    if isinstance(log, LogFile) or not (home / "logs" / "agent.log").exists():
        return ""
    return f"This was {_log_name(log)}; what commands in a terminal logged: hermes logs --source file"


def _log_name(log: LogFile | JournalReader) -> str:
    from hermes_agent.service.log_file import LogFile

    if isinstance(log, LogFile):
        return str(log.path)
    return f"the journal of {log.unit}" if log.unit else f"the journal of invocation {log.invocation}"


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
