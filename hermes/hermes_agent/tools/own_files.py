"""Folders of the agent's home for the files of one principal: uploads, generated files, long results.

Adapters and plugins write into the caches that all share, which no tool may open. Whoever learns whose such a file is
moves it into the folder of that principal (`core.home_files` says who may open it there).
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from hermes_agent.core.home_files import PRINCIPALS
from hermes_agent.sessions import folder_name

__all__ = ["adopt_file", "adopt_result_files", "principal_folder"]

_KINDS = {
    "cache/audio": "audio",
    "cache/documents": "documents",
    "cache/images": "images",
    "cache/screenshots": "images",
    "cache/videos": "videos",
    "audio_cache": "audio",
    "browser_screenshots": "images",
    "document_cache": "documents",
    "image_cache": "images",
    "video_cache": "videos",
}
"""Shared caches below the home, and what the folder of their files is called then."""
_SLACK_S = 0.1  # the clock of a file system is coarser


def principal_folder(home: Path, principal: str, kind: str) -> Path:
    """Return the folder of a principal for files of one kind; it need not exist."""
    return home / PRINCIPALS / folder_name(principal) / kind


def adopt_file(path: str, home: Path, principal: str) -> str:
    """Move a file of a shared cache to its principal and return its path; any other path is returned as it is.

    A file that was moved before is found again by its old path: a message may be served twice.
    """
    kind = _cached_kind(path, home)
    if kind is None:
        return path
    folder = principal_folder(home, principal, kind)
    target = folder / os.path.basename(path)  # noqa: PTH119 - as text
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # no other name of a file that is elsewhere
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(path, target)  # noqa: PTH104 - as above
    return str(target) if target.is_file() else path


def adopt_result_files(result: str, home: Path, principal: str, since: float) -> str:
    """Return the result of a tool with the paths of the files that it wrote into a shared cache, which are moved.

    Args:
        since: when the call began, in seconds since the epoch: older files are somebody else's.
    """
    if str(home) not in result:
        return result
    found = re.compile(re.escape(str(home)) + r"/[^\s\"'`<>\\)\]]+").findall(result)
    for path in dict.fromkeys(sorted(found, key=len, reverse=True)):
        if _cached_kind(path, home) is None:
            continue
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ctime >= since - _SLACK_S:
                result = result.replace(path, adopt_file(path, home, principal))
    return result


def _cached_kind(path: str, home: Path) -> str | None:
    """Return what a file of a shared cache is; None for one that lies elsewhere."""
    real = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - as text
    place = real.removeprefix(f"{os.path.realpath(home)}/")
    if place == real:
        return None
    return next((kind for cache, kind in _KINDS.items() if place == cache or place.startswith(f"{cache}/")), None)
