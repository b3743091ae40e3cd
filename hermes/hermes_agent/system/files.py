"""Files that are whole or not there: atomic writes with a mode of their own.

One writer of a config file at a time, across processes.

Open files and directories without following a symbolic link anywhere on the way.

Who may write to a directory can exchange any name in it between a check and a use. What is opened here by file
descriptors stays below the directory that was opened first: by `openat2` (Linux 5.6), else by one `openat` for each
part of the path. Imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_agent.core.errors import UserError

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


LONGEST_WAIT_S = 10.0
_POLL_S = 0.02


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock for `path`, a file `.NAME.lock` beside it; the kernel drops it when the process ends.

    Raises:
        UserError: another process holds it for longer than `LONGEST_WAIT_S`, or the directory is read-only.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise UserError(f"{path} cannot be changed: {lock.name}: {error.strerror}") from error
    try:
        _wait(handle, path)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, path: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{path} is being changed by another process for {LONGEST_WAIT_S:g} s already",
                    hint="try again when that process has ended",
                ) from None
            time.sleep(_POLL_S)
        else:
            return


DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a directory that other names are opened in."""

_NUMBER = 437
"""Of the system call `openat2`, on every architecture but alpha."""
_RESOLVE = 0x08 | 0x04 | 0x02
"""`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`."""
_TRIES = 8
_LONGEST = 4_000
"""Bytes of a path that the kernel takes at once, with room for its last name."""

Opener = Callable[[int, str, int, int], int]
_opener: Opener | None = None


def open_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a path below an open directory; return the descriptor, which `exec` closes.

    Args:
        directory: `O_PATH` is enough.
        path: relative and without `..`; empty or `.` is the directory itself.
        flags: of `open`; a link as the last part is opened itself with `O_PATH`, and refused without.

    Raises:
        OSError: `ELOOP` where a part is a link, `EXDEV` where the path leads out, or whatever `open` says.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, "the path leads out of its directory", path)
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    whole = "/".join(parts) or "."
    if len(os.fsencode(whole)) < _LONGEST:
        return _open_resolved(directory, whole, flags, mode)
    half = len(parts) // 2
    middle = open_beneath(directory, "/".join(parts[:half]), DIRECTORY)
    try:
        return open_beneath(middle, "/".join(parts[half:]), flags, mode)
    finally:
        os.close(middle)


def open_directory(path: str, *, make: bool = False) -> int:
    """Open an absolute, resolved directory with `DIRECTORY`.

    Args:
        make: whether those that are missing are made.

    Raises:
        OSError: as of `open_beneath`; a part that became a link meanwhile is `ELOOP`.
    """
    top = os.open("/", DIRECTORY)
    try:
        try:
            return open_beneath(top, path.lstrip("/"), DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
        return _make_directories(top, path)
    finally:
        os.close(top)


@contextlib.contextmanager
def hold_directory(path: str, *, make: bool = True) -> Iterator[int]:
    """Hold an absolute, resolved directory open, as `open_directory` does."""
    handle = open_directory(path, make=make)
    try:
        yield handle
    finally:
        os.close(handle)


def _make_directories(top: int, path: str) -> int:
    handle = os.dup(top)
    try:
        for name in filter(None, path.split("/")):
            try:
                deeper = open_beneath(handle, name, DIRECTORY)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another call made it
                    os.mkdir(name, dir_fd=handle)
                deeper = open_beneath(handle, name, DIRECTORY)
            os.close(handle)
            handle = deeper
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_resolved(directory: int, path: str, flags: int, mode: int) -> int:
    global _opener
    if _opener is None:
        _opener = load_openat2() or _open_by_parts
    return _opener(directory, path, flags, mode)


def load_openat2() -> Opener | None:
    """Return `openat2` of this kernel; None where there is none, or a filter of system calls refuses it."""
    import ctypes  # for the first file alone

    class How(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long

    def openat2(directory: int, path: str, flags: int, mode: int) -> int:
        how = How(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
        size, name = ctypes.c_size_t(ctypes.sizeof(how)), ctypes.c_char_p(_name(path))
        for _ in range(_TRIES):
            handle = int(call(ctypes.c_long(_NUMBER), ctypes.c_int(directory), name, ctypes.byref(how), size))
            if handle >= 0:
                return handle
            if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
                break
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)

    try:
        os.close(openat2(-100, ".", DIRECTORY, 0))  # AT_FDCWD
    except OSError:
        return None
    return openat2


def _name(path: str) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return name


def _open_by_parts(directory: int, path: str, flags: int, mode: int) -> int:
    """Open a path part by part."""
    *above, last = path.split("/")
    handle = directory
    try:
        for name in above:
            deeper = _open_part(handle, name, DIRECTORY, 0)
            if handle != directory:
                os.close(handle)
            handle = deeper
        return _open_part(handle, last, flags, mode)
    finally:
        if handle != directory:
            os.close(handle)


def _open_part(directory: int, name: str, flags: int, mode: int) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=directory)
    except NotADirectoryError:  # what the kernel says of a link, too, when a directory is wanted
        if _is_link(directory, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
