"""Plugins of installed Python packages, and `plugins.json`, the stored result of a scan.

`importlib.metadata` takes about 20 ms and opens every distribution. This module reads one small file of each
distribution and parses only files that name a group.

`plugins.json` holds what a scan of the bundled and declared plugins found. `hermes plugins index` writes it. A start
uses it if the version, the interpreter and the directories are the same, and if size and time of each directory and
manifest are unchanged. The start then lists no directory and parses no manifest of these sources. Otherwise the index
is ignored, with a reason, and the directories are scanned.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermes_agent import __version__
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.manifest import PluginManifest

logger = logging.getLogger(__name__)

GROUP = "hermes_agent.plugins"

GROUPS = {
    GROUP: "standalone",
    "hermes_agent.model_providers": "model-provider",
    "hermes_agent.memory_providers": "exclusive",
    "hermes.memory_provider": "exclusive",
}
"""Entry point groups, with the kind of their plugins. Upstream reads only the first; packages use all of them."""

CAPABILITY_GROUP = "hermes_agent.plugin_capabilities"
"""Group with the capabilities of plugins: the name is `PLUGIN.CAPABILITY`, the value is that of the plugin itself."""

_HEADERS = {f"[{CAPABILITY_GROUP}]": CAPABILITY_GROUP} | {f"[{group}]": group for group in GROUPS}
_SEPARATORS = re.compile(r"[-_.]+")


class EntryPoint(LazyNamedTuple):
    """An entry point of a group."""

    name: str
    value: str
    """`package.module`, or `package.module:attribute`."""
    distribution: str
    """`name version`, as far as the name of the metadata folder has them."""
    group: str = GROUP
    capabilities: Sequence[str] = ()
    """Capabilities that the distribution declares for it (`CAPABILITY_GROUP`)."""


def find_entry_points(path: Sequence[str] | None = None) -> list[EntryPoint]:
    """Return the entry points of the groups, in the order of `path` and of the names in it.

    If a distribution is on the path twice, the first one counts, as for an import.

    Args:
        path: directories of installed packages; None means `sys.path`.
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
            lines = list(_group_lines(f"{directory or '.'}/{folder}/entry_points.txt"))
            declared = [(key, value) for group, key, value in lines if group == CAPABILITY_GROUP]
            for group, key, value in lines:
                if group != CAPABILITY_GROUP:
                    own = [n.removeprefix(f"{key}.") for n, v in declared if v == value and n.startswith(f"{key}.")]
                    found.append(EntryPoint(key, value, distribution, group, own))
    return found


def entry_point_files(path: Sequence[str]) -> list[str]:
    """Return the `entry_points.txt` files on `path` that contain one of the groups."""
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
    except OSError:  # a path entry that does not exist, or an archive
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
"""Environment variable that names the file; without it, the index next to the first declared directory is used."""
INDEX_NAME = "plugins.json"
FORMAT = 3
MAX_BYTES = 64 * 2**20
"""Largest size of an index file, in bytes."""


class IndexMismatch(Exception):
    """The index does not match the present files; the text names the difference."""


class IndexedPlugin(LazyNamedTuple):
    """An item that a scan found, in the order of the scan."""

    manifest: PluginManifest | None
    name: str = ""
    path: str = ""
    reason: str = ""
    """Why it is no plugin, if it has no manifest."""


def program_identity() -> dict[str, str]:
    """Return the identity for which an index is valid: version, interpreter and environment."""
    version = ".".join(str(n) for n in sys.version_info[:3])
    return {"hermes": __version__, "python": version, "prefix": sys.prefix}


def file_stat(path: str) -> list[int] | None:
    """Return size (0 for a directory) and modification time in ns, or None if there is no such path."""
    try:
        info = os.stat(path)  # noqa: PTH116 - every start does this for each plugin
    except OSError:
        return None
    return [0 if os.path.stat.S_ISDIR(info.st_mode) else info.st_size, info.st_mtime_ns]  # type: ignore[attr-defined]


def find_index(environ: Mapping[str, str], declared: Iterable[str]) -> str | None:
    """Return the index file to use, or None if there is none and the environment names none."""
    named = environ.get(VARIABLE, "")
    if named:
        return named
    for directory in declared:
        index = os.path.join(os.path.dirname(directory.rstrip("/")), INDEX_NAME)  # noqa: PTH118, PTH120
        return index if os.path.exists(index) else None  # noqa: PTH110
    return None


class PluginIndex:
    """A valid index.

    Args:
        document: content of `plugins.json`.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @classmethod
    def read(cls, file: str, roots: Sequence[tuple[str, str]]) -> PluginIndex:
        """Read an index and compare it with the present files.

        Args:
            roots: source and path of each directory at which a scan would begin.

        Raises:
            IndexMismatch: the index cannot be read or does not match.
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
        """Return what the scan of a source found."""
        return [_parse_found(each) for each in self._document["found"] if each["source"] == source]

    def entry_points(self, path: Sequence[str]) -> list[EntryPoint] | None:
        """Return the entry points found on this path, or None if the path is another one or has changed."""
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
