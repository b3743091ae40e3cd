"""What a command did to steering files (`steering`): what it made or changed of them is set aside when it has ended.

A name that is not there yet cannot be mounted over, so the directory is looked through before a command and after it.
Before: what is there is protected by mounts where the sandbox has them, and noted. After: what is new or different is
renamed to `NAME.held`, which nothing obeys and a person can rename back; a repository's config keeps a copy there and
loses the keys that run programs. All by descriptors: a background process may work in the directory meanwhile.
Imports the standard library and the table alone.
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
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from hermes_agent.core.caches import LruDict
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
"""In one steering directory; one with more counts as changed."""
MOST_CONFIG = 1_000_000
MOST_MOUNTS = 200
"""So many steering files are mounted over; of more, changes are seen and set aside alone."""
MOST_ROOTS = 4
UNKNOWN = ""
"""Identity of what counts as changed."""
LINK = "link:"
"""Begins the identity of a symbolic link."""
FRESH_NS = 50_000_000
"""A directory that changed so short a time ago may change again without another time stamp."""
_DEPENDENCIES = frozenset(
    {"node_modules", ".venv", "venv", ".tox", ".nox", "vendor", "__pycache__", ".cargo", "target"}
)
"""Nothing in these is mounted over: package managers remove and replace them whole."""


class TooManyDirectories(Exception):
    """A directory has more directories in it than can be looked through."""


class _Directory(NamedTuple):
    """One directory, as it was when it was read."""

    identity: tuple[int, int, int] | None
    """Device, inode and time of the last change; None where another one could leave the same."""
    below: tuple[str, ...]
    """Paths of the directories in it."""
    items: tuple[tuple[str, str], ...]
    """Path and kind of the steering entries in it."""
    sockets: tuple[str, ...] = ()
    """Paths of the Unix sockets in it."""


class SteeringState(NamedTuple):
    """The steering files below a directory at one time."""

    items: dict[str, str]
    """Kind by path below the root: `named` (by the table), `hooks`, `config`, `commondir`, `todo`."""
    files: dict[str, str]
    """Identity by path of every file that is one, or in one."""
    configs: dict[str, str]
    """Content of the configs of repositories."""


class SteeringFiles:
    """Looks through directories, and remembers them, so that only those that changed are read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trees: LruDict[str, _Tree] = LruDict(MOST_ROOTS)

    def baseline(self, root: str, *, mounts: bool) -> SteeringBaseline:
        """Return what there is before a command.

        Args:
            mounts: whether the command will see what is there through mounts that cannot be written.

        Raises:
            TooManyDirectories: there is too much in the directory.
            OSError: it cannot be opened.
        """
        with self._lock:
            tree = self._trees.use(root, lambda: _Tree(root))
        return SteeringBaseline(root, tree.state(), tree, mounts=mounts)


