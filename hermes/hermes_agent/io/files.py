"""Files that are whole or not there: atomic writes with a mode of their own."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

__all__ = ["PRIVATE", "replace_at", "write_atomic"]

PRIVATE = 0o600


def write_atomic(path: Path, data: str | bytes, *, mode: int | None = None) -> None:
    """Replace the file at `path` by `data`; a reader sees the old file or the new one, never a part.

    A symbolic link is followed: its target is replaced. The directory must exist.

    Args:
        mode: permission bits; None keeps those of the present file, or takes 0644 for a new one.
    """
    target = path.resolve()
    if mode is None and not target.exists():
        mode = 0o644
    directory = os.open(target.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        replace_at(directory, target.name, data.encode() if isinstance(data, str) else data, mode=mode)
    finally:
        os.close(directory)


def replace_at(directory: int, name: str, data: bytes, *, mode: int | None = None) -> None:
    """Replace the file `name` of an open directory; a symbolic link of that name is replaced, not followed.

    Args:
        directory: file descriptor, `O_PATH` is enough.
        mode: permission bits; None keeps permissions and owner of the present file, or lets the umask decide.
    """
    present = None
    if mode is None:
        with contextlib.suppress(FileNotFoundError):
            present = os.stat(name, dir_fd=directory, follow_symlinks=False)
    # not `secrets`: it imports hashlib, 4 ms of every command
    fresh = f".{name[:32]}.{os.urandom(6).hex()}"
    first = 0o666 if mode is None and present is None else PRIVATE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(fresh, flags, first, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            if present is not None and stat.S_ISREG(present.st_mode):
                _keep_owner(handle, present)
                os.fchmod(handle, present.st_mode & 0o777)
            elif mode is not None:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)
        raise


def _keep_owner(handle: int, present: os.stat_result) -> None:
    """Give the new file the owner of the old one, as far as this user may."""
    own = os.fstat(handle)
    if (own.st_uid, own.st_gid) != (present.st_uid, present.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, present.st_uid, present.st_gid)
