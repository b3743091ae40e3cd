"""Profiles: homes of their own below `HOME/profiles`, chosen by `-p NAME`, or for good by `hermes profile use NAME`.

Source: plugin contract §2.1 (`profile_name`), §12.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.config.home import hermes_home
from hermes_agent.core.errors import UserError

__all__ = [
    "ACTIVE_PROFILE_FILE",
    "DEFAULT_PROFILE",
    "HomeProfile",
    "selected_profile",
    "profile_at",
    "profiles",
    "root_home",
]

DEFAULT_PROFILE = "default"
ACTIVE_PROFILE_FILE = "active_profile"
"""File of the root home with the profile that counts where neither `-p` nor `HERMES_HOME` names one."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_OPTIONS = ("-p", "--profile")


class HomeProfile(NamedTuple):
    """One of the homes."""

    name: str
    home: Path


def root_home() -> Path:
    """Return the home that the profiles lie in: that of a profile's home, else the home itself."""
    home = hermes_home()
    return home.parent.parent if home.parent.name == "profiles" else home


def profiles() -> Iterator[HomeProfile]:
    """Yield the root home as `default`, then every profile by name."""
    root = root_home()
    yield HomeProfile(DEFAULT_PROFILE, root)
    folder = root / "profiles"
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.is_dir() and _NAME.fullmatch(place.name):
            yield HomeProfile(place.name, place)


def profile_at(name: str, *, there: bool = True) -> HomeProfile:
    """Return a profile by its name.

    Args:
        there: it must exist.

    Raises:
        UserError: the name cannot be one, or nothing bears it.
    """
    root = root_home()
    if name == DEFAULT_PROFILE:
        return HomeProfile(DEFAULT_PROFILE, root)
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be the name of a profile",
            hint="Up to 64 lower-case letters, digits, `-` and `_`, the first a letter or digit.",
        )
    home = root / "profiles" / name
    if there and not home.is_dir():
        names = ", ".join(one.name for one in profiles())
        raise UserError(f"there is no profile {name!r}", hint=f"There is: {names}. `hermes profile create` makes one.")
    return HomeProfile(name, home)


def selected_profile(argv: Sequence[str], environ: MutableMapping[str, str]) -> list[str]:
    """Take `-p NAME` from the begin of a command line, and let `HERMES_HOME` be the home of that profile.

    Without it, and without `HERMES_HOME`, the one of `hermes profile use` counts.

    Raises:
        UserError: there is no such profile.
    """
    rest, name = list(argv), ""
    if rest and rest[0] in _OPTIONS:
        if len(rest) < 2:
            raise UserError(f"{rest[0]} wants the name of a profile", hint="`hermes profile list` shows them.")
        name, rest = rest[1], rest[2:]
    elif rest and rest[0].startswith("--profile="):
        name, rest = rest[0].partition("=")[2], rest[1:]
    elif not environ.get("HERMES_HOME"):
        name = _active_profile()
        if name and not profile_at(name, there=False).home.is_dir():
            raise UserError(
                f"there is no profile {name!r} any more, which `hermes profile use` chose",
                hint=f"`hermes -p {DEFAULT_PROFILE} profile use {DEFAULT_PROFILE}` lets the default home be used.",
            )
    if name:
        environ["HERMES_HOME"] = str(profile_at(name).home)
    return rest


def _active_profile() -> str:
    try:
        return (root_home() / ACTIVE_PROFILE_FILE).read_text(encoding="utf-8").strip()
    except OSError:  # nobody chose one
        return ""