class _Tree:
    """One directory with all that is below it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: dict[str, _Directory] = {}
        self.sockets: tuple[str, ...] = ()
        """Paths of the Unix sockets that were there at the last look."""
        self.made: set[str] = set()
        """Paths that commands made: nothing is mounted over them, so that commands can remove them."""
        self._lock = threading.Lock()

    def state(self) -> SteeringState:
        """Return the steering files that are there now."""
        with self._lock, hold_directory(self._root, make=False) as top:
            state = _StateReader(top, self._items(top))
            state.read_named(paths_around(self._root))
            return state.read()

    def _items(self, top: int) -> dict[str, str]:
        seen: dict[str, _Directory] = {}
        items: dict[str, str] = {}
        waiting, known = [""], self._seen
        now = time.time_ns()
        while waiting:
            path = waiting.pop()
            found = known.get(path)
            if found is None or found.identity is None or found.identity != _identity(top, path):
                found = _read(top, path, now)
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
    except OSError:  # gone, or a path that is too long
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _read(top: int, path: str, now: int) -> _Directory:
    try:
        handle = open_beneath(top, path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # gone, or not to be read: by nobody else either
        return _Directory(None, (), ())
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
    return _Directory(
        identity,
        below,
        tuple((before + name, kind) for name, kind in kinds),
        tuple(before + name for name in sockets),
    )


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
        return False  # said by the listing itself
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    return False


def _kinds(parent: str, names: dict[str, bool]) -> Iterator[tuple[str, str]]:
    """Yield the steering entries of a directory that is called `parent`."""
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
    """Takes a `SteeringState`."""

    def __init__(self, top: int, items: dict[str, str]) -> None:
        self._top = top
        self._state = SteeringState(items, {}, {})

    def read(self) -> SteeringState:
        """Return it."""
        for path, kind in list(self._state.items.items()):
            self._take(path, kind)
        return self._state

    def read_named(self, found: Iterator[tuple[str, str]]) -> None:
        """Take what configs name, as far as it lies below the root."""
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
        """Note what is in a directory: all of it, or the hooks."""
        try:
            handle = open_beneath(self._top, path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        seen = 0
        try:
            for place, _, names, there in os.fwalk(".", dir_fd=handle, follow_symlinks=False):
                for name in names:
                    seen += 1
                    if seen > MOST_FILES:
                        self._state.files[path] = UNKNOWN
                        return
                    if whole or not name.endswith((".sample", HELD)):
                        full = os.path.normpath(f"{path}/{place}/{name}")
                        self._state.files[full] = _mark(os.stat(name, dir_fd=there, follow_symlinks=False))
                if not whole:
                    return
        except OSError:  # it changes while it is read
            self._state.files[path] = UNKNOWN
        finally:
            os.close(handle)


def _mark(status: os.stat_result) -> str:
    """Return what changes with a file: it is the same one with the same content as long as this is the same."""
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
    """Return what tells a file's content from another one's."""
    return hashlib.sha256(data[: MOST_CONFIG + 1]).hexdigest() if len(data) <= MOST_CONFIG else ""


class SteeringBaseline:
    """What there was before a command.

    Attributes:
        root: the directory.
        state: what there was in it.
        mounts: whether the command sees `mounted` through mounts that cannot be written.
        mounted: paths below the root that mounts are to protect.
        sockets: paths below the root of the Unix sockets in it.
        approved: digest by path of what the user let a file tool write meanwhile.
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
        self._tree = tree or _Tree(root)
        self.mounted = self._to_mount() if mounted is None else mounted
        self.sockets = self._tree.sockets
        self.approved: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"root": self.root, "mounts": self.mounts, "mounted": self.mounted, **self.state._asdict()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> SteeringBaseline:
        """Return it from JSON."""
        state = SteeringState(stored["items"], stored["files"], stored["configs"])
        return cls(stored["root"], state, mounts=stored["mounts"], mounted=stored["mounted"])

    def _to_mount(self) -> list[str]:
        """Return the paths below the root that mounts are to protect, those above first."""
        found: list[str] = []
        for path, kind in sorted(self.state.items.items()):
            parts = path.split("/")
            if path in self._tree.made or self.state.files[path].startswith(LINK):
                continue
            if kind != "todo" and _DEPENDENCIES.isdisjoint(parts[:-1]) and len(found) < MOST_MOUNTS:
                found.append(path)
        return found

    def finish(self) -> tuple[str, ...]:
        """Set aside what is new or different; return what was done, for the model: also that it failed."""
        try:
            held = self.set_aside()
        except (TooManyDirectories, OSError) as exc:
            logger.error("what a command may have planted in %s cannot be set aside: %s", self.root, exc)
            return (f"{self.root} could not be looked through: {exc}",)
        if held:
            logger.info("set aside in %s: %s", self.root, "; ".join(held))
        return tuple(held)

    def set_aside(self) -> list[str]:
        """Set aside what is new or different; return what was done, for the model.

        Raises:
            TooManyDirectories: there is too much in the directory.
            OSError: it cannot be opened any more.
        """
        now = self._tree.state()
        self._tree.made &= now.items.keys()
        self._tree.made |= now.items.keys() - self.state.items.keys()
        with hold_directory(self.root, make=False) as top:
            return _SetAside(top, self, now).run()


class _SetAside:
    def __init__(self, top: int, before: SteeringBaseline, now: SteeringState) -> None:
        self._top, self._root, self._before, self._now = top, before.root, before.state, now
        self._mounted = set(before.mounted if before.mounts else ())
        self._approved = before.approved
        self._held: list[str] = []

    def run(self) -> list[str]:
        """Set aside what is to be, and say what was."""
        for path, kind in sorted(self._now.items.items()):
            if path in self._mounted and self._is_the_same(path):
                continue  # the mount held: whatever changed in it, the command did not do it
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
        """Hold what is new or different in a directory that was there before, or that may be there."""
        if self._now.files.get(path) == UNKNOWN:
            self._hold(path)
            return
        for file in [file for file in self._now.files if file.startswith(f"{path}/")]:
            if not self._is_known(file):
                self._hold(file)

    def _is_known(self, path: str) -> bool:
        """Say whether a file was there before with the same content, or the user approved of that."""
        now = self._now.files.get(path, UNKNOWN)
        if now != UNKNOWN and self._before.files.get(path) == now:
            return True
        approved = self._approved.get(f"{self._root}/{path}")
        return approved is not None and approved == digest(_content(self._top, path).encode("latin-1"))

    def _has_approved(self, path: str) -> bool:
        """Say whether the user approved of a file in a directory."""
        return any(approved.startswith(f"{self._root}/{path}/") for approved in self._approved)

    def _is_the_same(self, path: str) -> bool:
        """Say whether an entry is the one that was there before, whatever its content."""
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
        """Rename an entry to what nothing obeys; return its new name."""
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
        """Take the keys out of a repository's config that run programs and were not there before."""
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
        kept = [(key, value) for key, value in pairs if (key, value) in known or is_harmless_key(key, value or "")]
        if kept == pairs:
            return
        if not (copy := self._hold(path)):
            return
        self._held.pop()
        directory, _, name = path.rpartition("/")
        above = open_beneath(self._top, directory, DIRECTORY)
        try:
            replace_at(above, name, format_settings(kept), mode=0o644)
        finally:
            os.close(above)
        gone = ", ".join(sorted({key for key, value in pairs if (key, value) not in kept}))
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
