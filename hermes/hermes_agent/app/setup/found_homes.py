"""Homes of upstream and OpenClaw on this machine, which `hermes setup` offers to import.

Only the usual places are looked at. A database is opened immutable, so that SQLite writes nothing next to it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path
from urllib.parse import quote

from hermes_agent.app.cli.command import activity
from hermes_agent.app.imports.journal import list_journals
from hermes_agent.app.setup.questions import Questions
from hermes_agent.app.setup.steps import STATE_FILE
from hermes_agent.config import home_paths, load
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import JsonFile

PLACES = (
    ("upstream", ".hermes"),
    ("upstream", ".hermes-upstream"),
    ("openclaw", ".openclaw"),
    ("openclaw", ".clawdbot"),
)
"""Usual homes, below the user's directory."""


class FoundHome(LazyNamedTuple):
    """A home of another program."""

    program: str
    path: Path


def find_homes(home: Path, user_home: Path) -> list[FoundHome]:
    """Return the homes of other programs that were not imported yet.

    Args:
        home: the home of this agent, which is none of them.
    """
    done = {journal.value["source"] for journal in list_journals(home) if journal.state == "done"}
    found = [FoundHome(program, (user_home / name).resolve()) for program, name in PLACES]
    return [
        one
        for one in found
        if one.path != home.resolve()
        and str(one.path) not in done
        and (is_upstream(one.path) if one.program == "upstream" else _is_openclaw(one.path))
    ]


def is_upstream(path: Path) -> bool:
    """Return whether a home has a database of upstream."""
    database = path / "state.db"
    if not database.is_file():
        return False
    address = f"file:{quote(str(database))}?mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(address, uri=True)) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(schema_version)")}
        return "version" in columns and "owner" not in columns
    return False


def _is_openclaw(path: Path) -> bool:
    return (path / "openclaw.json").is_file() or (path / "agents").is_dir()


def refuse_upstream_home(home: Path) -> None:
    """Raise an error if upstream uses this home.

    Raises:
        UserError: it does; the text says how to import it.
    """
    if is_upstream(home):
        aside = home.with_name(f"{home.name}-upstream")
        raise UserError(
            f"{home} is the home of upstream's program, which has other tables in its state.db",
            hint=f"Move it aside, `mv {home} {aside}`, and run `hermes setup` again: it offers to import {aside}.",
        )


def offer_import(home: Path, wanted: str, questions: Questions) -> None:
    """Import the homes that the user wants.

    Args:
        wanted: the answer of the flag: `upstream`, `openclaw` or `none`; "" asks, or names the command.

    Raises:
        UserError: the home of the flag is not there, or cannot be imported.
    """
    found = [] if wanted == "none" else find_homes(home, Path.home())
    if wanted not in ("", "none"):
        chosen = [one for one in found if one.program == wanted]
        if not chosen:
            raise UserError(
                f"--import {wanted}: there is no home of it in {Path.home()} that is not imported yet",
                hint=f"`hermes import {wanted} PATH` imports one from another place.",
            )
        for one in chosen:
            _import(home, one)
        return
    for one in found:
        print(f"Found: the home of {one.program}, {one.path}")
        is_managed = home_paths(home).declared is not None  # the setup writes nothing there
        if (
            not is_managed
            and questions.can_ask
            and questions.confirm("Copy its sessions, memory, skills and settings?", default=True)
        ):
            try:
                _import(home, one)
            except UserError as exc:  # the setup goes on without it
                print(f"  {exc}", file=sys.stderr)
        else:
            print(f"  `hermes import {one.program} {one.path}` copies its sessions, memory, skills and settings.")


def _import(home: Path, one: FoundHome) -> None:
    from hermes_agent.app.imports.importer import ImportOptions, run_import
    from hermes_agent.app.imports.report_text import report_lines

    with activity("comparing the homes") as say:
        report = run_import(ImportOptions(one.program, one.path, home, progress=say))
    for line in report_lines(report):
        if line.strip() and not line.startswith("  "):
            print(f"  {line.strip()}")
    model = load(home).settings.model
    if model.provider:
        with JsonFile(home / STATE_FILE).change() as saved:  # the model step offers it first
            saved |= {"provider": model.provider, "model": model.default, "base_url": model.base_url}
    print("  `hermes import show` has the whole report, `hermes import undo` takes it back.")
