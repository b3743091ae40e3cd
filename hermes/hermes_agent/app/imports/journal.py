"""The journal of an import, in `HOME/imports/ID`: its steps, and how far it is.

Everything is staged in that folder first. From the state `committing` on, an interrupted import is continued by the
next `hermes import` command; from `undoing` on, an interrupted undo is. Each step may be repeated.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, Literal

from hermes_agent.app.imports.source_tree import hash_place
from hermes_agent.core.errors import UserError
from hermes_agent.system.files import PRIVATE, write_atomic

FOLDER = "imports"
State = Literal["staging", "committing", "done", "undoing", "undone"]
STAGED = ("new", "sessions", "settings", "logins", "work")
"""Folders of an import that its end removes."""


class ImportJournal:
    """One import of a home.

    Args:
        folder: `HOME/imports/ID`.
        value: its content.
    """

    def __init__(self, folder: Path, value: dict[str, Any]) -> None:
        self.folder = folder
        self.value = value

    @classmethod
    def create(cls, home: Path, program: str, source: Path) -> ImportJournal:
        """Return a new journal with its folder."""
        made = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name = f"{made}-{program}-{secrets.token_hex(2)}"
        folder = home / FOLDER / name
        folder.mkdir(mode=0o700, parents=True)
        folder.parent.chmod(0o700)
        value = {"id": name, "program": program, "source": str(source), "made": time.time(), "state": "staging"}
        journal = cls(folder, {**value, "steps": [], "report": {}})
        journal.write()
        return journal

    @property
    def id(self) -> str:
        """The name of the import."""
        return str(self.value["id"])

    @property
    def state(self) -> State:
        """How far it is."""
        return self.value["state"]  # type: ignore[no-any-return]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """What is done, in order."""
        return self.value["steps"]  # type: ignore[no-any-return]

    def home_of(self, profile: str) -> Path:
        """Return the home of a profile; "" is the home of the import."""
        home = self.folder.parent.parent
        return home / "profiles" / profile if profile else home

    def enter(self, state: State) -> None:
        """Store a state."""
        self.value["state"] = state
        self.write()

    def write(self) -> None:
        """Store the journal."""
        write_atomic(self.folder / "journal.json", json.dumps(self.value, indent=1), mode=PRIVATE)

    def drop(self, *names: str) -> None:
        """Remove folders of the import."""
        for name in names:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def discard(self) -> None:
        """Remove an import of which nothing was applied."""
        shutil.rmtree(self.folder, ignore_errors=True)


def list_journals(home: Path) -> list[ImportJournal]:
    """Return the imports of a home, oldest first.

    Raises:
        UserError: a journal is damaged.
    """
    found = []
    folder = home / FOLDER
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        file = place / "journal.json"
        if not file.is_file():
            continue  # the process ended before anything was staged
        try:
            found.append(ImportJournal(place, json.loads(file.read_bytes())))
        except (OSError, ValueError) as exc:
            raise UserError(f"{file} is damaged: {exc}", hint="Move its folder away to work without it.") from exc
    return sorted(found, key=lambda journal: float(journal.value["made"]))


def interrupted_imports(home: Path) -> list[str]:
    """Return the ids of imports that are neither finished nor undone."""
    return [journal.id for journal in list_journals(home) if journal.state in ("committing", "undoing")]


def find_journal(home: Path, wanted: str) -> ImportJournal:
    """Return an import by its id or the beginning of it; "" is the last that is not undone.

    Raises:
        UserError: there is none, or more than one.
    """
    every = list_journals(home)
    if not wanted:
        every = [one for one in every if one.state != "undone"][-1:]
    fits = [one for one in every if one.id == wanted] or [one for one in every if one.id.startswith(wanted)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UserError(f"{wanted!r} fits more than one import", hint=", ".join(one.id for one in fits))
    raise UserError(
        f"there is no import {wanted!r}" if wanted else "nothing was imported into this home",
        hint="`hermes import list` shows what there is.",
    )


def put_in_place(new: Path, target: Path, old: Path, replaces: str) -> bool:
    """Move a staged file or folder to its place; return False if something else is there.

    Args:
        old: where the present one goes.
        replaces: hash of the present one that is replaced; "" if there is none.
    """
    if os.path.lexists(target):
        if not replaces or hash_place(target) != replaces:
            return False
        old.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _move(target, old)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _move(new, target)
    return True


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as exc:
        if exc.errno != errno.EXDEV:
            raise
        fresh = target.with_name(f".{target.name}.import")
        remove_place(fresh)
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, fresh, symlinks=True)
        else:
            shutil.copy2(source, fresh, follow_symlinks=False)
        fresh.rename(target)
        remove_place(source)


def remove_place(path: Path) -> None:
    """Remove a file, a link, or a folder with its content."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def missing_folders(path: Path) -> list[str]:
    """Return the folders above a path that do not exist, the lowest first."""
    found = []
    for parent in path.parents:
        if parent.exists():
            break
        found.append(str(parent))
    return found
