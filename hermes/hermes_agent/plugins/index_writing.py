"""Write `plugins.json`: `hermes plugins index`, and the Nix build."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.plugins.discovery import BUNDLED, DECLARED, Discovery, RejectedPlugin, index_roots, scan_sources
from hermes_agent.plugins.entry_points import entry_point_files, find_entry_points
from hermes_agent.plugins.index import FORMAT, file_stat, program_identity
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["index_document", "write_index"]

MAX_FILES = 5_000
"""Files of a plugin that its hash is made of; one with more has none."""


class _RecordedDiscovery(Discovery):
    """Keeps everything that a sweep comes upon, in its order, and what it looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.seen: list[str] = []

    def add_dependency(self, path: str) -> None:
        self.seen.append(path)

    def add(self, manifest: PluginManifest) -> None:
        self.found.append({"source": manifest.source, "manifest": manifest._asdict(), "hash": _hash(manifest.path)})
        self.seen += [manifest.path, os.path.join(manifest.path, "__init__.py")]  # noqa: PTH118

    def reject(self, rejected: RejectedPlugin) -> None:
        entry = {"source": rejected.source, "name": rejected.name, "path": rejected.path, "reason": rejected.reason}
        self.found.append(entry)


def index_document(environ: Mapping[str, str], path: Sequence[str] | None = None) -> dict[str, Any]:
    """Sweep the bundled and declared directories and the installed packages; return what `plugins.json` holds.

    Args:
        path: where packages are looked for; None means `sys.path`.
    """
    places = list(sys.path if path is None else path)
    recorder = _RecordedDiscovery()
    scan_sources(recorder, environ, (BUNDLED, DECLARED))
    return {
        "index": FORMAT,
        "program": program_identity(),
        "roots": [list(root) for root in index_roots(environ)],
        "seen": {each: file_stat(each) for each in sorted(set(recorder.seen))},
        "found": recorder.found,
        "search_path": [[place, file_stat(place or ".")] for place in places],
        "entry_points": [list(point) for point in find_entry_points(places)],
        "entry_point_files": {file: file_stat(file) for file in entry_point_files(places)},
    }


def write_index(document: Mapping[str, Any], file: Path) -> None:
    """Write it, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    from hermes_agent.io.files import write_atomic

    write_atomic(file, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n", mode=0o644)


def _hash(directory: str) -> str:
    """Return a hash of names and contents of the plugin's files, empty when there are too many."""
    digest, count = hashlib.sha256(), 0
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(f for f in folders if f not in ("__pycache__", ".git"))
        for name in sorted(files):
            place = os.path.join(folder, name)  # noqa: PTH118
            count += 1
            if count > MAX_FILES:
                return ""
            digest.update(f"{os.path.relpath(place, directory)}\0".encode("utf-8", "surrogateescape"))
            try:
                with open(place, "rb") as handle:  # noqa: PTH123
                    digest.update(hashlib.file_digest(handle, "sha256").digest())
            except OSError:  # a link that leads nowhere
                digest.update(b"-")
    return f"sha256:{digest.hexdigest()}"
