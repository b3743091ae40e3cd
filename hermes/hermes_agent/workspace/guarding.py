"""May a tool have a file at all: the rules of the file tools, for those who open files by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from hermes_agent.core.home_files import FileAccess
from hermes_agent.workspace.places import PathRules, resolve
from hermes_agent.workspace.regular import open_regular

__all__ = ["closed_reason", "open_readable", "secret_reason"]


def open_readable(path: str, home: Path, cwd: Path, reader: FileAccess, added: Iterable[str] = ()) -> IO[bytes]:
    """Open a regular file that a tool may read; arguments as of `closed_reason`. Raises ToolFailed."""
    places = _rules_for(home, cwd, reader, added)
    return open_regular(resolve(path, str(cwd), places.user_home), places)[0]


def closed_reason(path: str, home: Path, cwd: Path, reader: FileAccess, added: Iterable[str] = ()) -> str | None:
    """Return why tools may not read a file, None when they may.

    Args:
        cwd: the working directory, resolved; a relative path counts from it.
        reader: whose files of the agent's home the call may open.
        added: `terminal.sandbox_paths`.
    """
    places = _rules_for(home, cwd, reader, added)
    place = resolve(str(path), str(cwd), places.user_home)
    return places.closed_reason(place, _status(place))


def secret_reason(path: str, home: Path, cwd: Path, reader: FileAccess) -> str | None:
    """Return why no tool may have a file, not even to write it after a question; None when one may.

    Args:
        cwd: where a relative path counts from.
    """
    places = _places(home, reader)
    place = resolve(str(path), str(cwd), places.user_home)
    return places.secret_reason(place, _status(place))


def _status(place: str) -> os.stat_result | None:
    try:
        return os.stat(place)  # noqa: PTH116 - `PathRules` takes text
    except OSError:
        return None


def _rules_for(home: Path, cwd: Path, reader: FileAccess, added: Iterable[str]) -> PathRules:
    return _places(home, reader, added).for_cwd(str(cwd))


def _places(home: Path, reader: FileAccess, added: Iterable[str] = ()) -> PathRules:
    return PathRules(str(home), str(Path.home()), os.environ.get("CREDENTIALS_DIRECTORY", ""), added, lambda: reader)
