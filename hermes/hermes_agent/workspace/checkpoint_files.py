"""The files of a folder for a checkpoint, and isolated git commands with time limits.

Files are read through descriptors, because git would follow a link that a command sets up. Files that did not change
since the last checkpoint are not read again.
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
from dataclasses import field
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.system.files import PRIVATE, open_beneath, write_atomic

EVERYTHING = "*"
"""Entry for all paths in the list of what a turn may have changed."""

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
    """A checkpoint cannot be made, found or restored."""


class RepositoryTooLarge(GitError):
    """A folder has too much content for a checkpoint; another attempt does not help."""


@lazy_dataclass(slots=True, eq=False, repr=False)
class Git:
    """Git commands on one repository with its work tree, for one operation."""

    program: str
    repository: str
    folder: str
    path: str = os.defpath
    """The PATH for git."""
    deadline: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)

    def __call__(
        self, *words: str, stdin: bytes = b"", most: int = 0, folder: str = "", env: Mapping[str, str] | None = None
    ) -> bytes:
        """Run a git command and return its output.

        Args:
            args: the arguments.
            data: the input.
            most: most bytes of output; 0 reads all.
            folder: another work tree.

        Raises:
            GitError: the command fails, or takes too long.
        """
        argv = [self.program, *words]
        if most:
            argv = ["/bin/sh", "-c", f'"$@" | head -c {most}', "sh", *argv]
        place = folder or self.folder
        exists = os.path.isdir(place)  # noqa: PTH112 - text
        process = subprocess.Popen(
            argv,
            cwd=place if exists else self.repository,
            env=self._environment(place if exists and words[0] != "init" else "") | dict(env or {}),
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
            message = errors.decode("utf-8", "replace").strip()[-500:]
            raise GitError(f"git {words[0]} in {place} failed: {message or f'exit status {process.returncode}'}")
        return output

    def _environment(self, folder: str) -> dict[str, str]:
        """Return the environment of git; `folder` is empty without a work tree."""
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
"""File in the repository with the state of the files in the last checkpoint."""
BATCH_BYTES = 32_000_000
"""Most bytes that git gets at a time."""
FRESH_NS = 50_000_000
"""Age below which a file may change again without a new time stamp."""


class _File(LazyNamedTuple):
    """A file for a checkpoint."""

    path: str
    mode: str
    mark: str
    """A mark that changes with the content; empty when it is not known."""
    inode: tuple[int, int]


class CheckpointContent:
    """The content of one checkpoint while it is made.

    Args:
        top: the open folder.
        repository: the directory of the repository.
        kept_out: returns whether to leave out a file, by its path below the folder and its status.
    """

    def __init__(self, top: int, repository: Path, git: Git, kept_out: Callable[[str, os.stat_result], bool]) -> None:
        self._top, self._repository, self._git, self._kept_out = top, repository, git, kept_out
        self._files: dict[str, _File] = {}
        self.left_out: list[str] = []
        self.private: list[str] = []
        """Files that only their owner can read."""
        self.total = 0
        self._fresh_ns = time.time_ns() - FRESH_NS

    def add(self, path: str, *, always: bool = False) -> None:
        """Add a file, or record that it is left out; ignore a path without a file.

        Args:
            path: the path below the folder.
            always: add it even if `kept_out` returns True.
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
        """Store new contents; return the input for `git update-index --index-info`."""
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
        marks = {path: [file.mark, name] for path, (file, name) in known.items() if file.mark}
        write_atomic(self._repository / SEEN, json.dumps(marks), mode=PRIVATE)
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
        """Return the content of a file, or None if it was replaced or cannot be read."""
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
        """Store contents; return the file and the object id by path."""
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
