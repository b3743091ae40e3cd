"""Path rules: which files tools may read, which hold credentials, and where writing needs an approval.

`PathRules` decides by resolved paths. `open_regular` opens a file and checks the rules again on the opened file, so
that a link that changes meanwhile opens nothing else. The search process loads this module alone: it imports little.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from hermes_agent.config.home import WORKSPACE, FileAccess, find_denial
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import hold_directory, open_beneath
from hermes_agent.workspace.sandbox.file_rules import (
    HOMES,
    SYSTEM,
    TEMPORARY,
    file_table,
    is_above,
    is_inside,
    is_shown_of_home,
    others_may_read,
    steering_reason,
)

_HOME_SECRETS = (".env", "auth.json", "api_server.key", "state.db", "state.db-wal", "state.db-shm", "state.db-journal")
"""Files of `HERMES_HOME` that tools may not open."""
_STATE = frozenset(
    {*_HOME_SECRETS, "config.yaml", "cron", "hooks", "pairing", "plugins", "plugins_trust.json", "scripts"}
)
"""Entries of `HERMES_HOME` that decide what the agent may do."""

MOST_SECRETS = 1_000
"""Most files below the directories of credentials that are also recognized by other names (hard links)."""
_INSIDE = ("self", "thread-self", "kcore")
_SSH_PUBLIC = frozenset({"config", "known_hosts", "known_hosts.old", "authorized_keys", "environment", "rc"})
_HINT = "is not in the list of what is shown (`terminal.sandbox_paths` adds to it)"


def expand_entry(path: str, user_home: str) -> str:
    """Return the absolute path of an entry of `terminal.sandbox_paths`; empty when it has none."""
    if path == "~" or path.startswith("~/"):
        path = user_home + path[1:]
    return os.path.normpath(path) if path.startswith("/") else ""


def _is_not_root() -> bool:
    return os.geteuid() != 0


def resolve(path: str, cwd: str, home: str) -> str:
    """Return the real, absolute path: `~` expanded, symbolic links followed.

    The file need not exist. A loop of links stays in the path; opening it fails.
    """
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.realpath(path if path.startswith("/") else f"{cwd}/{path}")


class WriteConcern(LazyNamedTuple):
    """Why writing a file needs an approval."""

    where: str
    """Where the file is, for the request: `outside the working directory`."""
    sensitive: bool
    """Whether the file steers the agent or programs of the user: each content needs its own approval."""
    own: bool = False
    """Whether it is state of the agent: the user decides each time, whatever settings and earlier answers say."""


class PathRules:
    """The path rules for one home of the agent and one user.

    Args:
        hermes_home: the home of the agent (`HERMES_HOME`).
        user_home: the home directory of the user.
        credentials: `$CREDENTIALS_DIRECTORY`, or empty.
        added: places that the operator shows in addition to the table (`terminal.sandbox_paths`).
        reader: returns which files of the home the current call may open.
        writable: folders that are shown, and written without a question (`terminal.writable_paths`).
    """

    def __init__(
        self,
        hermes_home: str,
        user_home: str,
        credentials: str = "",
        added: Iterable[str] = (),
        reader: Callable[[], FileAccess] = FileAccess,
        writable: Iterable[str] = (),
    ) -> None:
        self.reader = reader
        self.hermes_home = os.path.realpath(hermes_home)
        self.user_home = os.path.realpath(user_home)
        self.credentials = os.path.realpath(credentials) if credentials else ""
        self.refused: list[str] = []
        """Entries of both lists without effect: they are not absolute paths, or would show a whole home."""
        self.writable = list(self._accepted(writable))
        self.added = (*self._accepted(added), *self.writable)
        self.opened = tuple(map(os.path.realpath, self.added))
        """Readable in addition to the table: the additions of the operator, and the working directory."""
        above, _, last = self.hermes_home.rpartition("/profiles/")
        self._main_home = above if above and "/" not in last else self.hermes_home
        self.agent_homes = tuple(dict.fromkeys((self._main_home, self.hermes_home)))
        """The main home, and the home of the selected profile in it."""
        self._files = frozenset(self._secret_files())
        trees = [
            *file_table("secret-trees"),
            *(f"{self.user_home}/{tree}" for tree in file_table("secret-trees-of-home")),
        ]
        trees = [tree for tree in trees if not any(is_inside(place, tree) for place in self.opened)]
        self._trees = tuple(trees + ([self.credentials] if self.credentials else []))

    def _accepted(self, entries: Iterable[str]) -> Iterator[str]:
        """Yield the paths of the entries that have an effect."""
        for entry in entries:
            path = expand_entry(entry, self.user_home)
            real = os.path.realpath(path) if path else "/"
            if real in HOMES or any(is_inside(home, real) for home in (self.user_home, self.hermes_home)):
                self.refused.append(entry)
            else:
                yield path

    def for_cwd(self, cwd: str) -> PathRules:
        """Return the rules for a resolved working directory; a home, or a folder above one, adds nothing."""
        if is_inside(self.user_home, cwd) or cwd in HOMES or is_inside(self.hermes_home, cwd):
            return self
        rules = copy.copy(self)
        rules.opened = (*self.opened, cwd)
        return rules

    def is_writable(self, path: str) -> bool:
        """Return whether a resolved path is in a folder of `terminal.writable_paths`."""
        return any(is_inside(path, os.path.realpath(folder)) for folder in self.writable)

    def allow_writing(self, folder: str) -> None:
        """Add a folder to `terminal.writable_paths`, in memory and in the config file.

        Raises:
            ConfigError: the file cannot be changed, or would become invalid.
            UserError: Nix declares the list.
        """
        from hermes_agent.config.edit import set_value  # a slow import, for the rare answer `always`

        if folder not in self.writable:
            set_value(Path(self.hermes_home), ("terminal", "writable_paths"), [*self.writable, folder])
            self.writable.append(folder)

    def closed_reason(self, path: str, status: os.stat_result | None = None) -> str | None:
        """Return why tools cannot read a resolved path, or None; `status` as in `secret_reason`."""
        return self.secret_reason(path, status) or self.unlisted_reason(path)

    def unlisted_reason(self, path: str) -> str | None:
        """Return why a resolved path is not shown, or None when the table or the operator shows it."""
        if any(is_inside(path, place) for place in self.opened):
            return None
        if is_inside(path, self.hermes_home) or is_inside(path, self._main_home):
            return None  # `foreign_reason` decides
        if self.user_home != "/" and is_inside(path, self.user_home):
            place = path[len(self.user_home) + 1 :]
            return None if is_shown_of_home(place) else f"a hidden entry of the home directory {_HINT}"
        if any(is_inside(path, place) for place in (*SYSTEM, *TEMPORARY, "/dev", "/proc", sys.prefix, sys.base_prefix)):
            return None if _is_not_root() or others_may_read(path) else "the system's users may not read it"
        if any(is_above(path, place) for place in (*self.opened, self.user_home, *SYSTEM)):
            return None
        home = any(is_inside(path, homes) for homes in HOMES)
        return f"another user's home directory {_HINT}" if home else f"it {_HINT}"

    def _secret_files(self) -> Iterator[str]:
        yield from (f"{self.hermes_home}/{name}" for name in _HOME_SECRETS)
        users = (f"{self.user_home}/{name}" for name in file_table("secret-files-of-home"))
        yield from (path for path in users if path not in self.opened)  # where the operator names the file itself
        yield from file_table("secret-files")

    def secret_reason(self, path: str, status: os.stat_result | None = None) -> str | None:
        """Return why tools may not have a resolved path, or None.

        Args:
            path: the resolved path.
            status: the status of the file; with it, hard links of known secrets are recognized, too.
        """
        if path in self._files or any(is_inside(path, tree) for tree in self._trees) or self._is_of_a_profile(path):
            return "it holds credentials"
        parts = path.split("/")
        if len(parts) > 2 and parts[1] == "proc" and (parts[2].isdigit() or parts[2] in _INSIDE):
            return "it shows the inside of a process"
        if _is_ssh_key(parts):
            return "it is an SSH key"
        if (why := self.foreign_reason(path)) is not None:
            return why
        if status is not None and status.st_nlink > 1 and (status.st_dev, status.st_ino) in self._identities():
            return "it is another name of a file that holds credentials"
        return None

    def foreign_reason(self, path: str) -> str | None:
        """Return why the current call may not open a resolved path of the agent's home, or None."""
        if is_inside(path, self.hermes_home):
            place = path[len(self.hermes_home) + 1 :]
            return find_denial(place, self.reader(), is_folder="/" not in place and os.path.isdir(path))  # noqa: PTH112
        return "it is in the home of another profile" if is_inside(path, self._main_home) else None

    def hides(self, path: str) -> bool:
        """Return whether the name of an entry would reveal something about another user."""
        return self.foreign_reason(path) is not None and path.rpartition("/")[0] != self.hermes_home

    def _is_of_a_profile(self, path: str) -> bool:
        """Return whether a path is a secret of the main home or of one of its profiles."""
        place = path.removeprefix(f"{self._main_home}/")
        if place == path:
            return False
        if place.startswith("profiles/"):
            place = place.split("/", 2)[-1]
        return place in _HOME_SECRETS or place.startswith(("restore-points/", "imports/"))

    def secret_trees(self) -> tuple[str, ...]:
        """Return the directories that hold credentials; they may not exist."""
        return self._trees

    def secret_files(self) -> Iterator[str]:
        """Yield the real paths of files that hold credentials, with the existing SSH keys of user and system."""
        yield from (os.path.realpath(path) for path in self._files)
        for directory in (f"{self.user_home}/.ssh", "/etc/ssh"):
            with contextlib.suppress(OSError):
                for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
                    if _is_ssh_key(entry.path.split("/")) and entry.is_file():
                        yield os.path.realpath(entry.path)

    def _identities(self) -> Iterable[tuple[int, int]]:
        below = (f"{place}/{name}" for tree in self._trees for place, _, names in os.walk(tree) for name in names)
        for path in (*self._files, *self.secret_files(), *islice(below, MOST_SECRETS)):
            try:
                found = Path(path).stat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield found.st_dev, found.st_ino

    def write_concern(self, target: str, cwd: str) -> WriteConcern | None:
        """Return why writing to the resolved `target` needs an approval, or None.

        Args:
            target: the resolved path of the file.
            cwd: the resolved working directory.
        """
        own = is_inside(target, self._main_home) and self._is_state(target)
        work = is_inside(cwd, f"{self.hermes_home}/{WORKSPACE}") and is_inside(target, cwd)
        if own or (is_inside(target, self.hermes_home) and not work):
            return WriteConcern("in the agent's own home", True, own)
        if self._is_hidden(target, cwd):
            return WriteConcern("in a hidden file or directory of the home directory", True)
        if where := steering_reason(target, self.user_home):
            return WriteConcern(where, True)
        if self.is_writable(target):
            return None
        if cwd == self.user_home:
            return WriteConcern("in the home directory, which is not a project", False)
        if cwd == "/" or not is_inside(target, cwd):
            return WriteConcern("outside the working directory", False)
        return None

    def _is_state(self, target: str) -> bool:
        """Return whether a file of the main home or of a profile decides what the agent may do."""
        place = target[len(self._main_home) + 1 :]
        if place.startswith("profiles/"):
            place = place.split("/", 2)[-1]
        return place.partition("/")[0] in _STATE

    def _is_hidden(self, target: str, cwd: str) -> bool:
        """Return whether the target is in a hidden entry of the user's home that does not hold `cwd`."""
        top = f"{self.user_home}/{target[len(self.user_home) + 1 :].partition('/')[0]}"
        return is_inside(target, self.user_home) and top.startswith(f"{self.user_home}/.") and not is_inside(cwd, top)


