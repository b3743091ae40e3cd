"""Set aside steering files that a command made or changed (see `workspace.sandbox.file_rules`).

A mount cannot protect a name that does not exist yet, so the directory is searched before and after a command.
Before: present files are recorded, and protected by mounts if the sandbox has them. After: new or different files are
renamed to `NAME.held`, which no program obeys and a user can rename back. The config of a repository keeps a copy under
that name and loses the keys that run programs. All access is by descriptors, because a background process may work in
the directory meanwhile. Imports little, because the guard of background commands loads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from hermes_agent.core.caches import LruDict
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import DIRECTORY, hold_directory, open_beneath, replace_at
from hermes_agent.workspace.sandbox.file_rules import (
    GIT_FILES,
    HELD,
    format_settings,
    is_git_directory,
    is_harmless_key,
    is_steering_name,
    named_paths,
    parse_settings,
    paths_around,
)

logger = logging.getLogger(__name__)

MOST_DIRECTORIES = 200_000
MOST_FILES = 5_000
"""Most files in one steering directory; one with more counts as changed."""
MOST_CONFIG = 1_000_000
MOST_MOUNTS = 200
"""Most steering files that mounts protect; changes of others are set aside only."""
MOST_ROOTS = 4
UNKNOWN = ""
"""Identity of a file that counts as changed."""
LINK = "link:"
"""Prefix of the identity of a symbolic link."""
FRESH_NS = 50_000_000
"""Age in nanoseconds below which a directory may change again without a new time stamp."""
_DEPENDENCIES = frozenset(
    {"node_modules", ".venv", "venv", ".tox", ".nox", "vendor", "__pycache__", ".cargo", "target"}
)
"""Directories in which mounts protect nothing, because package managers replace them as a whole."""


class TooManyDirectories(Exception):
    """A directory has more directories in it than can be searched."""


class SteeringDirectory(LazyNamedTuple):
    """The state of a directory when it was read."""

    identity: tuple[int, int, int] | None
    """Device, inode and change time; None if a later change could leave the same."""
    below: tuple[str, ...]
    """Paths of the directories in it."""
    items: tuple[tuple[str, str], ...]
    """Path and kind of the steering entries in it."""
    sockets: tuple[str, ...] = ()
    """Paths of the Unix sockets in it."""


DirectoryReader = Callable[[int, str, int], SteeringDirectory]
"""Reads a directory: (open directory above, path below it, present time) to its state, as `read_directory`."""


class SteeringState(LazyNamedTuple):
    """The steering files below a directory at one time."""

    items: dict[str, str]
    """Kind by path below the root: `named` (by the table), `hooks`, `config`, `commondir`, `todo`."""
    files: dict[str, str]
    """Identity by path of every steering file, and of every file in a steering directory."""
    configs: dict[str, str]
    """Content of the configs of repositories by path."""


class SteeringFiles:
    """Search for steering files that reads only changed directories again. Safe for threads."""

    def __init__(self, read: DirectoryReader | None = None) -> None:
        self._lock = threading.Lock()
        self._trees: LruDict[str, _Tree] = LruDict(MOST_ROOTS)
        self._read = read or read_directory

    def baseline(self, root: str, *, mounts: bool) -> SteeringBaseline:
        """Return the baseline before a command.

        Args:
            root: the directory.
            mounts: whether the command will see present files through read-only mounts.

        Raises:
            TooManyDirectories: there are too many directories below it.
            OSError: the directory cannot be opened.
        """
        with self._lock:
            tree = self._trees.use(root, lambda: _Tree(root, self._read))
        return SteeringBaseline(root, tree.state(), tree, mounts=mounts)


class _Tree:
    """A directory with all directories below it."""

    def __init__(self, root: str, read: DirectoryReader) -> None:
        self._root, self._read = root, read
        self._seen: dict[str, SteeringDirectory] = {}
        self.sockets: tuple[str, ...] = ()
        """Paths of the Unix sockets at the last search."""
        self.command_paths: set[str] = set()
        """Paths that commands made; mounts do not protect them, so that commands can remove them."""
        self._lock = threading.Lock()

    def state(self) -> SteeringState:
        """Return the present steering files."""
        with self._lock, hold_directory(self._root, make=False) as top:
            state = _StateReader(top, self._items(top))
            state.read_named(paths_around(self._root))
            return state.read()

    def _items(self, top: int) -> dict[str, str]:
        seen: dict[str, SteeringDirectory] = {}
        items: dict[str, str] = {}
        waiting, known = [""], self._seen
        now = time.time_ns()
        while waiting:
            path = waiting.pop()
            found = known.get(path)
            if found is None or found.identity is None or found.identity != _identity(top, path):
                found = self._read(top, path, now)
            seen[path] = found
            items.update(found.items)
            waiting += found.below
            if len(seen) > MOST_DIRECTORIES:
                raise TooManyDirectories(
                    f"{self._root} has over {MOST_DIRECTORIES:,} directories: too many to be protected"
                )
        self._seen = seen
        self.sockets = tuple(path for found in seen.values() for path in found.sockets)
        return items


def _identity(top: int, path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path or ".", dir_fd=top, follow_symlinks=False)
    except OSError:  # deleted, or the path is too long
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def read_directory(top: int, path: str, now: int) -> SteeringDirectory:
    """Return the state of a directory; an empty one if it cannot be read."""
    try:
        handle = open_beneath(top, path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # deleted, or not readable for any program of the user
        return SteeringDirectory(None, (), ())
    try:
        status = os.fstat(handle)
        with os.scandir(handle) as entries:
            every = list(entries)
            names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in every}
            sockets = [entry.name for entry in every if _is_socket(entry)]
    finally:
        os.close(handle)
    old = status.st_ctime_ns < now - FRESH_NS
    before = f"{path}/" if path else ""
    below = tuple(before + name for name, is_directory in names.items() if is_directory)
    identity = (status.st_dev, status.st_ino, status.st_ctime_ns) if old else None
    kinds = _kinds(path.rpartition("/")[2], names)
    return SteeringDirectory(
        identity,
        below,
        tuple((before + name, kind) for name, kind in kinds),
        tuple(before + name for name in sockets),
    )


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
        return False  # known from the listing without a system call
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    return False


def _kinds(parent: str, names: dict[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield the steering entries of a directory with the name `parent`, each with its kind."""
    for name in names:
        if (name[0] in "._" or "." in name) and is_steering_name(name):
            yield name, "named"
    if "hgrc" in names and parent == ".hg":
        yield "hgrc", "named"
    if is_git_directory(names):
        for name in GIT_FILES:
            if name in names and (name != "commondir" or "objects" in names):
                yield name, name.partition(".")[0]
        if "rebase-merge" in names:
            yield "rebase-merge/git-rebase-todo", "todo"


