"""Whether the installed Python packages that plugins live in fight for a name: for `hermes plugins check`.

The Nix build has the same rules for store paths, in `plugins.closure`; here the packages lie on `sys.path` already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from hermes_agent.plugins.check_report import Finding
from hermes_agent.plugins.closure import canonical
from hermes_agent.plugins.entry_points import find_entry_points

__all__ = ["package_findings"]

AGENT = "hermes-agent"


class _Installed(NamedTuple):
    name: str
    """Canonical."""
    version: str
    place: str
    """The directory on the path."""
    distribution: Distribution

    @property
    def label(self) -> str:
        """The line that names it in a finding."""
        return f"{self.name} {self.version}  {self.place}"


def package_findings(path: Sequence[str] | None = None) -> list[Finding]:
    """Return what is wrong among the packages on `path` (default: `sys.path`).

    It is an error where a plugin's package or the agent's own is concerned, else a warning.
    """
    places = sys.path if path is None else path
    installed = list(_installed(places))
    concerned = {AGENT, *(canonical(e.distribution.split(" ")[0]) for e in find_entry_points(places))}
    return [*_twice(installed, concerned), *_same_files(installed, concerned)]


def _installed(places: Iterable[str]) -> Iterator[_Installed]:
    for place in dict.fromkeys(str(Path(p or ".").resolve()) for p in places):
        for distribution in distributions(path=[place]):
            name = distribution.metadata["Name"]
            if name:
                yield _Installed(canonical(name), distribution.version, place, distribution)


def _twice(installed: list[_Installed], concerned: set[str]) -> Iterator[Finding]:
    """Yield the distributions that are there in more than one version: the first on the path is imported."""
    by_name: dict[str, list[_Installed]] = {}
    for item in installed:
        by_name.setdefault(item.name, []).append(item)
    for name, items in sorted(by_name.items()):
        if len({item.version for item in items}) > 1:
            yield Finding(
                "error" if name in concerned else "warning",
                "Python package",
                f"the Python package `{name}` is there in {len(items)} versions, and the first is imported:",
                details=tuple(item.label for item in items),
                hint=f"uninstall the one that is not meant: python -m pip uninstall {name}",
                name=name,
            )


def _same_files(installed: list[_Installed], concerned: set[str]) -> Iterator[Finding]:
    """Yield the import names of which two packages brought the same file: the later one overwrote the first's."""
    owners: dict[tuple[str, str], dict[str, _Installed]] = {}
    for item in installed:
        for file in item.distribution.files or ():
            if file.suffix in (".py", ".so", ".pyd") and ".." not in file.parts and "__pycache__" not in file.parts:
                owners.setdefault((item.place, str(file)), {})[item.name] = item
    fights: dict[tuple[str, ...], tuple[_Installed, ...]] = {}
    for (_, brought), items in owners.items():
        if len(items) > 1:
            top, names = brought.split("/")[0].partition(".")[0], sorted(items)
            fights.setdefault((top, *names), tuple(items[name] for name in names))
    for (top, *names), fighting in sorted(fights.items()):
        yield Finding(
            "error" if concerned & set(names) else "warning",
            "import name",
            f"the import name `{top}` belongs to {len(names)} Python packages that brought the same files:",
            details=tuple(item.label for item in fighting),
            hint="the one that was installed last is imported; uninstall the other and install the meant one again, "
            "or have its author rename the module",
            name=top,
        )
