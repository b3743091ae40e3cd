"""May a tool have a file at all: the rules of the file tools, for those who open files by themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from hermes_agent.workspace.places import Places, resolve
from hermes_agent.workspace.regular import open_regular

__all__ = ["opened", "secret_reason"]


def opened(path: str, home: Path, cwd: Path) -> IO[bytes]:
    """Open a regular file that a tool may have; `cwd` as below. Raises ToolFailed."""
    places = _places(home)
    return open_regular(resolve(path, str(cwd), places.user_home), places)[0]


def secret_reason(path: str, home: Path, cwd: Path) -> str | None:
    """Return why no tool may have a file, None when one may.

    Args:
        cwd: where a relative path counts from.
    """
    places = _places(home)
    place = resolve(str(path), str(cwd), places.user_home)
    try:
        status: os.stat_result | None = os.stat(place)  # noqa: PTH116 - `Places` takes text
    except OSError:
        status = None
    return places.secret(place, status)


def _places(home: Path) -> Places:
    return Places(str(home), str(Path.home()), os.environ.get("CREDENTIALS_DIRECTORY", ""))
