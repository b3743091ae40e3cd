"""`plugins_trust.json` in the home: where each plugin came from, and which content of it was granted.

One entry for each place of a plugin: its directory (below the home relative to it), or `entrypoint:KEY` for a package
that `hermes plugins install` brought. One file, 0600, one writer at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hermes_agent.config.lock import locked
from hermes_agent.io.files import PRIVATE, write_atomic
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.trust_files import Pinned

__all__ = ["TRUST_NAME", "Entry", "TrustUnreadable", "place_of", "read_entries", "write_entries"]

TRUST_NAME = "plugins_trust.json"
FORMAT = 1


class TrustUnreadable(Exception):
    """The file is there and cannot be used; the text says why."""


class Entry(NamedTuple):
    """What is known of the plugin at one place."""

    key: str
    files: Mapping[str, Pinned] = MappingProxyType({})
    """Every pinned file by relative path; empty when nothing is pinned."""
    grant: Mapping[str, Any] = MappingProxyType({})
    """`hash`, `at` (ISO time), `by` (`install`, `enable`, `grant`, `update`, `first start`), `version`."""
    registers: Mapping[str, Any] = MappingProxyType({})
    """What it registered when it was last loaded: names by kind."""
    origin: Mapping[str, Any] = MappingProxyType({})
    """`kind`, `source`, `ref`, `commit`, `subdir`, `sha256`, `installed_at`; empty when it was put there by hand."""

    @property
    def hash(self) -> str:
        """The content hash that was granted; empty without a grant."""
        return str(self.grant.get("hash", ""))


def place_of(home: Path, manifest: PluginManifest) -> str:
    """Return the name of the plugin's entry: home and plugin may move together."""
    if manifest.source == "entrypoint":
        return f"entrypoint:{manifest.key}"
    root = f"{home}/"
    return manifest.path.removeprefix(root) if manifest.path.startswith(root) else os.path.abspath(manifest.path)  # noqa: PTH100


def read_entries(home: Path) -> dict[str, Entry]:
    """Return the entries by place; empty when there is no file.

    Raises:
        TrustUnreadable: the file cannot be read, or is not what we write.
    """
    path = home / TRUST_NAME
    try:
        value = json.loads(path.read_bytes())
        return {str(place): _entry(raw) for place, raw in value["plugins"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is damaged"
        raise TrustUnreadable(f"{path} cannot be used: {reason}") from exc


def write_entries(home: Path, changes: Mapping[str, Entry | None]) -> None:
    """Set the entries of `changes` and remove those that are None; the others stay. A damaged file is begun anew.

    Raises:
        UserError: another process holds the file, or the home cannot be written.
        OSError: likewise.
    """
    path = home / TRUST_NAME
    with locked(path):
        try:
            entries = read_entries(home)
        except TrustUnreadable:
            entries = {}
        for place, entry in changes.items():
            if entry is None:
                entries.pop(place, None)
            else:
                entries[place] = entry
        plugins = {place: _as_json(entry) for place, entry in sorted(entries.items())}
        write_atomic(path, json.dumps({"format": FORMAT, "plugins": plugins}) + "\n", mode=PRIVATE)


def _entry(raw: Mapping[str, Any]) -> Entry:
    return Entry(
        str(raw["key"]),
        {str(name): Pinned(str(values[0]), *map(int, values[1:5])) for name, values in raw.get("files", {}).items()},
        dict(raw.get("grant", {})),
        dict(raw.get("registers", {})),
        dict(raw.get("origin", {})),
    )


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "files": {name: list(pinned) for name, pinned in entry.files.items()},
        "grant": dict(entry.grant),
        "registers": dict(entry.registers),
        "origin": dict(entry.origin),
    }
