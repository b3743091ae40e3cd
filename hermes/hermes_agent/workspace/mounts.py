"""The arguments of bubblewrap that show what the table of `view` lists, to commands of one working directory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from hermes_agent.workspace import gitconfig
from hermes_agent.workspace.places import PathRules
from hermes_agent.workspace.protected import Protected
from hermes_agent.workspace.view import (
    CACHES,
    SHOWN_OF_HOME,
    SYSTEM,
    TEMPORARY_CACHE,
    is_above,
    is_inside,
    is_shown_of_home,
)

__all__ = ["PRIVATE_DIRECTORIES", "Mounts"]

PRIVATE_DIRECTORIES = ("/tmp", "/var/tmp", "/run")
"""Commands have their own."""


class Mounts:
    """What commands see. Made once; what is listed is looked up for each command.

    Args:
        empty: yields the arguments for an empty directory that commands may fill, as far as they are allowed to.
    """

    def __init__(self, places: PathRules, empty: Callable[[str], Iterator[str]]) -> None:
        self._places, self._empty = places, empty
        self._protected = Protected()

    def system_options(self, credentials: Collection[str]) -> Iterator[str]:
        """Yield what shows programs and the settings of the system, and the private places.

        Args:
            credentials: files that are covered when all else is shown.
        """
        for place in PRIVATE_DIRECTORIES:
            if Path(place).is_dir() and not Path(place).is_symlink():
                yield from self._empty(place)
        for place in SYSTEM:
            yield from _show_entry(place)
        if os.geteuid() == 0:
            yield from (word for path in self._protected.paths() if path not in credentials for word in _cover(path))

    def user_options(self) -> Iterator[str]:
        """Yield what shows the user's home as far as it is listed, what the operator added, and this interpreter."""
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
        """Say whether commands of the working directory `root` see a resolved path, as far as it exists."""
        home = self._places.user_home
        if is_inside(path, home) and home != "/" and is_shown_of_home(path[len(home) + 1 :]):
            return True
        interpreter = (sys.base_prefix, sys.prefix)
        opened = self._places.for_cwd(root).opened
        if any(is_inside(path, place) for place in (*SYSTEM, "/dev", "/proc", *interpreter, *opened)):
            return True
        return path in PRIVATE_DIRECTORIES or any(is_above(path, place) for place in (home, *SYSTEM, *opened))

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield what the operator's lists add, and their entries that have no effect."""
        places = self._places
        if places.added:
            yield (
                True,
                "the sandbox shows beside its list (terminal.sandbox_paths, writable_paths)",
                "; ".join(places.added),
            )
        if places.writable:
            yield True, "written without a question (terminal.writable_paths)", "; ".join(places.writable)
        for path in places.added:
            if not Path(path).exists():
                yield False, "terminal.sandbox_paths, writable_paths", f"{path} does not exist: no effect"
        for entry in places.refused:
            text = f"{entry!r} is no absolute path, or would show a whole home: no effect; name what is needed of it"
            yield False, "terminal.sandbox_paths, writable_paths", text

    def final_options(self) -> Iterator[str]:
        """Yield what makes read-only that which holds the rest together; the last arguments."""
        home = self._places.user_home
        if home != "/" and Path(home).is_dir():
            yield from ("--remount-ro", home)
        yield from ("--remount-ro", "/")

    def _home(self, home: str) -> Iterator[str]:
        if Path(home, TEMPORARY_CACHE).is_dir():
            yield from self._empty(f"{home}/{TEMPORARY_CACHE}")
        with contextlib.suppress(OSError):
            for entry in os.scandir(home):
                if is_shown_of_home(entry.name):
                    yield from _show_entry(entry.path)
        for name in (*SHOWN_OF_HOME, *CACHES):
            yield from _show_entry(f"{home}/{name}")
        for name in gitconfig.GIT_CONFIG_FILES:
            copy = gitconfig.write_git_config(Path(home, name), Path(self._places.hermes_home, "cache", "sandbox"))
            if copy is not None:
                yield from ("--ro-bind", str(copy), f"{home}/{name}")


def _show_entry(path: str) -> Iterator[str]:
    """Show a file or directory; a link as a link, so that it leads nowhere but to what is shown."""
    try:
        yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115 - some fifty for each command
    except FileNotFoundError:
        return
    except OSError:  # no link
        yield from ("--ro-bind-try", path, path)


def _cover(path: str) -> Iterator[str]:
    directory = ("--tmpfs", path, "--remount-ro", path)
    yield from directory if Path(path).is_dir() else ("--ro-bind", os.devnull, path)
