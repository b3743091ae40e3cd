"""Open a file for a tool: only a regular one, and none that holds credentials, whatever name it is called by."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hermes_agent.core.errors import ToolFailed
from hermes_agent.workspace.places import Places

__all__ = ["IsDirectory", "kind_of", "open_regular", "opened_directory", "opened_for_listing", "refuse"]


class IsDirectory(ToolFailed):
    """A file was expected, and the path is a directory."""


DIRECTORY = "a directory"
_KINDS = (
    (stat.S_ISDIR, DIRECTORY),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """Return in words what is not a regular file; empty for one that is."""
    return next((words for test, words in _KINDS if test(mode)), "")


def open_regular(path: str, places: Places) -> tuple[IO[bytes], os.stat_result]:
    """Open a resolved path for reading.

    The rules are asked again about the file that was really opened, so that a link which changes in between
    opens nothing that it should not.

    Raises:
        ToolFailed: it does not exist, may not be read, is no regular file, or holds credentials.
    """
    refuse(places, path, None)
    try:
        kind = kind_of(Path(path).stat().st_mode)
        if kind:  # opening a device or a pipe can have effects, or wait for ever
            failed = IsDirectory if kind == DIRECTORY else ToolFailed
            raise failed(f"{path} is {kind}, not a file")
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {exc.strerror or exc}") from exc
    file = os.fdopen(handle, "rb")
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{path} is {kind_of(status.st_mode)}, not a file")
        refuse(places, _real_path(handle, path), status)
    except BaseException:
        file.close()
        raise
    return file, status


@contextlib.contextmanager
def opened_for_listing(path: str, places: Places) -> Iterator[int]:
    """Open a resolved directory for reading; the rules are asked again about what was really opened.

    Raises:
        ToolFailed: it cannot be read, or holds credentials.
    """
    refuse(places, path, None)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            refuse(places, _real_path(handle, path), None)
            yield handle
        finally:
            os.close(handle)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {exc.strerror or exc}") from exc


@contextlib.contextmanager
def opened_directory(directory: str, *, make: bool = True) -> Iterator[int]:
    """Open a resolved directory by its parts; one of them that became a link meanwhile is an error.

    Args:
        make: whether those that are missing are made.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open("/", flags)
    try:
        for name in filter(None, directory.split("/")):
            try:
                deeper = os.open(name, flags, dir_fd=handle)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):  # another call made it
                    os.mkdir(name, dir_fd=handle)
                deeper = os.open(name, flags, dir_fd=handle)
            os.close(handle)
            handle = deeper
        yield handle
    finally:
        os.close(handle)


def refuse(places: Places, path: str, status: os.stat_result | None) -> None:
    """Raise when the path is not for tools.

    Raises:
        ToolFailed: with the reason.
    """
    reason = places.secret(path, status)
    if reason is not None:
        raise ToolFailed(f"{path} is not open to tools: {reason}")


def _real_path(handle: int, path: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{handle}").readlink())
    except OSError:  # no /proc: the path that was asked for
        return path
