"""Mounts of the bubblewrap sandbox: visible files, a git config without credentials, covered sockets.

`Mounts` yields the options that show the files of the table to commands of one working directory. The git config of the
user is shown with the listed sections and masked secrets; aliases and filters stay, because they run in the sandbox.

`find_outer_sockets` finds the Unix sockets of programs outside the sandbox in visible directories. A connection needs
only the name of a socket, and a read-only mount does not prevent it. So each socket that exists when a command starts
is covered: those that the kernel lists for any network namespace, also under the name in another mount namespace (a
container), and any other that answers in the working directory. Sockets that a program outside makes while the command
runs are not covered (decision 9).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.file_rules import (
    CACHES,
    SHOWN_OF_HOME,
    SYSTEM,
    TEMPORARY_CACHE,
    Protected,
    file_table,
    is_above,
    is_inside,
    is_shown_of_home,
)

GIT_CONFIG_FILES = (".gitconfig", ".config/git/config")
_SECTIONS = frozenset(file_table("git-sections"))
_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)")


def strip_credentials(text: str) -> str:
    """Return the shown part of a git config."""
    lines: list[str] = []
    shown = False
    for line in text.splitlines():
        if heading := _SECTION.match(line):
            shown = heading[1].lower().partition(".")[0] in _SECTIONS
        if shown:
            lines.append(line)
    return redactor("\n".join(lines) + "\n")


def write_git_config(source: Path, directory: Path) -> Path | None:
    """Write the shown part of a git config into a directory of the agent; return the copy, or None."""
    try:
        text = strip_credentials(source.read_text("utf-8", "replace"))
        copy = directory / source.name.lstrip(".")
        if not copy.exists() or copy.read_text("utf-8") != text:
            directory.mkdir(parents=True, exist_ok=True)
            write_atomic(copy, text, mode=PRIVATE)
    except OSError:
        return None
    return copy


PRIVATE_DIRECTORIES = ("/tmp", "/var/tmp", "/run")
"""Directories that are private to each command."""


class Mounts:
    """The mounts of commands; their paths are looked up for each command.

    Args:
        places: the path rules.
        empty: yields the options for an empty directory of limited size.
    """

    def __init__(self, places: PathRules, empty: Callable[[str], Iterator[str]]) -> None:
        self._places, self._empty = places, empty
        self._protected = Protected()
        self.sizes = False
        """Whether bubblewrap knows `--size`."""

    def system_options(self, credentials: Collection[str]) -> Iterator[str]:
        """Yield the options that show programs and settings of the system, and the private directories.

        Args:
            credentials: files that are covered after everything is shown.
        """
        for place in PRIVATE_DIRECTORIES:
            if Path(place).is_dir() and not Path(place).is_symlink():
                yield from self._empty(place)
        for place in SYSTEM:
            yield from _show_entry(place)
        if os.geteuid() == 0:
            yield from (
                word for path in self._protected.paths() if path not in credentials for word in self._cover(path)
            )

    def _cover(self, path: str) -> Iterator[str]:
        """Yield options that cover a file or a directory, without a second mount where possible."""
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            yield from ("--ro-bind", os.devnull, path)
        elif self.sizes:
            yield from ("--perms", "0555", "--size", "4096", "--tmpfs", path)
        else:
            yield from ("--tmpfs", path, "--remount-ro", path)

    def user_options(self) -> Iterator[str]:
        """Yield the options that show listed entries of the home, places of the operator, the interpreter."""
        home = self._places.user_home
        if home != "/" and Path(home).is_dir():
            yield from ("--tmpfs", home)
            yield from self._home(home)
        for place in dict.fromkeys((sys.base_prefix, sys.prefix)):
            if not any(is_inside(place, shown) for shown in SYSTEM):
                yield from ("--ro-bind", place, place)
        for place in self._places.added:
            yield from ("--ro-bind-try", place, place)

    def is_shown(self, path: str, root: str) -> bool:
        """Return whether commands with the directory `root` see a resolved path, if it exists."""
        home = self._places.user_home
        if is_inside(path, home) and home != "/" and is_shown_of_home(path[len(home) + 1 :]):
            return True
        interpreter = (sys.base_prefix, sys.prefix)
        opened = self._places.for_cwd(root).opened
        if any(is_inside(path, place) for place in (*SYSTEM, "/dev", "/proc", *interpreter, *opened)):
            return True
        return path in PRIVATE_DIRECTORIES or any(is_above(path, place) for place in (home, *SYSTEM, *opened))

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield rows for `hermes doctor` about the lists of the operator, and entries without effect."""
        places = self._places
        if places.added:
            yield (
                True,
                "the sandbox shows additionally (terminal.sandbox_paths, writable_paths)",
                "; ".join(places.added),
            )
        if places.writable:
            yield True, "written without a question (terminal.writable_paths)", "; ".join(places.writable)
        for path in places.added:
            if not Path(path).exists():
                yield False, "terminal.sandbox_paths, writable_paths", f"{path} does not exist: no effect"
        for entry in places.refused:
            text = f"{entry!r} is not an absolute path, or would show a whole home: no effect; name a folder in it"
            yield False, "terminal.sandbox_paths, writable_paths", text

    def final_options(self) -> Iterator[str]:
        """Yield the last options, which make the home and the root read-only."""
        home = self._places.user_home
        if home != "/" and Path(home).is_dir():
            yield from ("--remount-ro", home)
        yield from ("--remount-ro", "/")

    def _home(self, home: str) -> Iterator[str]:
        if Path(home, TEMPORARY_CACHE).is_dir():
            yield from self._empty(f"{home}/{TEMPORARY_CACHE}")
        shown: set[str] = set()
        with contextlib.suppress(OSError):
            for entry in os.scandir(home):
                if is_shown_of_home(entry.name):
                    shown.add(entry.name)
                    yield from _show_entry(entry.path)
        for name in (*SHOWN_OF_HOME, *CACHES):
            if name not in shown:  # each mount costs more than those before it
                yield from _show_entry(f"{home}/{name}")
        for name in GIT_CONFIG_FILES:
            copy = write_git_config(Path(home, name), Path(self._places.hermes_home, "cache", "sandbox"))
            if copy is not None:
                yield from ("--ro-bind", str(copy), f"{home}/{name}")


