"""May a tool have a file at all: the rules of the file tools, for those who open files by themselves."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_agent.workspace.places import Places, resolve

__all__ = ["secret_reason"]


def secret_reason(path: str, home: Path, cwd: Path) -> str | None:
    """Return why no tool may have a file, None when one may.

    Args:
        cwd: where a relative path counts from.
    """
    places = Places(str(home), str(Path.home()), os.environ.get("CREDENTIALS_DIRECTORY", ""))
    place = resolve(str(path), str(cwd), places.user_home)
    try:
        status: os.stat_result | None = os.stat(place)  # noqa: PTH116 - `Places` takes text
    except OSError:
        status = None
    return places.secret(place, status)
