"""Upstream's functions over environment variables. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.config import hermes_home
from hermes_agent.config.dotenv import read_env_file

__all__ = [
    "env_bool",
    "env_float",
    "env_int",
    "env_var_enabled",
    "load_hermes_dotenv",
    "register_env_passthrough",
    "windows_detach_popen_kwargs",
    "windows_hide_flags",
]

logger = logging.getLogger(__name__)

ON = ("1", "true", "yes", "on")


def env_int(key: str, default: int = 0) -> int:
    """Return a variable as a whole number, `default` when it is none."""
    try:
        return int(os.environ.get(key, "").strip() or default)
    except ValueError:
        return default


def env_float(key: str, default: float = 0.0) -> float:
    """Return a variable as a number, `default` when it is none."""
    try:
        return float(os.environ.get(key, "").strip() or default)
    except ValueError:
        return default


def env_bool(key: str, default: bool = False) -> bool:
    """Return whether a variable is 1, true, yes or on; `default` when it is not set."""
    value = os.environ.get(key, "").strip().lower()
    return value in ON if value else default


def env_var_enabled(name: str, default: str = "") -> bool:
    """Return whether a variable (or `default`, when it is not set) is 1, true, yes or on."""
    return os.environ.get(name, default).strip().lower() in ON


def load_hermes_dotenv(
    *, hermes_home: str | os.PathLike[str] | None = None, project_env: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Set in this process what the home's `.env` and then `project_env` say, and return the files that were read.

    The home's file wins over the environment; the project's only fills gaps.
    """
    files = [(_home(hermes_home) / ".env", True)]
    if project_env is not None:
        files.append((Path(project_env), False))
    read = []
    for file, wins in files:
        if not file.is_file():
            continue
        read.append(file)
        for name, value in read_env_file(file).items():
            if wins or name not in os.environ:
                os.environ[name] = value
    return read


def register_env_passthrough(var_names: Iterable[str]) -> None:
    """Ask for variables in the environment of commands; what the operator did not list in the config is refused.

    Upstream grants it. Here only `terminal.env_passthrough` does (docs/architecture.md, "secrets and plugins"), so that
    no plugin can hand a key to the model's commands; a name that is missing there is told in the log.
    """
    allowed = set((host().config.values.get("terminal") or {}).get("env_passthrough") or ())
    missing = sorted({str(name) for name in var_names} - allowed)
    if missing:
        logger.warning(
            "a plugin asks that commands see %s: add it to terminal.env_passthrough in the config to allow that",
            ", ".join(missing),
        )


def windows_hide_flags() -> int:
    """Return the flags that keep a console window away; there are none outside Windows."""
    return int(getattr(__import__("subprocess"), "CREATE_NO_WINDOW", 0))


def windows_detach_popen_kwargs() -> dict[str, Any]:
    """Return what starts a process that outlives this one: a session of its own."""
    return {"start_new_session": True} if os.name == "posix" else {"creationflags": windows_hide_flags()}


def _home(given: str | os.PathLike[str] | None) -> Path:
    return hermes_home() if given is None else Path(given)
