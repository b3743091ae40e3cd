"""File rules of the sandbox and the file tools: shown places, secrets of services, steering files.

The tables are in `file_rules.txt`. Places that are not listed there are not visible.

An agent that runs as root must not read the secrets of services, which other users cannot read (`others_may_read`).

Steering files are files that other programs of the user run or obey later without a question. `write_file` and `patch`
ask about each content of such a file; a command in the sandbox can neither change nor make one
(`workspace.sandbox.steering_watch`). What runs only when the user builds or starts the project (a Makefile,
`package.json`, a virtual environment) is not a steering file. The config of a repository is read as git reads it, and
written again without keys that run programs.

Imports the standard library only, because the search process loads this module.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path


@functools.cache
def _tables() -> dict[str, tuple[str, ...]]:
    """Return `file_rules.txt`: words by name."""
    tables: dict[str, tuple[str, ...]] = {}
    for line in Path(__file__).with_name("file_rules.txt").read_text(encoding="utf-8").splitlines():
        name, divided, words = line.partition(" | ")
        if divided and not line.startswith("#"):
            tables[name] = (*tables.get(name, ()), *words.split())
    return tables


def file_table(name: str) -> tuple[str, ...]:
    """Return the words of a table in `file_rules.txt`."""
    return _tables()[name]


SYSTEM = file_table("system")
"""Programs, their settings and logs, as far as the agent's user may read them; for root, as far as others may."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Temporary directories: file tools see those of the machine, commands in the sandbox have empty ones."""
HOMES = ("/home", "/root", "/Users", "/var/home")

SHOWN_OF_HOME = file_table("shown-of-home")
"""Hidden entries of the user's home that are shown: toolchains, without files that hold credentials."""
CACHES = file_table("caches")
"""Caches that are useful without being written."""
TEMPORARY_CACHE = ".cache"
"""Cache of the home; commands have an empty one with `CACHES` in it."""
WITHHELD = ("snap", "Library")
"""Visible entries of a home that hold data of programs, such as browser profiles."""


def is_inside(path: str, directory: str) -> bool:
    """Return whether a resolved path is `directory` or in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_above(path: str, place: str) -> bool:
    """Return whether a resolved path is a directory on the way to `place`."""
    return path != place and is_inside(place, path)


def is_shown_of_home(place: str) -> bool:
    """Return whether a path relative to the user's home is shown; the home itself is empty."""
    top = place.partition("/")[0]
    if not top:
        return True
    if not top.startswith("."):
        return top not in WITHHELD
    return any(is_inside(place, shown) for shown in (*SHOWN_OF_HOME, *CACHES))


_BASES = {"/etc": 99, "/usr/local/etc": 99, "/var/log": 99, "/opt": 3}
"""Directories with secrets of services, and the depth of the search in each."""


def others_may_read(path: str, bases: Mapping[str, int] = _BASES) -> bool:
    """Return whether every user may read a path in these directories; True for other and missing paths."""
    base = next((base for base in bases if is_inside(path, base)), None)
    if base is None:
        return True
    places = [base]
    for name in filter(None, path[len(base) :].split("/")):
        places.append(f"{places[-1]}/{name}")
    try:
        return not any(_is_closed(os.lstat(place).st_mode) for place in places)
    except OSError:
        return True


