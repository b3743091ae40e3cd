"""Upstream's functions over profiles: homes at `~/.hermes/profiles/NAME`. Source: plugin contract §2.1, §11.2."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.compat.paths import get_default_hermes_root
from hermes_agent.config import hermes_home
from hermes_agent.plugins.context import profile_name

__all__ = ["Profile", "get_active_profile_name", "get_default_home", "list_profiles", "resolve_profile_env"]


@dataclass(frozen=True)
class Profile:
    """A home that the agent can run with."""

    name: str
    path: Path
    is_default: bool
    is_active: bool


def get_default_home() -> Path:
    """Return the home that the profiles lie in."""
    return get_default_hermes_root()


def get_active_profile_name() -> str:
    """Return the profile of this process: `default`, its name, or `custom` for another home."""
    return profile_name(hermes_home())


def list_profiles() -> list[Profile]:
    """Return the default home and every profile beside it, by name."""
    root, here = get_default_hermes_root(), hermes_home()
    found = [Profile("default", root, True, root == here)]
    folder = root / "profiles"
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.is_dir():
            found.append(Profile(place.name, place, False, place == here))
    return found


def resolve_profile_env(profile_name: str) -> str:
    """Return the `HERMES_HOME` of a profile.

    Raises:
        FileNotFoundError: there is no such profile.
    """
    if profile_name in ("", "default"):
        return str(get_default_hermes_root())
    place = get_default_hermes_root() / "profiles" / profile_name
    if os.sep in profile_name or not place.is_dir():
        raise FileNotFoundError(f"there is no profile {profile_name!r} in {place.parent}")
    return str(place)
