"""The files of a folder, read for a checkpoint: by descriptors, so that a link which a command sets up leads nowhere.

git would open them by their paths. What did not change since the last checkpoint is not read again.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hermes_agent.io.beneath import open_beneath
from hermes_agent.io.files import PRIVATE, write_atomic
from hermes_agent.workspace.checkpoints.git import Git

__all__ = ["CheckpointContent", "SEEN"]

SEEN = "seen.json"
"""In the repository: what the files of the last checkpoint were. Goes with its objects."""
BATCH_BYTES = 32_000_000
"""So much is handed to git at a time."""
FRESH_NS = 50_000_000
"""A file that changed so short a time ago may change again without another time stamp."""


class _File(NamedTuple):
    """A file that is to be in a checkpoint."""

    path: str
    mode: str
    mark: str
    """The same as long as the content is; empty where nothing tells."""
    inode: tuple[int, int]


class CheckpointContent:
    """What is taken into one checkpoint.

    Args:
        top: the open folder.
        repository: where git keeps it.
        kept_out: says whether a file is not to be in it: path below the folder, and its status.
    """

    def __init__(self, top: int, repository: Path, git: Git, kept_out: Callable[[str, os.stat_result], bool]) -> None:
        self._top, self._repository, self._git, self._kept_out = top, repository, git, kept_out
        self._files: dict[str, _File] = {}
        self.left_out: list[str] = []
        self.private: list[str] = []
        """Files that nobody but their owner can read."""
        self.total = 0
        self._fresh_ns = time.time_ns() - FRESH_NS

    def add(self, path: str, *, always: bool = False) -> None:
        """Take a file in, or note that it is left out; a path where none is counts as nothing.

        Args:
            always: whatever `kept_out` says.
        """
        if path in self._files or not set(path.lower().split("/")).isdisjoint((".git", "..", ".", "")):
            return
        try:
            handle = open_beneath(self._top, path, os.O_PATH)
        except OSError:
            return
        try:
            status = os.fstat(handle)
        finally:
            os.close(handle)
        regular = stat.S_ISREG(status.st_mode)
        if not regular and not stat.S_ISLNK(status.st_mode):
            return
        if regular and not always and self._kept_out(path, status):
            self.left_out.append(path)
            return
        if not always:
            self.total += status.st_size
            if regular and not status.st_mode & 0o077:
                self.private.append(path)
        mode = "120000" if not regular else "100755" if status.st_mode & stat.S_IXUSR else "100644"
        self._files[path] = _File(path, mode, self._mark(status), (status.st_dev, status.st_ino))

    def _mark(self, status: os.stat_result) -> str:
        if status.st_ctime_ns > self._fresh_ns:
            return ""
        return f"{status.st_dev}.{status.st_ino}.{status.st_ctime_ns}.{status.st_size}"

    def stored(self) -> bytes:
        """Store what is not stored yet; return what `git update-index --index-info` reads."""
        seen = self._load_seen()
        known: dict[str, tuple[_File, str]] = {}
        waiting: list[tuple[_File, bytes]] = []
        size = 0
        for file in self._files.values():
            before = seen.get(file.path)
            if before is not None and file.mark and before[0] == file.mark:
                known[file.path] = file, str(before[1])
                continue
            data = self._data(file)
            if data is None:
                self.left_out.append(file.path)
                continue
            waiting.append((file, data))
            size += len(data)
            if size > BATCH_BYTES:
                known |= self._stored(waiting)
                waiting, size = [], 0
        known |= self._stored(waiting)
        told = {path: [file.mark, name] for path, (file, name) in known.items() if file.mark}
        write_atomic(self._repository / SEEN, json.dumps(told), mode=PRIVATE)
        return b"".join(
            f"{file.mode} {name}\t".encode() + os.fsencode(path) + b"\0" for path, (file, name) in known.items()
        )

    def _load_seen(self) -> dict[str, list[str]]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self._repository / SEEN).read_bytes())
            if isinstance(found, dict):
                return found
        return {}

    def _data(self, file: _File) -> bytes | None:
        """Return the content of a file; None where it is not the one any more that was looked at, or is closed."""
        link = file.mode == "120000"
        try:
            handle = open_beneath(self._top, file.path, os.O_PATH if link else os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        with _closing(handle):
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) != file.inode:
                return None
            if link:
                return os.fsencode(os.readlink("", dir_fd=handle)) if stat.S_ISLNK(status.st_mode) else None
            with os.fdopen(os.dup(handle), "rb") as content:
                return content.read(status.st_size + 1)

    def _stored(self, files: list[tuple[_File, bytes]]) -> dict[str, tuple[_File, str]]:
        """Store contents; return file and name of the object by path."""
        if not files:
            return {}
        marks = self._repository / "marks"
        parts: list[bytes] = []
        for number, (_, data) in enumerate(files, 1):
            parts += (b"blob\nmark :%d\ndata %d\n" % (number, len(data)), data, b"\n")
        self._git("fast-import", "--quiet", f"--export-marks={marks}", stdin=b"".join(parts))
        names = dict(line.split(" ") for line in marks.read_text().splitlines())
        marks.unlink()
        return {file.path: (file, names[f":{number}"]) for number, (file, _) in enumerate(files, 1)}


@contextlib.contextmanager
def _closing(handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(handle)
