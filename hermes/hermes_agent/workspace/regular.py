"""Open a file for a tool: only a regular one, and none that holds credentials, whatever name it is called by."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hermes_agent.core.errors import ToolFailed
from hermes_agent.io.beneath import hold_directory, open_beneath
from hermes_agent.workspace.places import PathRules

__all__ = ["IsDirectory", "kind_of", "open_regular", "open_for_listing", "check_readable", "check_not_secret"]


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


def open_regular(path: str, places: PathRules) -> tuple[IO[bytes], os.stat_result]:
    """Open a resolved path for reading.

    The rules are asked again about the file that was really opened, so that a link which changes in between
    opens nothing that it should not.

    Raises:
        ToolFailed: it does not exist, may not be read, is no regular file, or holds credentials.
    """
    check_readable(places, path, None)
    try:
        directory, name = os.path.split(path)
        with hold_directory(directory, make=False) as above:
            handle = _open_file(above, name, path)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {_error_text(exc)}") from exc
    file = os.fdopen(handle, "rb")
    try:
        status = os.fstat(handle)
        check_readable(places, _real_path(handle, path), status)
    except BaseException:
        file.close()
        raise
    return file, status


@contextlib.contextmanager
def open_for_listing(path: str, places: PathRules) -> Iterator[int]:
    """Open a resolved directory for reading; the rules are asked again about what was really opened.

    Raises:
        ToolFailed: it cannot be read, or holds credentials.
    """
    check_readable(places, path, None)
    try:
        with hold_directory(path, make=False) as there:
            handle = open_beneath(there, "", os.O_RDONLY | os.O_DIRECTORY)
        try:
            check_readable(places, _real_path(handle, path), None)
            yield handle
        finally:
            os.close(handle)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {_error_text(exc)}") from exc


def _open_file(above: int, name: str, path: str) -> int:
    """Open a file that is none of those whose opening has effects, or waits for ever."""
    there = open_beneath(above, name, os.O_PATH)
    try:
        _check_kind(there, path)
    finally:
        os.close(there)
    handle = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_kind(handle, path)  # it may have been exchanged meanwhile
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_kind(handle: int, path: str) -> None:
    mode = os.fstat(handle).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if kind := kind_of(mode):
        raise (IsDirectory if kind == DIRECTORY else ToolFailed)(f"{path} is {kind}, not a file")


def _error_text(exc: OSError) -> str:
    return "a part of the path is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror or str(exc)


def check_readable(places: PathRules, path: str, status: os.stat_result | None) -> None:
    """Raise when a path is not for tools to read; `check_not_secret` when it is not for them to write either.

    Raises:
        ToolFailed: with the reason.
    """
    _raise(path, places.closed_reason(path, status))


def check_not_secret(places: PathRules, path: str) -> None:
    """Raise when the path holds credentials: nobody is asked about those."""
    _raise(path, places.secret_reason(path))


def _raise(path: str, reason: str | None) -> None:
    if reason is not None:
        raise ToolFailed(f"{path} is not open to tools: {reason}")


def _real_path(handle: int, path: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{handle}").readlink())
    except OSError:  # no /proc: the path that was asked for
        return path