def _is_ssh_key(parts: list[str]) -> bool:
    name = parts[-1]
    if name.startswith("ssh_host_") and name.endswith("_key"):
        return True
    return ".ssh" in parts[:-1] and name not in _SSH_PUBLIC and not name.endswith(".pub")


class IsDirectory(ToolFailed):
    """A file was expected, and the path is a directory."""


DIRECTORY = "a directory"
_KINDS = (
    (stat.S_ISDIR, DIRECTORY),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """Return the kind of a special file or directory in words; empty for a regular file."""
    return next((words for test, words in _KINDS if test(mode)), "")


def open_regular(path: str, places: PathRules) -> tuple[IO[bytes], os.stat_result]:
    """Open a resolved path for reading.

    The rules are checked again for the opened file, so that a link which changes in between
    opens no closed file.

    Raises:
        ToolFailed: it does not exist, may not be read, is not a regular file, or holds credentials.
    """
    check_readable(places, path, None)
    try:
        directory, name = os.path.split(path)
        with hold_directory(directory, make=False) as above:
            handle = _open_file(above, name, path)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {_error_text(exc)}") from exc
    file = os.fdopen(handle, "rb")
    try:
        status = os.fstat(handle)
        check_readable(places, _real_path(handle, path), status)
    except BaseException:
        file.close()
        raise
    return file, status


@contextlib.contextmanager
def open_for_listing(path: str, places: PathRules) -> Iterator[int]:
    """Open a resolved directory for reading; the rules are checked again for the opened directory.

    Raises:
        ToolFailed: it cannot be read, or holds credentials.
    """
    check_readable(places, path, None)
    try:
        with hold_directory(path, make=False) as opened:
            handle = open_beneath(opened, "", os.O_RDONLY | os.O_DIRECTORY)
        try:
            check_readable(places, _real_path(handle, path), None)
            yield handle
        finally:
            os.close(handle)
    except OSError as exc:
        raise ToolFailed(f"{path} cannot be read: {_error_text(exc)}") from exc


def _open_file(above: int, name: str, path: str) -> int:
    """Open a regular file; opening a special file could have effects, or block."""
    opened = open_beneath(above, name, os.O_PATH)
    try:
        _check_kind(opened, path)
    finally:
        os.close(opened)
    handle = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_kind(handle, path)  # it may have been replaced meanwhile
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_kind(handle: int, path: str) -> None:
    mode = os.fstat(handle).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if kind := kind_of(mode):
        raise (IsDirectory if kind == DIRECTORY else ToolFailed)(f"{path} is {kind}, not a file")


def _error_text(exc: OSError) -> str:
    return "a part of the path is a symbolic link" if exc.errno == errno.ELOOP else exc.strerror or str(exc)


def check_readable(places: PathRules, path: str, status: os.stat_result | None) -> None:
    """Raise when tools may not read a path; `check_not_secret` is for writing.

    Raises:
        ToolFailed: with the reason.
    """
    _raise(path, places.closed_reason(path, status))


def check_not_secret(places: PathRules, path: str) -> None:
    """Raise when a path holds credentials; no approval opens it."""
    _raise(path, places.secret_reason(path))


def _raise(path: str, reason: str | None) -> None:
    if reason is not None:
        raise ToolFailed(f"{path} is not open to tools: {reason}")


def _real_path(handle: int, path: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{handle}").readlink())
    except OSError:  # there is no /proc
        return path


def open_readable(path: str, home: Path, cwd: Path, reader: FileAccess, added: Iterable[str] = ()) -> IO[bytes]:
    """Open a regular file that a tool may read; arguments as in `closed_reason`. Raise ToolFailed."""
    places = _rules_for(home, cwd, reader, added)
    return open_regular(resolve(path, str(cwd), places.user_home), places)[0]


def closed_reason(path: str, home: Path, cwd: Path, reader: FileAccess, added: Iterable[str] = ()) -> str | None:
    """Return why tools may not read a file, or None.

    Args:
        path: the path of the file.
        home: `HERMES_HOME`.
        cwd: the resolved working directory, the base of a relative path.
        reader: which files of the home the call may open.
        added: `terminal.sandbox_paths`.
    """
    places = _rules_for(home, cwd, reader, added)
    place = resolve(str(path), str(cwd), places.user_home)
    return places.closed_reason(place, _status(place))


def secret_reason(path: str, home: Path, cwd: Path, reader: FileAccess) -> str | None:
    """Return why no tool may have a file, not even to write it with an approval, or None.

    Args:
        path: the path of the file.
        home: `HERMES_HOME`.
        cwd: the base of a relative path.
        reader: which files of the home the call may open.
    """
    places = _places(home, reader)
    place = resolve(str(path), str(cwd), places.user_home)
    return places.secret_reason(place, _status(place))


def _status(place: str) -> os.stat_result | None:
    try:
        return os.stat(place)  # noqa: PTH116 - `PathRules` takes text
    except OSError:
        return None


def _rules_for(home: Path, cwd: Path, reader: FileAccess, added: Iterable[str]) -> PathRules:
    return _places(home, reader, added).for_cwd(str(cwd))


def _places(home: Path, reader: FileAccess, added: Iterable[str] = ()) -> PathRules:
    return PathRules(str(home), str(Path.home()), os.environ.get("CREDENTIALS_DIRECTORY", ""), added, lambda: reader)
