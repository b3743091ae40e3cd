"""The import of a home: read, compare, stage, commit. The source is hashed before and after."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes_agent.app.imports.comparison import Comparison
from hermes_agent.app.imports.content import HomeContent, ImportItem, ImportReport
from hermes_agent.app.imports.journal import FOLDER, ImportJournal, list_journals
from hermes_agent.app.imports.openclaw_home import read_openclaw
from hermes_agent.app.imports.source_tree import Progress, SourceTree, ignore_progress
from hermes_agent.app.imports.steps import commit, undo
from hermes_agent.app.imports.upstream_home import read_upstream
from hermes_agent.config import make_home
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.service.daemon_state import HomeLock

Reader = Callable[[SourceTree, Path], list[HomeContent]]
READERS: dict[str, Reader] = {"upstream": read_upstream, "openclaw": read_openclaw}
"""The reader of each program's home."""
_SPARE = 64 << 20
"""Bytes that stay free on the disk."""


class ImportOptions(LazyNamedTuple):
    """How a home is imported."""

    program: str
    path: Path
    home: Path
    """The home here."""
    overwrite: bool = False
    is_dry_run: bool = False
    progress: Progress = ignore_progress


def run_import(options: ImportOptions) -> ImportReport:
    """Import a home, or say what an import would do.

    Raises:
        UserError: it cannot be imported; nothing is changed.
    """
    source = _checked_source(options.path, options.home)
    if options.is_dry_run:
        with tempfile.TemporaryDirectory(prefix="hermes-import-") as work:
            return _plan(options, source, Path(work), None)
    make_home(options.home)
    with HomeLock(options.home):
        finish_interrupted(options.home, options.progress)
        journal = ImportJournal.create(options.home, options.program, source)
        try:
            report = _plan(options, source, journal.folder / "work", journal)
        except BaseException:
            journal.discard()
            raise
        if not journal.steps:
            journal.discard()
            return report
        report.id = journal.id
        journal.value["report"] = report.as_json()
        with _profile_locks(journal):
            commit(journal, options.progress)
        return report


def finish_interrupted(home: Path, progress: Progress = ignore_progress) -> list[str]:
    """Finish what an interrupted command left; return the ids of these imports.

    An import of which nothing was applied is removed.
    """
    finished = []
    for journal in list_journals(home):
        if journal.state == "staging":
            journal.discard()
        elif journal.state in ("committing", "undoing"):
            progress(f"finishing {journal.id}")
            with _profile_locks(journal):
                commit(journal, progress) if journal.state == "committing" else undo(journal)
            finished.append(journal.id)
    for place in (home / FOLDER).iterdir() if (home / FOLDER).is_dir() else ():
        if place.is_dir() and not (place / "journal.json").exists():
            shutil.rmtree(place)
    return finished


def undo_import(home: Path, journal: ImportJournal) -> list[str]:
    """Undo an import; return what was changed since and stays.

    Raises:
        UserError: it is undone already.
    """
    if journal.state == "undone":
        raise UserError(f"import {journal.id} is undone already", hint="`hermes import list` shows the others.")
    with HomeLock(home), _profile_locks(journal):
        if journal.state == "staging":
            journal.discard()
            return []
        return undo(journal)


@contextlib.contextmanager
def _profile_locks(journal: ImportJournal) -> Iterator[None]:
    """Hold the locks of the profiles that an import changes."""
    with contextlib.ExitStack() as held:
        for profile in sorted({step["profile"] for step in journal.steps} - {""}):
            make_home(journal.home_of(profile))
            held.enter_context(HomeLock(journal.home_of(profile)))
        yield


def _checked_source(path: Path, home: Path) -> Path:
    source, own = path.expanduser().resolve(), home.expanduser().resolve()
    if not source.is_dir():
        raise UserError(f"{path} is no folder", hint="Name the home of the other program, such as ~/.hermes.")
    if source == own:
        aside = f"{path}-before".replace("/-before", "-before")
        raise UserError(
            f"{path} is the home of this agent: it cannot be copied into itself",
            hint=f"Move it aside, `mv {path} {aside}`, and import {aside}; or import it into another home, with"
            " HERMES_HOME=OTHER.",
        )
    if own.is_relative_to(source):
        raise UserError(
            f"this agent's home {own} is inside {path}, which must not change",
            hint="Set HERMES_HOME to a folder outside of it.",
        )
    return source


def _plan(options: ImportOptions, source: Path, work: Path, journal: ImportJournal | None) -> ImportReport:
    """Read and compare; with a journal, stage what is new."""
    tree = SourceTree(source, options.progress)
    before = tree.digest
    _check_space(tree.size, options.home if journal is not None else work)
    report = ImportReport(options.program, str(source), str(options.home), is_dry_run=journal is None)
    report.digest, report.files, report.size = before, len(tree.files), tree.size
    homes = READERS[options.program](tree, work)
    targets: set[Path] = set()
    for content in homes:
        if content.profile and options.home.parent.name == "profiles":
            reason = f"a profile has no profiles: `hermes -p NAME import {options.program} {source}/profiles/…`"
            report.items.append(ImportItem("profile", content.profile, "not imported", reason, profile=content.profile))
            continue
        home = options.home / "profiles" / content.profile if content.profile else options.home
        comparison = Comparison(tree, content, home, targets, work, journal, overwrite=options.overwrite)
        comparison.run(options.progress)
        report.items += comparison.items
        report.notes += comparison.notes
    options.progress("checking the source")
    after = SourceTree(source, options.progress)
    if after.digest != before:
        changed = {name for name in {*tree.files, *after.files} if tree.files.get(name) != after.files.get(name)}
        raise UserError(
            f"{source} changed while it was read ({', '.join(sorted(changed)[:3])}); nothing is imported",
            hint="Stop the program that uses it, and try again.",
        )
    report.notes += _notes(report, source)
    return report


def _check_space(size: int, home: Path) -> None:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < size + _SPARE:
        raise UserError(
            f"{size / 1e6:,.0f} MB are to be copied to {place}, which has {free / 1e6:,.0f} MB free",
            hint="Make room, or set HERMES_HOME to a folder on another disk.",
        )


def _notes(report: ImportReport, source: Path) -> list[str]:
    notes = []
    if any(item.kind == "job" and item.outcome == "new" for item in report.items):
        notes.append("scheduled jobs run as soon as the daemon runs; stop the other program, or they run twice")
    if (pid := _running(source)) is not None:
        notes.append(f"the other program runs (pid {pid}): what it stores from now on is not imported")
    return notes


def _running(source: Path) -> int | None:
    """Return the process that upstream's pid file names, if there is one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = (source / "gateway.pid").read_text(encoding="utf-8")
        pid = int("".join(char if char.isdigit() else " " for char in text).split()[0])
        os.kill(pid, 0)
        return pid
    return None


def describe_age(made: float) -> str:
    """Return a time for a list."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(made))
