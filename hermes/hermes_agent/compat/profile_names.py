"""Upstream's functions over profiles: homes at `~/.hermes/profiles/NAME`. Source: plugin contract §2.1, §11.2."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.config.profiles import DEFAULT, profile_at, profiles, root_home
from hermes_agent.core.errors import UserError
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
    return root_home()


def get_active_profile_name() -> str:
    """Return the profile of this process: `default`, its name, or `custom` for another home."""
    return profile_name(hermes_home())


def list_profiles() -> list[Profile]:
    """Return the default home and every profile beside it, by name."""
    here = hermes_home()
    return [Profile(one.name, one.home, one.name == DEFAULT, one.home == here) for one in profiles()]


def resolve_profile_env(profile_name: str) -> str:
    """Return the `HERMES_HOME` of a profile.

    Raises:
        FileNotFoundError: there is no such profile.
    """
    try:
        return str(profile_at(profile_name or DEFAULT).home)
    except UserError as exc:
        raise FileNotFoundError(exc.message) from exc
