"""Run git on a repository of ours: nothing of the user's configuration, no hooks, in bounded time.

The files of a folder, read for a checkpoint: by descriptors, so that a link which a command sets up leads nowhere.

git would open them by their paths. What did not change since the last checkpoint is not read again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError
from hermes_agent.system.files import PRIVATE, open_beneath, write_atomic

EVERYTHING = "*"
"""Stands for every path in the list of what a turn may have changed."""

LIMIT_S = 60.0
_SETTINGS = {
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.excludesFile": "/dev/null",
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.looseCompression": "1",
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "core.quotePath": "false",
    "core.symlinks": "true",
    "gc.auto": "0",
    "pack.compression": "1",
}


class GitError(UserError):
    """A checkpoint cannot be made, found or put back."""


class RepositoryTooLarge(GitError):
    """A folder has too much in it, so that trying again is no use."""


@dataclass(slots=True)
class Git:
    """One repository with its work tree, for the time of one piece of work."""

    program: str
    repository: str
    folder: str
    path: str = os.defpath
    """`PATH` for git itself."""
    deadline: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)

    def __call__(
        self, *words: str, stdin: bytes = b"", most: int = 0, folder: str = "", env: Mapping[str, str] | None = None
    ) -> bytes:
        """Run a command and return its output.

        Args:
            most: how much output is read; 0 reads all.
            folder: another work tree.

        Raises:
            GitError: it fails, or takes too long.
        """
        argv = [self.program, *words]
        if most:
            argv = ["/bin/sh", "-c", f'"$@" | head -c {most}', "sh", *argv]
        place = folder or self.folder
        there = os.path.isdir(place)  # noqa: PTH112 - text
        process = subprocess.Popen(
            argv,
            cwd=place if there else self.repository,
            env=self._environment(place if there and words[0] != "init" else "") | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(stdin, timeout=max(0.1, self.deadline - time.monotonic()))
        except BaseException as exc:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(exc, subprocess.TimeoutExpired):
                raise RepositoryTooLarge(f"git {words[0]} in {place} took over {LIMIT_S:g} s") from None
            raise
        if process.returncode:
            said = errors.decode("utf-8", "replace").strip()[-500:]
            raise GitError(f"git {words[0]} in {place} failed: {said or f'exit status {process.returncode}'}")
        return output

    def _environment(self, folder: str) -> dict[str, str]:
        """Return git's environment; `folder` is empty for none, as of a new repository or when it was deleted."""
        who = {f"GIT_{role}_{what}": "hermes" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        settings: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
        for number, (key, value) in enumerate(_SETTINGS.items()):
            settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {
            "PATH": self.path,
            "LC_ALL": "C",
            "GIT_DIR": self.repository,
            **({"GIT_WORK_TREE": folder} if folder else {}),
            "GIT_INDEX_FILE": f"{self.repository}/index",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **who,
            **settings,
        }


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