class _StateReader:
    """Reader of a `SteeringState` below an open directory."""

    def __init__(self, top: int, items: dict[str, str]) -> None:
        self._top = top
        self._state = SteeringState(items, {}, {})

    def read(self) -> SteeringState:
        """Return the state."""
        for path, kind in list(self._state.items.items()):
            self._take(path, kind)
        return self._state

    def read_named(self, found: Iterator[tuple[str, str]]) -> None:
        """Add the files that configs name, if they are below the root."""
        for path, kind in found:
            path = os.path.normpath(path)
            if path not in self._state.items and path != "." and not path.startswith(("/", "..")):
                self._state.items[path] = kind
                self._take(path, kind)

    def _take(self, path: str, kind: str) -> None:
        try:
            handle = open_beneath(self._top, path, os.O_PATH)
        except OSError:
            self._state.items.pop(path, None)
            return
        try:
            status = os.fstat(handle)
            self._state.files[path] = _mark(status)
            if stat.S_ISDIR(status.st_mode):
                self._list(path, whole=kind == "named")
            elif kind == "config" and stat.S_ISREG(status.st_mode):
                text = _content(self._top, path)
                self._state.configs[path] = text
                git = os.path.dirname(path)  # noqa: PTH120 - text
                work = os.path.dirname(git) if os.path.basename(git) == ".git" else git  # noqa: PTH119, PTH120
                self.read_named(named_paths(text, work, git))
        finally:
            os.close(handle)

    def _list(self, path: str, *, whole: bool) -> None:
        """Record the files in a directory: all files, or only hooks."""
        try:
            handle = open_beneath(self._top, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        seen = 0
        try:
            for place, _, names, folder_fd in os.fwalk(".", dir_fd=handle, follow_symlinks=False):
                for name in names:
                    seen += 1
                    if seen > MOST_FILES:
                        self._state.files[path] = UNKNOWN
                        return
                    if whole or not name.endswith((".sample", HELD)):
                        full = os.path.normpath(f"{path}/{place}/{name}")
                        self._state.files[full] = _mark(os.stat(name, dir_fd=folder_fd, follow_symlinks=False))
                if not whole:
                    return
        except OSError:  # it changes while it is read
            self._state.files[path] = UNKNOWN
        finally:
            os.close(handle)


def _mark(status: os.stat_result) -> str:
    """Return the identity of a file, which changes with the file and its content."""
    time_ns = 0 if stat.S_ISDIR(status.st_mode) else status.st_ctime_ns
    kind = LINK if stat.S_ISLNK(status.st_mode) else ""
    return f"{kind}{status.st_dev}.{status.st_ino}.{time_ns}"


def _content(top: int, path: str) -> str:
    try:
        handle = open_beneath(top, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return file.read(MOST_CONFIG + 1).decode("latin-1")


def digest(data: bytes) -> str:
    """Return a digest of the content of a file."""
    return hashlib.sha256(data[: MOST_CONFIG + 1]).hexdigest() if len(data) <= MOST_CONFIG else ""


class SteeringBaseline:
    """The steering files before a command.

    Attributes:
        root: the directory.
        state: the steering files in it.
        mounts: whether the command sees `mounted` through read-only mounts.
        mounted: paths below the root that mounts protect.
        sockets: paths below the root of the Unix sockets in it.
        approved: digests by path of files that the user allowed a file tool to write meanwhile.
    """

    def __init__(
        self,
        root: str,
        state: SteeringState,
        tree: _Tree | None = None,
        *,
        mounts: bool = False,
        mounted: list[str] | None = None,
    ) -> None:
        self.root, self.state, self.mounts = root, state, mounts
        self._tree = tree or _Tree(root, read_directory)
        self.mounted = self._to_mount() if mounted is None else mounted
        self.sockets = self._tree.sockets
        self.approved: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the baseline as a JSON object."""
        return {"root": self.root, "mounts": self.mounts, "mounted": self.mounted, **self.state._asdict()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> SteeringBaseline:
        """Return a baseline from a JSON object."""
        state = SteeringState(stored["items"], stored["files"], stored["configs"])
        return cls(stored["root"], state, mounts=stored["mounts"], mounted=stored["mounted"])

    def _to_mount(self) -> list[str]:
        """Return the paths below the root for mounts, parents first."""
        found: list[str] = []
        for path, kind in sorted(self.state.items.items()):
            parts = path.split("/")
            if path in self._tree.command_paths or self.state.files[path].startswith(LINK):
                continue
            if kind != "todo" and _DEPENDENCIES.isdisjoint(parts[:-1]) and len(found) < MOST_MOUNTS:
                found.append(path)
        return found

    def finish(self) -> tuple[str, ...]:
        """Set aside new and different files; return texts for the model, also about a failure."""
        try:
            held = self.set_aside()
        except (TooManyDirectories, OSError) as exc:
            logger.error("steering files not set aside: %s: %s", exc, self.root)
            return (f"{self.root} could not be searched: {exc}",)
        if held:
            logger.info("steering files set aside in %s: %s", self.root, "; ".join(held))
        return tuple(held)

    def set_aside(self) -> list[str]:
        """Set aside new and different files; return texts for the model.

        Raises:
            TooManyDirectories: there are too many directories below it.
            OSError: the directory can no longer be opened.
        """
        now = self._tree.state()
        self._tree.command_paths &= now.items.keys()
        self._tree.command_paths |= now.items.keys() - self.state.items.keys()
        with hold_directory(self.root, make=False) as top:
            return _SetAside(top, self, now).run()


class _SetAside:
    def __init__(self, top: int, before: SteeringBaseline, now: SteeringState) -> None:
        self._top, self._root, self._before, self._now = top, before.root, before.state, now
        self._mounted = set(before.mounted if before.mounts else ())
        self._approved = before.approved
        self._held: list[str] = []

    def run(self) -> list[str]:
        """Set aside the files; return texts about them."""
        for path, kind in sorted(self._now.items.items()):
            if path in self._mounted and self._is_the_same(path):
                continue  # the mount protected it: another program made any change
            if kind == "config":
                self._config(path)
            elif kind == "todo":
                if not self._is_known(path) and re.search(r"(?m)^\s*(?:x|exec)\s", _content(self._top, path)):
                    self._hold(path)
            elif self._is_a_directory(path) and (
                kind != "named" or path in self._before.items or self._has_approved(path)
            ):
                self._changed_files(path)
            elif not self._is_known(path):
                self._hold(path)
        return self._held

    def _changed_files(self, path: str) -> None:
        """Set aside new and different files in an old or approved directory."""
        if self._now.files.get(path) == UNKNOWN:
            self._hold(path)
            return
        for file in [file for file in self._now.files if file.startswith(f"{path}/")]:
            if not self._is_known(file):
                self._hold(file)

    def _is_known(self, path: str) -> bool:
        """Return whether a file existed before with the same content, or the user approved the content."""
        now = self._now.files.get(path, UNKNOWN)
        if now != UNKNOWN and self._before.files.get(path) == now:
            return True
        approved = self._approved.get(f"{self._root}/{path}")
        return approved is not None and approved == digest(_content(self._top, path).encode("latin-1"))

    def _has_approved(self, path: str) -> bool:
        """Return whether the user approved a file in a directory."""
        return any(approved.startswith(f"{self._root}/{path}/") for approved in self._approved)

    def _is_the_same(self, path: str) -> bool:
        """Return whether an entry is the same as before, whatever its content."""
        was, now = self._before.files.get(path, UNKNOWN), self._now.files.get(path, UNKNOWN)
        return now != UNKNOWN and was.rpartition(".")[0] == now.rpartition(".")[0]

    def _is_a_directory(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def _mode(self, path: str) -> int:
        try:
            handle = open_beneath(self._top, path, os.O_PATH)
        except OSError:
            return 0
        try:
            return os.fstat(handle).st_mode
        finally:
            os.close(handle)

    def _hold(self, path: str) -> str:
        """Rename an entry to a name that no program obeys; return the new name."""
        directory, _, name = path.rpartition("/")
        try:
            above = open_beneath(self._top, directory, DIRECTORY)
            try:
                new = next(new for new in _names(name) if not _is_there(above, new))
                os.rename(name, new, src_dir_fd=above, dst_dir_fd=above)
            finally:
                os.close(above)
        except FileNotFoundError:
            return ""
        except OSError as exc:
            self._held.append(f"{path} could not be set aside: {exc.strerror or exc}")
            return ""
        self._held.append(f"{path} is {new} now")
        return new

    def _config(self, path: str) -> None:
        """Remove new keys that run programs from the config of a repository."""
        if self._is_known(path):
            return
        if path not in self._now.configs:  # a link, or a directory
            self._hold(path)
            return
        text = self._now.configs[path]
        pairs = None if len(text) > MOST_CONFIG else parse_settings(text)
        known = parse_settings(self._before.configs.get(path, "")) or []
        if pairs is None:
            self._hold(path)
            return
        remaining = [(key, value) for key, value in pairs if (key, value) in known or is_harmless_key(key, value or "")]
        if remaining == pairs:
            return
        if not (copy := self._hold(path)):
            return
        self._held.pop()
        directory, _, name = path.rpartition("/")
        above = open_beneath(self._top, directory, DIRECTORY)
        try:
            replace_at(above, name, format_settings(remaining), mode=0o644)
        finally:
            os.close(above)
        gone = ", ".join(sorted({key for key, value in pairs if (key, value) not in remaining}))
        self._held.append(f"{path} lost {gone} (all of it: {copy})")


def _names(name: str) -> Iterator[str]:
    short = os.fsdecode(os.fsencode(name)[:200])
    yield f"{short}{HELD}"
    for number in count(2):
        yield f"{short}{HELD}-{number}"


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
