"""The sandbox of the process of a plugin: bubblewrap with the files of the plugin."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import hermes_agent
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.workspace.egress.networks import Networks
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.file_rules import SYSTEM, is_inside


class PluginFiles(LazyNamedTuple):
    """The files that the process of a plugin sees in addition to the system and the interpreter."""

    home: str
    """The private home, which it may write."""
    folder: str = ""
    """The folder of a directory plugin; empty for an installed package."""
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class PluginSandbox(BubblewrapSandbox):
    """The sandbox of one plugin.

    Args:
        networks: the network of the plugin; None for none.
    """

    def __init__(
        self, places: PathRules, files: PluginFiles, *, networks: Networks | None, path: str | None, tmp_mb: int = 0
    ) -> None:
        super().__init__(places, networks=networks, path=path, tmp_mb=tmp_mb)
        self._files = files

    def _options(
        self, root: str, keep: Sequence[str] = (), *, way_out: bool = False, work_dir: str = ""
    ) -> Iterator[str]:
        yield from super()._options(root, keep, way_out=way_out, work_dir=work_dir)
        for place in code_directories(self._files.folder):
            yield from ("--ro-bind", os.path.realpath(place), place)
        for place in self._files.readable:
            yield from ("--ro-bind-try", place, place)
        for place in (self._files.home, *self._files.writable):
            yield from ("--bind", place, place)
        if self._files.folder:
            yield from ("--ro-bind", os.path.realpath(self._files.folder), self._files.folder)


def code_directories(folder: str = "") -> list[str]:
    """Return the directories of Python code that are neither of the system nor of the interpreter.

    These are the source of this program, and directories of installed packages; `folder` is left out.
    """
    known = (sys.prefix, sys.base_prefix, *SYSTEM)
    own = str(Path(hermes_agent.__file__).parents[1])
    bundled = Path(hermes_agent.__file__).with_name("_bundled")  # a link in a checkout
    packages = [*site.getsitepackages(), site.getusersitepackages(), *(p for p in sys.path if _has_packages(p))]
    places = (own, *([os.path.realpath(bundled)] if bundled.is_symlink() else ()), *packages)
    found = [place for place in dict.fromkeys(places) if Path(place).is_dir()]
    return [place for place in found if place != folder and not any(is_inside(place, shown) for shown in known)]


def _has_packages(place: str) -> bool:
    try:
        return bool(place) and any(entry.name.endswith((".dist-info", ".egg-info")) for entry in os.scandir(place))
    except OSError:
        return False
