"""Unpack an archive of a stranger: bounded in size, number and ratio, nothing outside of the target, no links out."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from hermes_agent.core.errors import UserError

__all__ = ["ArchiveLimits", "MAX_BYTES", "MAX_FILES", "MAX_RATIO", "copy_tree", "stays_inside", "unpack"]

MAX_FILES = 10_000
MAX_BYTES = 256 * 1024 * 1024
LEFT_OUT = frozenset({".git", "__pycache__", ".hg", ".svn"})


class ArchiveLimits:
    """How much a plugin may still bring.

    Args:
        name: of the source, for the refusal.
    """

    def __init__(self, name: str, files: int = MAX_FILES, size: int = MAX_BYTES) -> None:
        self._name, self._files, self._size = name, files, size
        self._limits = f"at most {files} files and {size // 1024 // 1024} MB are taken"

    def spend(self, size: int, *, files: int = 1) -> None:
        """Take one more file of `size` bytes.

        Raises:
            UserError: it is too much.
        """
        self._files -= files
        self._size -= size
        if self._files < 0 or self._size < 0:
            raise UserError(f"{self._name} is too large for a plugin: {self._limits}")


def copy_tree(source: Path, target: Path, name: str) -> None:
    """Copy the directory `source` to `target`, which is made; version control and bytecode stay behind.

    Raises:
        UserError: something in it is no file, folder or inner link, or there is too much of it.
    """
    budget = ArchiveLimits(name)
    root = source.resolve()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        into = target / here.relative_to(root)
        into.mkdir(mode=0o755, parents=True, exist_ok=True)
        for entry in sorted(folders):
            if entry in LEFT_OUT:
                folders.remove(entry)
            elif (here / entry).is_symlink():
                folders.remove(entry)
                files.append(entry)
        for entry in files:
            _copy(here / entry, into / entry, root, budget)


def _copy(path: Path, target: Path, root: Path, budget: ArchiveLimits) -> None:
    info = path.lstat()
    name = path.relative_to(root)
    if stat.S_ISLNK(info.st_mode):
        leads = os.readlink(path)  # noqa: PTH115
        if not stays_inside(name, leads):
            raise UserError(f"{name} is a link to {leads!r}, out of the plugin", hint="Such a plugin is not installed.")
        budget.spend(0)
        target.symlink_to(leads)
    elif stat.S_ISREG(info.st_mode):
        budget.spend(info.st_size)
        shutil.copyfile(path, target)
        target.chmod(0o755 if info.st_mode & 0o111 else 0o644)
    else:
        raise UserError(f"{name} is neither a file nor a folder", hint="Such a plugin is not installed.")


def stays_inside(name: Path, leads: str) -> bool:
    """Say whether a link at the relative path `name` leads to a place inside of the same tree."""
    if not leads or leads.startswith("/"):
        return False
    reached = os.path.normpath(os.path.join(name.parent, leads))  # noqa: PTH118
    return reached != ".." and not reached.startswith("../")


MAX_RATIO = 200
"""Largest growth of an archive; one that would fill the disk has some thousand."""
MAX_LINK = 4096
RATIO_FREE = 1024 * 1024
"""Bytes that may come out whatever the ratio."""


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .zip or .tar.* into `target`, which is made.

    Raises:
        UserError: it is damaged, too large, or has a member that leads out of the target or is no file.
    """
    target.mkdir(parents=True)
    try:
        size = archive.stat().st_size
        budget = _GrowthLimits(archive.name, size)
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _unzip(opened, target, budget)
        else:
            with tarfile.open(archive) as tar:
                _untar(tar, target, budget)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as exc:
        # RuntimeError: an encrypted member; NotImplementedError: a compression that Python does not know
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        raise UserError(f"{archive} cannot be unpacked: {reason}") from exc


class _GrowthLimits(ArchiveLimits):
    """A budget that also bounds how many times larger the content is."""

    def __init__(self, name: str, packed: int) -> None:
        super().__init__(name)
        self._archive, self._left = name, RATIO_FREE + packed * MAX_RATIO

    def spend(self, size: int, *, files: int = 1) -> None:
        super().spend(size, files=files)
        self._left -= size
        if self._left < 0:
            raise UserError(f"{self._archive} grows to more than {MAX_RATIO} times its size: it is not unpacked")


def _unzip(archive: zipfile.ZipFile, target: Path, budget: ArchiveLimits) -> None:
    for member in archive.infolist():
        budget.spend(0)
        name = _safe_name(member.filename)
        mode = member.external_attr >> 16
        if member.is_dir():
            _folder(target / name)
        elif stat.S_ISLNK(mode):
            with archive.open(member) as content:
                _link(target, name, content.read(MAX_LINK).decode("utf-8", "surrogateescape"))
        elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
            with archive.open(member) as content:
                _file(target / name, content.read, mode & 0o111, budget)
        else:
            raise UserError(f"the archive has {member.filename!r}, which is neither a file nor a folder")


def _untar(archive: tarfile.TarFile, target: Path, budget: ArchiveLimits) -> None:
    for member in archive:
        budget.spend(0)
        name = _safe_name(member.name)
        if member.isdir():
            _folder(target / name)
        elif member.issym():
            _link(target, name, member.linkname)
        elif member.isreg():
            content: IO[bytes] | None = archive.extractfile(member)
            if content is None:
                raise UserError(f"the archive has {member.name!r} without content")
            _file(target / name, content.read, member.mode & 0o111, budget)
        elif member.islnk():
            raise UserError(f"the archive has {member.name!r}, a hard link: it is not unpacked")
        else:
            raise UserError(f"the archive has {member.name!r}, which is neither a file nor a folder")


def _safe_name(name: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise UserError(f"the archive has {name!r}, which leads out of the plugin: it is not unpacked")
    return Path(*path.parts)


def _folder(path: Path) -> None:
    _no_link_above(path)
    path.mkdir(mode=0o755, parents=True, exist_ok=True)


def _file(path: Path, read: Callable[[int], bytes], executable: int, budget: ArchiveLimits) -> None:
    _folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if executable else 0o644), "wb") as out:
        while data := read(256 * 1024):  # the sizes that an archive declares are not believed
            budget.spend(len(data), files=0)
            out.write(data)


def _link(target: Path, name: Path, leads: str) -> None:
    if not stays_inside(name, leads):
        raise UserError(f"the archive has a link {str(name)!r} to {leads!r}, out of the plugin: it is not unpacked")
    _folder((target / name).parent)
    (target / name).symlink_to(leads)


def _no_link_above(path: Path) -> None:
    """Refuse to write through a link of the archive itself."""
    for above in (path, *path.parents):
        if above.is_symlink():
            raise UserError(f"the archive writes through its own link {above.name!r}: it is not unpacked")
