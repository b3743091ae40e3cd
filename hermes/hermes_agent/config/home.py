"""Where the config of a home lies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError

__all__ = [
    "DECLARED",
    "ENV_FILE",
    "EFFECTIVE",
    "LOCAL",
    "HomePaths",
    "hermes_home",
    "make_home",
    "place_in_home",
    "home_paths",
    "stamp",
]

EFFECTIVE = "config.yaml"
LOCAL = "config.local.yaml"
ENV_FILE = ".env"
DECLARED = "HERMES_DECLARED_CONFIG"
"""Variable that names the file which Nix declares; empty counts as unset."""


def hermes_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home: `$HERMES_HOME` if it is not empty, else `~/.hermes`. Read at each call."""
    named = (os.environ if environ is None else environ).get("HERMES_HOME", "")
    return Path(named).expanduser() if named else Path.home() / ".hermes"


def make_home(home: Path) -> None:
    """Make the home, 0700, where it is not there yet.

    Raises:
        UserError: it cannot be made.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise UserError(
            f"cannot make the home {home}: {exc.strerror}", hint="Set HERMES_HOME to a directory that you may write."
        ) from exc


def place_in_home(new_subpath: str, old_name: str) -> Path:
    """Return `HOME/old_name` while something lies in it, else `HOME/new_subpath`; neither is made."""
    home = hermes_home()
    old = home / old_name
    try:
        used = any(old.iterdir())
    except OSError:
        used = False
    return old if used else home / new_subpath


class HomePaths(NamedTuple):
    """The files that make up the config of one home."""

    effective: Path
    """`config.yaml`: what people edit, or, with a declared layer, a generated view for plugins that read it."""
    editable: Path
    """What `hermes config set` changes."""
    declared: Path | None
    """What Nix declares; None without it."""
    env: Path


def home_paths(home: Path, environ: Mapping[str, str] | None = None) -> HomePaths:
    """Return the places for `home`; a declared layer is there when `HERMES_DECLARED_CONFIG` names one."""
    declared = (os.environ if environ is None else environ).get(DECLARED, "")
    effective = home / EFFECTIVE
    if not declared:
        return HomePaths(effective, effective, None, home / ENV_FILE)
    return HomePaths(effective, home / LOCAL, Path(declared), home / ENV_FILE)


def stamp(home: Path) -> tuple[tuple[int, int], ...]:
    """Return what changes when one of the files of the config does: time and size of each."""
    where = home_paths(home)
    files = (where.effective, where.editable, where.env, *((where.declared,) if where.declared else ()))
    return tuple(_time_and_size(file) for file in files)


def _time_and_size(file: Path) -> tuple[int, int]:
    try:
        info = file.stat()
    except OSError:
        return (0, -1)
    return (info.st_mtime_ns, info.st_size)
