"""Result of the last load, stored for `hermes plugins list` and `hermes --help`, which load nothing.

`plugins_state.json` in the home has an entry for each plugin that failed, lacks a registration, has a remark, or
registered a platform or a terminal command. An entry is valid only while the plugin's files are the loaded ones.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.system.files import PRIVATE, write_atomic

if TYPE_CHECKING:
    from hermes_agent.plugins.plugin_record import LoadedPlugin


logger = logging.getLogger(__name__)

STATE_NAME = "plugins_state.json"
FORMAT = 1
MAX_FILES = 5_000
"""Limit of files of a plugin that its stamp covers."""


def write_state(home: Path, records: Iterable[LoadedPlugin]) -> None:
    """Store the state of these plugins; do not write an unchanged file."""
    plugins = {r.manifest.key: _entry(r) for r in records if _is_noted(r)}
    text = json.dumps({"format": FORMAT, "plugins": plugins}, indent=1, sort_keys=True) + "\n"
    path = home / STATE_NAME
    try:
        if (path.read_text(encoding="utf-8") if path.exists() else None) == text or not (plugins or path.exists()):
            return
        write_atomic(path, text, mode=PRIVATE)
    except (OSError, UnicodeDecodeError) as exc:
        logger.warning("cannot write %s, so `hermes plugins list` will not show load errors: %s", path, exc)


def read_state(home: Path) -> dict[str, Any]:
    """Return the entries by key; empty if there is no usable file."""
    try:
        value = json.loads((home / STATE_NAME).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        logger.warning("cannot read %s: %s", home / STATE_NAME, exc)
        return {}
    plugins = value.get("plugins") if isinstance(value, dict) and value.get("format") == FORMAT else None
    return plugins if isinstance(plugins, dict) else {}


def last_load(state: dict[str, Any], manifest: PluginManifest) -> dict[str, Any]:
    """Return the entry of a plugin; empty if there is none or the plugin's files have changed since.

    Its keys are `error`, `where`, `remedy`, `problems`, `registers`, `notes`, `platforms`.
    """
    entry = state.get(manifest.key)
    if not isinstance(entry, dict) or entry.get("path") != manifest.path:
        return {}
    return entry if entry.get("stamp") == stamp_of(manifest) else {}


def stamp_of(manifest: PluginManifest) -> str:
    """Return a text that changes with the plugin's files or its distribution's version."""
    if manifest.source == "entrypoint":
        return manifest.distribution
    newest = count = size = 0
    for folder, folders, files in os.walk(manifest.path):
        folders[:] = [f for f in folders if f not in ("__pycache__", ".git")]
        for name in files:
            try:
                info = os.stat(f"{folder}/{name}")  # noqa: PTH116 - thousands of files
            except OSError:  # a dangling link
                continue
            newest, size, count = max(newest, info.st_mtime_ns), size + info.st_size, count + 1
            if count == MAX_FILES:
                return f"{newest}-{size}-{count}"
    return f"{newest}-{size}-{count}"


def _is_noted(record: LoadedPlugin) -> bool:
    noted = record.problems or record.notes or record.cli_commands_registered or _platforms(record)
    return record.status == "failed" or bool(noted)


def _entry(record: LoadedPlugin) -> dict[str, Any]:
    return {
        "path": record.manifest.path,
        "stamp": stamp_of(record.manifest),
        "error": record.error or "",
        "where": record.where,
        "remedy": record.remedy,
        "problems": [problem.full for problem in record.problems],
        "registers": record.registers(),
        "notes": list(record.notes),
        "platforms": _platforms(record),
    }


def _platforms(record: LoadedPlugin) -> list[str]:
    return [name for kind, name in record.providers_registered if kind.name == "platform"]
