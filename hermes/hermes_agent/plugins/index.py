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

__all__ = ["FORMAT", "INDEX_NAME", "VARIABLE", "Found", "Index", "NotFitting", "find_index", "stat_of", "this_program"]

VARIABLE = "HERMES_PLUGIN_INDEX"
"""Names the file; without it, one beside the first declared directory is taken."""
INDEX_NAME = "plugins.json"
FORMAT = 3
LONGEST = 64 * 2**20
"""Bytes of a file that may be an index."""


class NotFitting(Exception):
    """The index is not of what is there; the text says what differs."""


class Found(NamedTuple):
    """One thing that a sweep came upon, in its order."""

    manifest: PluginManifest | None
    name: str = ""
    path: str = ""
    reason: str = ""
    """Why it is no plugin, where there is no manifest."""


def this_program() -> dict[str, str]:
    """Return what an index is made for: the version, and the interpreter with its environment."""
    version = ".".join(str(n) for n in sys.version_info[:3])
    return {"hermes": __version__, "python": version, "prefix": sys.prefix}


def stat_of(path: str) -> list[int] | None:
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


class Index:
    """An index that fits.

    Args:
        document: what `plugins.json` holds.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @classmethod
    def read(cls, file: str, roots: Sequence[tuple[str, str]]) -> Index:
        """Read and compare it with what is there.

        Args:
            roots: source and path of each directory that a sweep would begin at.

        Raises:
            NotFitting: it cannot be read, or is of something else.
        """
        try:
            with open(file, "rb") as handle:  # noqa: PTH123
                document = json.loads(handle.read(LONGEST))
        except FileNotFoundError:
            raise NotFitting("it is not there") from None
        except (OSError, ValueError, RecursionError) as exc:
            raise NotFitting(f"it cannot be read: {exc}") from exc
        if not isinstance(document, dict) or document.get("index") != FORMAT:
            raise NotFitting(f"it is no index of format {FORMAT}")
        try:
            _compare(document, roots)
            return cls(document)
        except (TypeError, KeyError, AttributeError, ValueError) as exc:
            raise NotFitting(f"it is damaged: {exc!r}") from exc

    def found(self, source: str) -> list[Found]:
        """Return what the sweep of a source came upon."""
        return [_found(each) for each in self._document["found"] if each["source"] == source]

    def entry_points(self, path: Sequence[str]) -> list[EntryPoint] | None:
        """Return the entry points that were found on this path; None when it is another, or has changed."""
        seen = self._document["search_path"]
        if [place for place, _ in seen] != list(path) or any(stat_of(place or ".") != stat for place, stat in seen):
            return None
        if any(stat_of(file) != stat for file, stat in self._document["entry_point_files"].items()):
            return None
        return [EntryPoint(*each) for each in self._document["entry_points"]]


def _compare(document: Mapping[str, Any], roots: Sequence[tuple[str, str]]) -> None:
    for name, now in this_program().items():
        if document["program"].get(name) != now:
            raise NotFitting(f"it was written for {name} {document['program'].get(name)}, this is {now}")
    listed = [tuple(each) for each in document["roots"]]
    if listed != [tuple(each) for each in roots]:
        there = [path for _, path in roots if path not in {p for _, p in listed}]
        gone = [path for _, path in listed if path not in {p for _, p in roots}]
        raise NotFitting(f"it is of other directories ({', '.join(there) or ', '.join(gone) or 'in another order'})")
    for path, stat in document["seen"].items():
        now_stat = stat_of(path)
        if now_stat != stat:
            raise NotFitting(f"{path} {'is not there any more' if now_stat is None else 'has changed since'}")
    if not all(isinstance(document[key], list) for key in ("found", "search_path", "entry_points")):
        raise NotFitting("it is damaged: a list is missing")
    for each in document["found"]:
        _found(each)


def _found(each: Mapping[str, Any]) -> Found:
    if "manifest" not in each:
        return Found(None, each["name"], each["path"], each["reason"])
    fields = dict(each["manifest"])
    fields["notes"] = tuple(fields["notes"])
    return Found(PluginManifest(**fields))