def _show_entry(path: str) -> Iterator[str]:
    """Yield options that show a file or directory; a link stays a link, which leads to shown files only."""
    try:
        yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115 - some fifty for each command
    except FileNotFoundError:
        return
    except OSError:  # it is not a link
        yield from ("--ro-bind-try", path, path)


_Place = tuple[int, str] | None
"""Mount namespace and root of a process; None without the permission to read them."""


class _Mount(LazyNamedTuple):
    device: str
    root: str
    """The mounted directory of the file system."""
    point: str


class _Outside(LazyNamedTuple):
    """The processes outside the sandbox."""

    tables: dict[tuple[int, _Place], str]
    """One process for each table of sockets and each view of the file system."""
    within: set[str]
    """Paths of the sockets of processes inside."""


def find_outer_sockets(root: str, paths: Iterable[str], inside: int = 0) -> dict[str, None]:
    """Return the paths of the sockets of programs outside the sandbox.

    Args:
        root: the working directory.
        paths: paths of the sockets below `root`, which may be bound under another name.
        inside: inode of the network namespace of programs inside.
    """
    outside = _outside(inside)
    below = (f"{root}/{path}" for path in paths)
    return dict.fromkeys((*_bound(outside), *(p for p in below if p not in outside.within and _answers(p))))


def _bound(outside: _Outside) -> Iterator[str]:
    """Yield the real paths of the sockets to which programs outside are bound."""
    cwds, names, own, mounts = cache(_cwds), cache(_names), _place("self"), cache(_mounts)
    for (_, place), pid in outside.tables.items():
        for name in names(pid):
            for path in [name] if name.startswith("/") else [f"{cwd}/{name}" for cwd in cwds()]:
                if not path.startswith("/proc/"):
                    yield from _local_path(path)
            if name.startswith("/") and place is not None and place != own:
                yield from _visible_paths(pid, name, mounts(pid), mounts("self"))


