"""Upstream's functions over the home and over profiles, homes at `~/.hermes/profiles/NAME`.

Source: plugin contract §2.1, §11.2, §11.3.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.config.profiles import DEFAULT_PROFILE, profile_at, profiles
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.context import profile_name

__all__ = [
    "Profile",
    "display_hermes_home",
    "find_node_executable",
    "get_active_profile_name",
    "get_memory_dir",
    "list_profiles",
    "resolve_profile_env",
    "with_hermes_node_path",
]


def display_hermes_home() -> str:
    """Return the home for people: `~/.hermes`."""
    home = hermes_home()
    try:
        below = home.relative_to(Path.home())
    except (ValueError, RuntimeError):
        return str(home)
    return f"~/{below}" if below.parts else "~"


def get_memory_dir() -> Path:
    """Return where memories lie: `HOME/memories`."""
    return hermes_home() / "memories"


def find_node_executable(command: str) -> str | None:
    """Return the path of `node`, `npm`, …: in `HOME/node/bin`, else on the PATH."""
    return shutil.which(command, path=with_hermes_node_path()["PATH"])


def with_hermes_node_path(env: dict[str, str] | None = None) -> dict[str, str]:
    """Return a copy of `env` (None: the process's) with `HOME/node/bin` first on the PATH when it is there."""
    result = dict(os.environ if env is None else env)
    path = result.get("PATH", os.defpath)
    own = hermes_home() / "node" / "bin"
    result["PATH"] = f"{own}{os.pathsep}{path}" if own.is_dir() else path
    return result


@dataclass(frozen=True)
class Profile:
    """A home that the agent can run with."""

    name: str
    path: Path
    is_default: bool
    is_active: bool


def get_active_profile_name() -> str:
    """Return the profile of this process: `default`, its name, or `custom` for another home."""
    return profile_name(hermes_home())


def list_profiles() -> list[Profile]:
    """Return the default home and every profile beside it, by name."""
    here = hermes_home()
    return [Profile(one.name, one.home, one.name == DEFAULT_PROFILE, one.home == here) for one in profiles()]


def resolve_profile_env(profile_name: str) -> str:
    """Return the `HERMES_HOME` of a profile.

    Raises:
        FileNotFoundError: there is no such profile.
    """
    try:
        return str(profile_at(profile_name or DEFAULT_PROFILE).home)
    except UserError as exc:
        raise FileNotFoundError(exc.message) from exc
