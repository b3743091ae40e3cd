"""Atomic writes, shared JSON files, stamps of files, and opening without following symbolic links.

Code that may write to a directory can exchange any name in it between a check and a use. Files that are opened here by
descriptors stay below the directory that was opened first: by openat2 (Linux 5.6), else by one openat for each part
of the path.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.locks import TIMEOUT_S, FileLock

PRIVATE = 0o600


def write_atomic(path: Path, data: str | bytes, *, mode: int | None = None) -> None:
    """Replace the file at `path`; a reader sees the old or the new content, never a part.

    The target of a symbolic link is replaced. The directory must exist.

    Args:
        mode: permission bits; None keeps those of the present file, or uses 0644 for a new one.
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
    """Replace the file `name` of an open directory.

    A symbolic link of that name is replaced, not followed.

    Args:
        directory: file descriptor; `O_PATH` is enough.
        mode: permission bits; None keeps permissions and owner of the present file, or leaves them to the umask.
    """
    present = None
    if mode is None:
        with contextlib.suppress(FileNotFoundError):
            present = os.stat(name, dir_fd=directory, follow_symlinks=False)
    # not `secrets`: it imports hashlib, 4 ms of each command
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


_RENAME_EXCHANGE = 2


def exchange(first: Path, second: Path) -> None:
    """Exchange two names of one file system in one step: at no moment is one of them missing.

    Raises:
        OSError: a name is missing, or the kernel or the file system cannot do it (`ENOSYS`, `EINVAL`).
    """
    import ctypes  # only for an update of the program

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # musl
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(first))
    here = ctypes.c_int(-100)  # AT_FDCWD
    names = [ctypes.c_char_p(_name(str(path))) for path in (first, second)]
    if library.renameat2(here, names[0], here, names[1], ctypes.c_uint(_RENAME_EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))


class JsonFile:
    """A JSON object in a file that several processes change, such as the daemon and a command.

    Args:
        mode: permission bits of the file.
        timeout_s: longest wait of `change` for another process, in seconds.
    """

    def __init__(self, path: Path, *, mode: int = PRIVATE, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path
        self._mode = mode
        self._timeout_s = timeout_s

    def read(self) -> dict[str, Any]:
        """Return the object; an empty one if the file is missing, or invalid (which is logged)."""
        try:
            return self._object()
        except (OSError, ValueError) as exc:
            _warn("%s is not used: %s", self.path, exc)
            return {}

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the object under a lock, and write it if it was changed.

        Missing directories are created (0700). A block that raises writes nothing. An invalid file is copied to
        `NAME.broken`, so that the next write does not lose its content.

        Raises:
            OSError: the file cannot be locked (`LockTimeout`), read or written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock.for_file(self.path, timeout_s=self._timeout_s):
            value = self._repaired()
            before = json.dumps(value)
            yield value
            if json.dumps(value) != before:
                write_atomic(self.path, json.dumps(value, ensure_ascii=False, indent=2), mode=self._mode)

    def _object(self) -> dict[str, Any]:
        try:
            value = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(value, dict):
            raise ValueError("it holds no JSON object")
        return value

    def _repaired(self) -> dict[str, Any]:
        try:
            return self._object()
        except ValueError as exc:
            aside = self.path.with_name(f"{self.path.name}.broken")
            _warn("%s is not used, and kept as %s: %s", self.path, aside.name, exc)
            self.path.replace(aside)
            return {}


def _warn(message: str, *args: object) -> None:
    import logging  # the search process uses this module, and logs nothing

    logging.getLogger(__name__).warning(message, *args)


class FileStamp(LazyNamedTuple):
    """Values that change when a file changes."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, file: str | os.PathLike[str] | os.stat_result) -> Self | None:
        """Return the stamp of a file, or None if it cannot be read.

        Args:
            file: its path, or its status if the caller has it.
        """
        if not isinstance(file, os.stat_result):
            try:
                file = os.stat(file)  # noqa: PTH116 - many files at each start, and a path need not be text
            except OSError:
                return None
        return cls(file.st_mtime_ns, file.st_ctime_ns, file.st_size, file.st_ino)

    @property
    def content(self) -> Self:
        """The stamp without `ctime_ns`, which changes of permissions and links change as well."""
        return self._replace(ctime_ns=0)


DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a directory in which other names are opened."""

_NUMBER = 437
"""Number of the system call `openat2`, on every architecture except alpha."""
_RESOLVE = 0x08 | 0x04 | 0x02
"""RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_MAGICLINKS."""
_TRIES = 8
_LONGEST = 4_000
"""Bytes of a path that the kernel accepts, with room for a last name."""

Opener = Callable[[int, str, int, int], int]
"""Opens a path without `..` below a directory: (directory, path, flags, mode) to a descriptor."""


def open_beneath(directory: int, path: str, flags: int, mode: int = 0, *, opener: Opener | None = None) -> int:
    """Open a path below an open directory; return a descriptor that `exec` closes.

    Args:
        directory: file descriptor; `O_PATH` is enough.
        path: relative, without `..`; empty or `.` is the directory itself.
        flags: of `open`; a link as the last part is opened itself with `O_PATH`, and rejected without.
        opener: None is the one of this kernel (`find_opener`).

    Raises:
        OSError: `ELOOP` if a part is a link, `EXDEV` if the path leads out, or another error of `open`.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, "the path leads out of its directory", path)
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    whole = "/".join(parts) or "."
    if len(os.fsencode(whole)) < _LONGEST:
        return (opener or find_opener())(directory, whole, flags, mode)
    half = len(parts) // 2
    middle = open_beneath(directory, "/".join(parts[:half]), DIRECTORY, opener=opener)
    try:
        return open_beneath(middle, "/".join(parts[half:]), flags, mode, opener=opener)
    finally:
        os.close(middle)


def open_directory(path: str, *, make: bool = False) -> int:
    """Open an absolute, resolved directory with `DIRECTORY`.

    Args:
        make: create missing directories.

    Raises:
        OSError: as `open_beneath`; `ELOOP` for a part that became a link in the meantime.
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
    """Hold an absolute, resolved directory open, as `open_directory`."""
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
                with contextlib.suppress(FileExistsError):  # another call created it
                    os.mkdir(name, dir_fd=handle)
                deeper = open_beneath(handle, name, DIRECTORY)
            os.close(handle)
            handle = deeper
    except BaseException:
        os.close(handle)
        raise
    return handle


@functools.cache
def find_opener() -> Opener:
    """Return `openat2`, or the way of kernels without it."""
    return load_openat2() or open_by_parts


def load_openat2() -> Opener | None:
    """Return `openat2`; None if the kernel has none, or a filter of system calls denies it."""
    import ctypes  # only for the first file

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


def open_by_parts(directory: int, path: str, flags: int, mode: int) -> int:
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
    except NotADirectoryError:  # the kernel's error for a link, also if a directory is required
        if _is_link(directory, name):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