def _local_path(path: str) -> Iterator[str]:
    directory, _, last = path.rpartition("/")
    with contextlib.suppress(OSError, ValueError):
        real = f"{os.path.realpath(directory)}/{last}"
        if stat.S_ISSOCK(os.lstat(real).st_mode):
            yield real


def _visible_paths(pid: str, name: str, others: dict[str, _Mount], own: dict[str, _Mount]) -> Iterator[str]:
    """Yield the paths here of a socket that has the path `name` for a process with other mounts or root."""
    directory, _, last = name.rpartition("/")
    try:
        handle = os.open(f"/proc/{pid}/root{directory}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        status = os.stat(last, dir_fd=handle, follow_symlinks=False)
        with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:  # noqa: PTH123 - many of them
            mount = others.get(dict(line.split(":", 1) for line in file)["mnt_id"].strip())
        path = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - as above
    except OSError:
        return
    finally:
        os.close(handle)
    if mount is None or not stat.S_ISSOCK(status.st_mode) or not _is_below(path, mount.point):
        return
    below = _joined(mount.root, path[len(mount.point) :])
    for our in own.values():
        if our.device == mount.device and _is_below(below, our.root):
            seen = _joined(our.point, below[len(our.root) :], last)
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(seen), status):
                    yield seen


def _answers(path: str) -> bool:
    """Return whether a program is bound to a socket, without its notice: a stream refuses a datagram."""
    directory, _, last = path.rpartition("/")
    try:
        handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.connect(os.fsencode(f"/proc/self/fd/{handle}/{last}"))  # a name has 108 bytes at most
        return True
    except OSError as exc:
        return exc.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    finally:
        os.close(handle)


def _outside(inside: int) -> _Outside:
    tables: dict[tuple[int, _Place], str] = {}
    others: dict[int, list[str]] = {}
    seen: dict[tuple[int, _Place], int] = {}
    for process in os.scandir("/proc"):
        if not (pid := process.name).isdigit():
            continue
        view = (_namespace(pid), _place(pid))
        with contextlib.suppress(OSError):
            # a question for the table costs more than those for the namespaces
            table = seen.get(view, 0) or os.stat(f"/proc/{pid}/net/unix").st_ino  # noqa: PTH116 - some hundreds
            if view[0]:
                seen[view] = table
                if view[0] == inside:
                    others.setdefault(table, []).append(pid)
            tables.setdefault((table, view[1]), pid)
    within = {path for pids in others.values() for name in _names(pids[0]) for path in _paths(name, pids)}
    return _Outside({key: pid for key, pid in tables.items() if key[0] not in others}, within)


def _paths(name: str, pids: Iterable[str]) -> list[str]:
    return [name] if name.startswith("/") else [f"{cwd}/{name}" for cwd in _cwds(pids)]


def _namespace(pid: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116 - some hundreds
    except OSError:  # the process of another user
        return 0


def _place(pid: str) -> _Place:
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, os.readlink(f"/proc/{pid}/root")  # noqa: PTH115, PTH116 - as above
    except OSError:
        return None


def _names(pid: str) -> set[str]:
    """Return the names to which sockets of a network namespace were bound, also relative ones."""
    try:
        with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - `errors`
            fields = [line.rstrip("\n").split(None, 7) for line in file]
    except OSError:
        return set()
    return {each[7] for each in fields[1:] if len(each) == 8 and not each[7].startswith("@")}


def _mounts(pid: str) -> dict[str, _Mount]:
    """Return the mounts of a process by their id."""
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - as above
            fields = [line.split(" ", 5) for line in file]
    except OSError:
        return {}
    return {each[0]: _Mount(each[2], _plain(each[3]), _plain(each[4])) for each in fields}


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text).rstrip("/")


def _joined(*parts: str) -> str:
    return "/" + "/".join(part.strip("/") for part in parts if part.strip("/"))


def _is_below(path: str, place: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{place}/")


def _cwds(pids: Iterable[str] = ()) -> set[str]:
    """Return the readable working directories of these processes, or of all."""
    found: set[str] = set()
    for pid in pids or (process.name for process in os.scandir("/proc") if process.name.isdigit()):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115 - some hundreds
    return found
