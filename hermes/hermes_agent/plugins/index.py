"""`plugins.json`: what a sweep of the bundled and declared plugins found, written once, so that a start need not look.

A start takes it when it is of this version, this interpreter and these directories, and when the size and time of each
directory and manifest are those that were seen. It then lists no directory and parses no manifest of these sources.
Otherwise it is ignored, with the reason, and the plugins are looked for as always. `hermes plugins index` writes it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes_agent import __version__
from hermes_agent.plugins.entry_points import EntryPoint
from hermes_agent.plugins.manifest import PluginManifest

__all__ = [
    "FORMAT",
    "INDEX_NAME",
    "VARIABLE",
    "IndexedPlugin",
    "PluginIndex",
    "IndexMismatch",
    "find_index",
    "file_stat",
    "program_identity",
]

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
