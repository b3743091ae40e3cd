"""Find the plugins among the installed Python packages.

`importlib.metadata` costs some 20 ms and opens every distribution; here one small file a distribution is read, and
only those that name a group are parsed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["GROUP", "GROUPS", "EntryPoint", "entry_point_files", "find_entry_points"]

logger = logging.getLogger(__name__)

GROUP = "hermes_agent.plugins"

GROUPS = {
    GROUP: "standalone",
    "hermes_agent.model_providers": "model-provider",
    "hermes_agent.memory_providers": "exclusive",
    "hermes.memory_provider": "exclusive",
}
"""The groups, each with the kind of its plugins. Upstream reads the first alone; packages have all of them."""

_HEADERS = {f"[{group}]": group for group in GROUPS}
_SEPARATORS = re.compile(r"[-_.]+")


class EntryPoint(NamedTuple):
    """One line of a group."""

    name: str
    value: str
    """`package.module`, or `package.module:attribute`."""
    distribution: str
    """`name version` as far as the metadata folder's name tells."""
    group: str = GROUP


def find_entry_points(path: Sequence[str] | None = None) -> list[EntryPoint]:
    """Return the entry points of the groups, in the order of `path` (default: `sys.path`) and of names in it.

    A distribution that comes again later on the path is shadowed by the first, as an import would be.
    """
    found: list[EntryPoint] = []
    seen: set[str] = set()
    for directory in sys.path if path is None else path:
        for folder in _metadata_folders(directory or "."):
            name, version = _distribution(folder)
            canonical = _SEPARATORS.sub("-", name).lower()
            if canonical in seen:
                continue
            seen.add(canonical)
            distribution = f"{name} {version}".strip()
            for group, key, value in _group_lines(f"{directory or '.'}/{folder}/entry_points.txt"):
                found.append(EntryPoint(key, value, distribution, group))
    return found


def entry_point_files(path: Sequence[str]) -> list[str]:
    """Return the files on `path` that have the group."""
    found = []
    for directory in path:
        for folder in _metadata_folders(directory or "."):
            file = f"{directory or '.'}/{folder}/entry_points.txt"
            if any(True for _ in _group_lines(file)):
                found.append(file)
    return found


def _metadata_folders(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - every start does this
    except OSError:  # a path entry that is not there, or an archive
        return []
    return sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))


def _distribution(folder: str) -> tuple[str, str]:
    name, _, version = folder.rpartition(".")[0].partition("-")
    return name, version.partition("-py")[0]


def _group_lines(file: str) -> Iterator[tuple[str, str, str]]:
    try:
        with open(file, encoding="utf-8", errors="replace") as handle:  # noqa: PTH123
            text = handle.read()
    except OSError:  # most distributions have none
        return
    if not any(group in text for group in GROUPS):
        return
    group = None
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            group = _HEADERS.get(line)
        elif group and line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if equals:
                yield group, name.strip(), value.partition("[")[0].strip()
            else:
                logger.warning("%s: cannot read the line %r in %s", file, line, f"[{group}]")
