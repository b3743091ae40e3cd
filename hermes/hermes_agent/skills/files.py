"""The files of a skill: which there are, and opening one without ever leaving its directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hermes_agent.io.beneath import hold_directory, open_beneath

__all__ = ["FOLDERS", "MAX_BYTES", "is_plain_path", "linked_files", "open_inside", "read_file"]

FOLDERS = ("references", "templates", "scripts", "assets")
MAX_BYTES = 1024 * 1024
MAX_LISTED = 200
"""Files that are listed of one folder."""


def is_plain_path(path: str) -> bool:
    """Say whether `path` is relative and names nothing above itself: no `/x`, no `..`, no `C:`, no NUL."""
    parts = path.replace("\\", "/").split("/")
    drive = len(parts[0]) > 1 and parts[0][1] == ":"
    return bool(path) and not path.startswith(("/", "\\", "~")) and ".." not in parts and not drive and "\0" not in path


def linked_files(directory: Path) -> dict[str, list[str]] | None:
    """Return the files below the four folders, as paths from `directory`; None when there are none."""
    root = os.path.realpath(directory)
    found = {name: _below(root, name) for name in FOLDERS}
    return {name: files for name, files in found.items() if files} or None


def _below(root: str, folder: str) -> list[str]:
    files: list[str] = []
    if not _is_inside(os.path.realpath(f"{root}/{folder}"), root):
        return files
    for place, directories, names in os.walk(f"{root}/{folder}"):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        for name in sorted(names):
            path = f"{place}/{name}"
            if not name.startswith(".") and _is_inside(os.path.realpath(path), root):
                files.append(os.path.relpath(path, root))
            if len(files) == MAX_LISTED:
                return files
    return files


def open_inside(directory: Path, path: str) -> bytes:
    """Return the content of the file `path` below `directory`.

    Raises:
        PermissionError: it is hidden, or lies outside, also by a symbolic link.
        OSError: it cannot be read, or is too long.
    """
    root = os.path.realpath(directory)
    target = os.path.realpath(f"{root}/{path}")
    if not is_plain_path(path) or not _is_inside(target, root):
        raise PermissionError("it lies outside of the skill's directory")
    if any(part.startswith(".") for part in Path(target).relative_to(root).parts):
        raise PermissionError("it is hidden")
    return _read(target)


def read_file(path: Path) -> bytes:
    """Return the content of a regular file of at most `MAX_BYTES`.

    Raises:
        OSError: it is none, or cannot be read.
    """
    return _read(os.path.realpath(path))


def _read(path: str) -> bytes:
    """Return the content of a resolved path; a link that comes meanwhile is not followed."""
    directory, name = os.path.split(path)
    with hold_directory(directory, make=False) as above:
        handle = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        if status.st_size > MAX_BYTES:
            raise OSError(f"{path} has {status.st_size} bytes: at most {MAX_BYTES} are read")
        return file.read(MAX_BYTES)


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
