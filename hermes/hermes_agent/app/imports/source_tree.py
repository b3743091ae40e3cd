"""The files of a home that is imported: what there is, with size and hash. Nothing in it is written.

Files are opened to be read and nothing else; SQLite works on copies, so that no `-wal` or `-shm` appears next to them.
Links are recorded and not followed, except folders of the home that are links out of it, and single files of config.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple

Progress = Callable[[str], None]
"""Called often with the current activity; shows some of the calls."""
_BLOCK = 1 << 20


def ignore_progress(_text: str) -> None:
    """Show nothing."""


class SourceFile(LazyNamedTuple):
    """One entry that is no folder. `path` is relative to the home."""

    path: str
    kind: Literal["file", "link", "other"]
    """`other`: a socket, a pipe, a device, or something that cannot be read."""
    size: int = 0
    mode: int = 0
    digest: str = ""
    """Hash of the content; of the target for a link."""
    problem: str = ""
    """Why it cannot be copied; "" if it can."""


class SourceTree:
    """A folder that is imported.

    Args:
        root: the folder.
        without: relative paths of folders that do not belong to it.
    """

    def __init__(self, root: Path, progress: Progress = ignore_progress, without: tuple[str, ...] = ()) -> None:
        self.root = root
        self._without = without
        self.files: dict[str, SourceFile] = {}
        for found in self._scan("", progress):
            self.files[found.path] = found
        self._taken: set[str] = set()

    @property
    def digest(self) -> str:
        """The hash over names, kinds, permissions and contents of all files."""
        whole = hashlib.sha256()
        for _, found in sorted(self.files.items()):
            line = f"{found.path}\0{found.kind}\0{found.size}\0{found.mode}\0{found.digest}\0{found.problem}\n"
            whole.update(line.encode("utf-8", "surrogatepass"))
        return whole.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(found.size for found in self.files.values())

    def below(self, path: str) -> list[SourceFile]:
        """Return the file at a path, or all files below it."""
        start = f"{path}/"
        return [found for name, found in self.files.items() if name == path or name.startswith(start)]

    def require_any(self, signs: Sequence[str], program: str, usual: str) -> None:
        """Check that the folder is a home of a program.

        Args:
            signs: entries of which such a home has one or more.
            usual: the folder that the program uses by default.

        Raises:
            UserError: it has none of them.
        """
        if not set(signs) & set(self.names("")):
            raise UserError(
                f"{self.root} is no home of {program}: it has none of {', '.join(signs)}",
                hint=f"Name the folder that {program} uses, usually {usual}.",
            )

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; "" is the home."""
        start = f"{folder}/" if folder else ""
        return sorted({name[len(start) :].split("/", 1)[0] for name in self.files if name.startswith(start)})

    def take(self, path: str) -> None:
        """Mark a file or a folder as treated: imported, or named in the report."""
        self._taken.add(path)

    def untaken(self) -> list[SourceFile]:
        """Return the files that no `take` covers."""
        return [found for name, found in self.files.items() if not self.is_taken(name)]

    def is_taken(self, path: str) -> bool:
        """Return whether a `take` covers a file."""
        parts = path.split("/")
        return any("/".join(parts[:end]) in self._taken for end in range(1, len(parts) + 1))

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a file, also behind a link; None if there is no readable regular file."""
        place = self.root / path
        try:
            if path not in self.files or not stat.S_ISREG(place.stat().st_mode):
                return None
            return place.read_bytes()
        except OSError:
            return None

    def _leads_out(self, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry is a link to a folder outside of the home, as dotfile managers make them."""
        if not entry.is_symlink() or not entry.is_dir():
            return False
        target, root = Path(entry.path).resolve(), self.root.resolve()
        return not target.is_relative_to(root) and not root.is_relative_to(target)

    def _scan(self, folder: str, progress: Progress) -> Iterator[SourceFile]:
        try:
            entries = sorted(os.scandir(self.root / folder), key=lambda entry: entry.name)
        except OSError as exc:
            yield SourceFile(folder or ".", "other", problem=f"cannot be read: {exc.strerror}")
            return
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in self._without:
                continue
            if entry.is_dir(follow_symlinks=False) or (not folder and self._leads_out(entry)):
                yield from self._scan(path, progress)
            else:
                progress(f"reading {path}")
                yield _read_entry(path, entry)


def _read_entry(path: str, entry: os.DirEntry[str]) -> SourceFile:
    try:
        status = entry.stat(follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode)
        if entry.is_symlink():
            target = str(Path(entry.path).readlink())
            problem = "" if os.path.exists(entry.path) else f"a link to {target}, which does not exist"  # noqa: PTH110
            return SourceFile(path, "link", 0, mode, _hash_text(target), problem)
        if not stat.S_ISREG(status.st_mode):
            return SourceFile(path, "other", 0, mode, problem="neither a file nor a folder: a pipe, socket or device")
        return SourceFile(path, "file", status.st_size, mode, hash_file(Path(entry.path)))
    except OSError as exc:
        return SourceFile(path, "other", problem=f"cannot be read: {exc.strerror}")


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def hash_file(path: Path) -> str:
    """Return the hash of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def hash_place(path: Path) -> str:
    """Return the hash of a file, a link, or a folder with its files; "" if there is nothing."""
    if path.is_symlink():
        return _hash_text(str(path.readlink()))
    if path.is_file():
        return hash_file(path)
    if not path.is_dir():
        return ""
    return hash_names({name: found.digest for name, found in SourceTree(path).files.items()})


def hash_names(digests: Mapping[str, str]) -> str:
    """Return the hash of a folder. `digests`: the hash of each file by its path in the folder."""
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()
