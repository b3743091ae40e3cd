"""Find the plugins among the installed Python packages.

`importlib.metadata` costs some 20 ms and opens every distribution; here one small file a distribution is read, and
only those that name a group are parsed.

`plugins.json`: what a sweep of the bundled and declared plugins found, written once, so that a start need not look.

A start takes it when it is of this version, this interpreter and these directories, and when the size and time of each
directory and manifest are those that were seen. It then lists no directory and parses no manifest of these sources.
Otherwise it is ignored, with the reason, and the plugins are looked for as always. `hermes plugins index` writes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_agent import __version__
from hermes_agent.plugins.manifest import PluginManifest

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


VARIABLE = "HERMES_PLUGIN_INDEX"
"""Names the file; without it, one beside the first declared directory is taken."""
INDEX_NAME = "plugins.json"
FORMAT = 3
MAX_BYTES = 64 * 2**20
"""Bytes of a file that may be an index."""


class IndexMismatch(Exception):
    """The index is not of what is there; the text says what differs."""


class IndexedPlugin(NamedTuple):
    """One thing that a sweep came upon, in its order."""

    manifest: PluginManifest | None
    name: str = ""
    path: str = ""
    reason: str = ""
    """Why it is no plugin, where there is no manifest."""


def program_identity() -> dict[str, str]:
    """Return what an index is made for: the version, and the interpreter with its environment."""
    version = ".".join(str(n) for n in sys.version_info[:3])
    return {"hermes": __version__, "python": version, "prefix": sys.prefix}


def file_stat(path: str) -> list[int] | None:
    """Return size (of a file) and time of change; None when there is nothing."""
    try:
        info = os.stat(path)  # noqa: PTH116 - every start does this for each plugin
    except OSError:
        return None
    return [0 if os.path.stat.S_ISDIR(info.st_mode) else info.st_size, info.st_mtime_ns]  # type: ignore[attr-defined]


def find_index(environ: Mapping[str, str], declared: Iterable[str]) -> str | None:
    """Return the file that is to be used; None when there is none and nobody named one."""
    named = environ.get(VARIABLE, "")
    if named:
        return named
    for directory in declared:
        beside = os.path.join(os.path.dirname(directory.rstrip("/")), INDEX_NAME)  # noqa: PTH118, PTH120
        return beside if os.path.exists(beside) else None  # noqa: PTH110
    return None


class PluginIndex:
    """An index that fits.

    Args:
        document: what `plugins.json` holds.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @classmethod
    def read(cls, file: str, roots: Sequence[tuple[str, str]]) -> PluginIndex:
        """Read and compare it with what is there.

        Args:
            roots: source and path of each directory that a sweep would begin at.

        Raises:
            IndexMismatch: it cannot be read, or is of something else.
        """
        try:
            with open(file, "rb") as handle:  # noqa: PTH123
                document = json.loads(handle.read(MAX_BYTES))
        except FileNotFoundError:
            raise IndexMismatch("it is not there") from None
        except (OSError, ValueError, RecursionError) as exc:
            raise IndexMismatch(f"it cannot be read: {exc}") from exc
        if not isinstance(document, dict) or document.get("index") != FORMAT:
            raise IndexMismatch(f"it is no index of format {FORMAT}")
        try:
            _compare(document, roots)
            return cls(document)
        except (TypeError, KeyError, AttributeError, ValueError) as exc:
            raise IndexMismatch(f"it is damaged: {exc!r}") from exc

    def found(self, source: str) -> list[IndexedPlugin]:
        """Return what the sweep of a source came upon."""
        return [_parse_found(each) for each in self._document["found"] if each["source"] == source]

    def entry_points(self, path: Sequence[str]) -> list[EntryPoint] | None:
        """Return the entry points that were found on this path; None when it is another, or has changed."""
        seen = self._document["search_path"]
        if [place for place, _ in seen] != list(path) or any(file_stat(place or ".") != stat for place, stat in seen):
            return None
        if any(file_stat(file) != stat for file, stat in self._document["entry_point_files"].items()):
            return None
        return [EntryPoint(*each) for each in self._document["entry_points"]]


def _compare(document: Mapping[str, Any], roots: Sequence[tuple[str, str]]) -> None:
    for name, now in program_identity().items():
        if document["program"].get(name) != now:
            raise IndexMismatch(f"it was written for {name} {document['program'].get(name)}, this is {now}")
    listed = [tuple(each) for each in document["roots"]]
    if listed != [tuple(each) for each in roots]:
        there = [path for _, path in roots if path not in {p for _, p in listed}]
        gone = [path for _, path in listed if path not in {p for _, p in roots}]
        raise IndexMismatch(f"it is of other directories ({', '.join(there) or ', '.join(gone) or 'in another order'})")
    for path, stat in document["seen"].items():
        now_stat = file_stat(path)
        if now_stat != stat:
            raise IndexMismatch(f"{path} {'is not there any more' if now_stat is None else 'has changed since'}")
    if not all(isinstance(document[key], list) for key in ("found", "search_path", "entry_points")):
        raise IndexMismatch("it is damaged: a list is missing")
    for each in document["found"]:
        _parse_found(each)


def _parse_found(each: Mapping[str, Any]) -> IndexedPlugin:
    if "manifest" not in each:
        return IndexedPlugin(None, each["name"], each["path"], each["reason"])
    fields = dict(each["manifest"])
    fields["notes"] = tuple(fields["notes"])
    return IndexedPlugin(PluginManifest(**fields))
