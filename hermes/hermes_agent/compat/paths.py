"""Upstream's functions over the home. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.config.profiles import root_home

__all__ = [
    "display_hermes_home",
    "find_node_executable",
    "get_default_hermes_root",
    "get_hermes_dir",
    "get_hermes_home",
    "get_memory_dir",
    "with_hermes_node_path",
]


def get_hermes_home() -> Path:
    """Return `$HERMES_HOME`, else `~/.hermes`; read at each call."""
    return hermes_home()


def get_default_hermes_root() -> Path:
    """Return the home that the profiles lie in: that of a profile's home, else the home itself."""
    return root_home()


def display_hermes_home() -> str:
    """Return the home for people: `~/.hermes`."""
    home = hermes_home()
    try:
        below = home.relative_to(Path.home())
    except (ValueError, RuntimeError):
        return str(home)
    return f"~/{below}" if below.parts else "~"


def get_hermes_dir(new_subpath: str, old_name: str) -> Path:
    """Return `HOME/old_name` when something lies in it, else `HOME/new_subpath`; neither is made."""
    home = hermes_home()
    old = home / old_name
    try:
        used = any(old.iterdir())
    except OSError:
        used = False
    return old if used else home / new_subpath


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