def _is_closed(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        return not mode & stat.S_IXOTH
    return stat.S_ISREG(mode) and not mode & stat.S_IROTH


class Protected:
    """The secrets of services; listed again after a change of a directory, but not after a `chmod`.

    Args:
        bases: directories with secrets of services, and the depth of the search in each.
    """

    def __init__(self, bases: Mapping[str, int] = _BASES) -> None:
        self._bases = bases
        self._lock = threading.Lock()
        self._directories: dict[str, int] = {}
        self._found: tuple[str, ...] = ()

    def paths(self) -> tuple[str, ...]:
        """Return the paths of files, and of directories as a whole."""
        with self._lock:
            if not self._directories or any(_change_time(path) != time for path, time in self._directories.items()):
                self._directories = {}
                self._found = tuple(path for base, depth in self._bases.items() for path in self._below(base, depth))
            return self._found

    def _below(self, directory: str, depth: int) -> list[str]:
        self._directories[directory] = _change_time(directory)
        try:
            entries = list(os.scandir(directory))
        except OSError:
            return []
        found: list[str] = []
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError:  # deleted since the listing
                continue
            if _is_closed(mode):
                found.append(entry.path)
            elif stat.S_ISDIR(mode) and depth > 1:
                found += self._below(entry.path, depth - 1)
        return found


def _change_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - some hundreds for each command
    except OSError:
        return -1


ANYWHERE = frozenset(file_table("steering-anywhere"))
"""Names in lower case that steer other programs in every directory."""
_SUFFIXES = (".code-workspace",)

IN_HOME = file_table("steering-of-home")
"""Entries of a home directory that steer other programs, as a whole."""

GIT_FILES = ("config", "config.worktree", "hooks", "commondir")
"""Steering files in a git directory, which is recognized by its content: a bare repository has any name."""
HELD = ".held"
"""Suffix of the names of files that were set aside."""

_HELPER_URL = re.compile(r"(?:ext|fd)::", re.IGNORECASE)


def is_steering_name(name: str) -> bool:
    """Return whether an entry with this name steers other programs in any directory."""
    name = name.lower()
    return name in ANYWHERE or name.endswith(_SUFFIXES)


def is_git_directory(names: Collection[str]) -> bool:
    """Return whether git may use a directory with these entries as a repository, or a part of one."""
    return ("objects" in names and "refs" in names) or ("HEAD" in names and "commondir" in names)


def is_harmless_key(key: str, value: str) -> bool:
    """Return whether a setting of a repository (`section.subsection.key`) cannot run a program."""
    section, _, rest = key.partition(".")
    allowed = _tables().get(f"git:{section}", ())
    if "*" not in allowed and rest.rpartition(".")[2] not in allowed:
        return False
    return _HELPER_URL.match(value) is None


def is_of_home(path: str, home: str) -> bool:
    """Return whether a resolved path is in, or contains, an entry of the home that steers other programs."""
    if home == "/":
        return False
    return any(_is_inside(path, f"{home}/{name}") or _is_inside(f"{home}/{name}", path) for name in IN_HOME)


def steering_reason(target: str, home: str) -> str:
    """Return in words where a resolved file is that steers other programs; empty if it does not."""
    if target != home and is_of_home(target, home):
        return "that the user's shell, desktop or other programs run or obey"
    parts = target.split("/")
    for name in (".git", ".hg"):
        if name in parts:
            return f"in a repository's {name} directory"
    if name := next(filter(is_steering_name, parts), ""):
        return f"in {name}, which other programs of the user obey"
    return "in a git repository without a work tree" if any(_completes(*step) for step in _steps(target)) else ""


def _steps(target: str) -> Iterator[tuple[str, str]]:
    """Yield the directories above a file, each with its entry on the path to the file."""
    directory, name = os.path.split(target)
    while name:
        yield directory, name
        directory, name = os.path.split(directory)


def _completes(directory: str, name: str) -> bool:
    """Return whether an entry belongs to a git directory, or would make a directory one."""
    if name not in (*GIT_FILES, "HEAD", "objects", "refs"):
        return False
    try:
        names = {*os.listdir(directory), name}  # noqa: PTH208 - text
    except OSError:
        return False
    return is_git_directory(names) and any(file in names for file in GIT_FILES)


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


MOST_BYTES = 1_000_000
_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)")
_VALUE = re.compile(r"(?:^|\])\s*(hookspath|path)\s*=\s*\"?([^\"#;\n]+)", re.IGNORECASE)


def parse_settings(text: str) -> list[tuple[str, str | None]] | None:
    """Return the settings of a config as git reads them, or None when git cannot read it."""
    try:
        done = subprocess.run(
            ["git", "config", "--file", "-", "--no-includes", "--list", "-z"],
            input=text.encode("latin-1"), capture_output=True, timeout=10, check=False, cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    entries = done.stdout.decode("latin-1").split("\0")[:-1]
    parts = (entry.partition("\n") for entry in entries)
    return [(key, value if divided else None) for key, divided, value in parts]


def format_settings(pairs: list[tuple[str, str | None]]) -> bytes:
    """Return a config with these settings."""
    lines = []
    for key, value in pairs:
        section, _, rest = key.partition(".")
        sub, _, name = rest.rpartition(".")
        quoted = sub.replace("\\", "\\\\").replace('"', '\\"')
        text = (value or "").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{section} "{quoted}"]' if sub else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f'\t{name} = "{text}"')
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def named_paths(text: str, work: str, git: str) -> Iterator[tuple[str, str]]:
    """Yield the paths from which a config takes hooks and further settings, with their kind.

    Args:
        text: the config.
        work: the base of a path of hooks.
        git: the directory of the config, the base of an included file.
    """
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1].lower()
        if (value := _VALUE.search(line)) is None:
            continue
        name, path = value[1].lower(), value[2].strip()
        if name == "hookspath" and section == "core":
            place = os.path.join(work, path)  # noqa: PTH118 - text
            yield place, "hooks"
            if place.endswith("/_"):  # these hooks call those in the parent directory
                yield place[:-2], "hooks"
        elif name == "path" and section in ("include", "includeif"):
            yield os.path.join(git, path), "named"  # noqa: PTH118


def paths_around(root: str) -> Iterator[tuple[str, str]]:
    """Yield paths below a directory that steer a repository with a config outside it."""
    for work in (root, *(str(parent) for parent in Path(root).parents)):
        for git in _git_directories(work):
            for path, kind in named_paths(_text(f"{git}/config"), work, git):
                full = os.path.normpath(path)
                if full.startswith(f"{root}/"):
                    yield full[len(root) + 1 :], kind
    home = os.path.expanduser("~")  # noqa: PTH111
    for file in (f"{home}/.gitconfig", f"{home}/.config/git/config"):
        for path, kind in named_paths(_text(file), root, os.path.dirname(file)):  # noqa: PTH120
            full = os.path.normpath(os.path.expanduser(path))  # noqa: PTH111
            if full.startswith(f"{root}/"):
                yield full[len(root) + 1 :], kind


def _git_directories(work: str) -> Iterator[str]:
    """Yield the directories with the config of the repository of a work tree."""
    if os.path.isdir(f"{work}/.git"):  # noqa: PTH112
        yield f"{work}/.git"
        return
    link = _text(f"{work}/.git")
    if link.startswith("gitdir:"):
        git = os.path.join(work, link.removeprefix("gitdir:").strip())  # noqa: PTH118
        yield git
        if common := _text(f"{git}/commondir").strip():
            yield os.path.normpath(os.path.join(git, common))  # noqa: PTH118


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(MOST_BYTES)
    except (OSError, ValueError):
        return ""
