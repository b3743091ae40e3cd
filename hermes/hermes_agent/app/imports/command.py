"""The command `hermes import`: upstream, openclaw, list, show, undo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, activity, argument, print_json
from hermes_agent.core.errors import EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.app.imports.content import ImportReport

DEFAULTS = {"upstream": "~/.hermes", "openclaw": "~/.openclaw"}
"""Usual home of each program."""

import_command = CliSubcommand(
    "import",
    "copy sessions, memory, skills, plugins and settings from upstream or OpenClaw",
    description="Copies the home of another program into this one. The other home is only read. Nothing that is here "
    "is overwritten without --overwrite, an import may be repeated, and `hermes import undo` takes it back.",
    epilog="Example: hermes import upstream ~/.hermes-upstream --dry-run",
)
add_import = import_command.add

DRY_RUN = argument("--dry-run", action="store_true", help="only say what would be imported; write nothing")
OVERWRITE = argument("--overwrite", action="store_true", help="replace what is different here; undo brings it back")
ALL = argument("--all", action="store_true", help="show every item, also what is here already")
IMPORT_ID = argument(
    "id", nargs="?", default="", metavar="ID", help="the import, or the beginning of its id (the last)"
)


def _path(program: str) -> Callable[..., object]:
    usual = DEFAULTS[program]
    return argument("path", nargs="?", default=usual, metavar="PATH", help=f"its home ({usual})")


@import_command.action(
    "upstream", "copy the home of the published hermes-agent", _path("upstream"), DRY_RUN, OVERWRITE, ALL, JSON
)
def _import_upstream(args: Args) -> int:
    return _run("upstream", args)


@import_command.action("openclaw", "copy the home of OpenClaw", _path("openclaw"), DRY_RUN, OVERWRITE, ALL, JSON)
def _import_openclaw(args: Args) -> int:
    return _run("openclaw", args)


def _run(program: str, args: Args) -> int:
    from hermes_agent.app.imports.importer import ImportOptions, run_import
    from hermes_agent.config import hermes_home

    with activity("comparing the homes") as say:
        progress = say if args.json or sys.stderr.isatty() else StepLines()
        report = run_import(
            ImportOptions(program, Path(args.path), hermes_home(), args.overwrite, args.dry_run, progress)
        )
    if args.json:
        return print_json(report.as_json())
    _print_report(report, is_complete=args.all)
    if report.is_dry_run:
        print("\nNothing was written.")
    elif report.id:
        print(f"\nimport {report.id}: checked by counts and hashes; the source is unchanged")
        print("`hermes import undo` takes it back, `hermes doctor` checks what is here now.")
    else:
        print("\nThere is nothing new to import; nothing was written.")
    return EXIT_OK


def _print_report(report: ImportReport, *, is_complete: bool) -> None:
    from hermes_agent.app.imports.report_text import report_lines

    for line in report_lines(report, is_complete=is_complete):
        print(line.encode("utf-8", "backslashreplace").decode())


class StepLines:
    """Prints the steps of long work on standard error: a line for each kind of activity."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def __call__(self, text: str) -> None:
        """Take the current activity: a verb, and what it is done to."""
        kind = text if text.startswith("checking") else text.partition(" ")[0]
        if kind not in self._kinds:
            self._kinds.add(kind)
            print(f"{kind.capitalize()} …", flush=True, file=sys.stderr)


@import_command.action("list", "the imports into this home", JSON)
def _list(args: Args) -> int:
    from hermes_agent.app.imports.importer import describe_age
    from hermes_agent.app.imports.journal import list_journals
    from hermes_agent.config import hermes_home

    found = list_journals(hermes_home())
    if args.json:
        fields = ("id", "program", "source", "made", "state")
        return print_json([{name: one.value[name] for name in fields} for one in found])
    for one in found:
        state = {"done": "", "undone": "undone"}.get(one.state, "interrupted")
        print(f"{one.id}  {describe_age(one.value['made'])}  {one.value['source']}  {state}".rstrip())
    if not found:
        print("Nothing was imported into this home.")
    return EXIT_OK


@import_command.action("show", "the report of an import", IMPORT_ID, ALL, JSON)
def _show(args: Args) -> int:
    from hermes_agent.app.imports.content import ImportItem, ImportReport
    from hermes_agent.app.imports.journal import find_journal
    from hermes_agent.config import hermes_home

    value = find_journal(hermes_home(), args.id).value["report"]
    if args.json:
        return print_json(value)
    _print_report(
        ImportReport(**{**value, "items": [ImportItem(**item) for item in value["items"]]}), is_complete=args.all
    )
    return EXIT_OK


@import_command.action("undo", "take an import back; what was changed since stays", IMPORT_ID, JSON)
def _undo(args: Args) -> int:
    from hermes_agent.app.imports.importer import undo_import
    from hermes_agent.app.imports.journal import find_journal
    from hermes_agent.config import hermes_home

    journal = find_journal(hermes_home(), args.id)
    with activity("taking the import back"):
        kept = undo_import(hermes_home(), journal)
    if args.json:
        return print_json({"id": journal.id, "kept": kept})
    for text in kept:
        print(text)
    print(f"import {journal.id} is undone" + (f"; {len(kept)} things stay" if kept else ""))
    return EXIT_OK
