"""Reports on plugins, and the result of the last load for commands that load nothing.

`PluginReport` is what is known of one plugin. Every list and check reads it: of a loaded plugin from its record, of
others from the decision about it and its last load. `plugins_state.json` in the home has an entry for each plugin that
failed, lacks a registration, has a remark, or registered a platform or a terminal command. An entry is valid only while
the plugin's files are the loaded ones.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hermes_agent.config.home import PLUGINS_STATE
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.system.files import PRIVATE, write_atomic

if TYPE_CHECKING:
    from hermes_agent.plugins.activation import Activation
    from hermes_agent.plugins.discovery import RejectedPlugin
    from hermes_agent.plugins.grants import GrantState
    from hermes_agent.plugins.plugin_record import LoadedPlugin


logger = logging.getLogger(__name__)

FORMAT = 1
MAX_FILES = 5_000
"""Limit of files of a plugin that its stamp covers."""

NOT_PINNED = "dev: its files are not pinned"
"""Text for a plugin with `plugins.entries.<id>.trust: dev`."""

OWN_PROCESS = "in a process of its own"
"""Text for an isolated plugin."""


class PluginReport(LazyNamedTuple):
    """What is known of one plugin: whether it runs and why not, and what it registered.

    Of a plugin that is not loaded in this process, registrations, problems and notes are those of its last load.
    """

    key: str
    name: str
    version: str
    description: str
    source: str
    path: str
    kind: str
    status: str
    """A `Status` of the activation, or `refused` for a folder or entry point that is no usable plugin."""
    error: str = ""
    """Why the plugin does not run."""
    where: str = ""
    """`file:line` of the failure, if known."""
    remedy: str = ""
    """What the operator can do about it, if known."""
    registers: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Sorted names by kind (`tools`, `hooks`, …); a provider is `KIND:NAME`."""
    problems: tuple[str, ...] = ()
    """Refused registrations, each with its remedy."""
    notes: tuple[str, ...] = ()
    stale: str = ""
    """Why a newer version could not replace this one."""
    is_dev: bool = False
    """The plugin runs without a comparison of its files."""
    replaces: str = ""
    """Path of the bundled plugin that it replaces."""
    is_isolated: bool = False
    """It runs in a process of its own (`plugins.isolation: host`)."""
    fault: str = ""
    """Why that process last ended by itself, and how often it was started again; empty if it never did."""

    @property
    def reason(self) -> str:
        """Why the plugin does not run, with the place if known; empty if it runs."""
        return f"{self.error} ({self.where})" if self.error and self.where else self.error

    @property
    def platforms(self) -> tuple[str, ...]:
        """Names of its chat platforms."""
        return tuple(
            name.partition(":")[2] for name in self.registers.get("providers", ()) if name.startswith("platform:")
        )

    def remarks(self) -> list[str]:
        """Return every text about the plugin, in the order in which a list shows them."""
        texts = [self.reason, self.remedy, *(f"without {text}" for text in self.problems)]
        texts += [f"note: {text}" for text in self.notes]
        texts += [NOT_PINNED] if self.is_dev else []
        if self.is_isolated and self.status == "enabled":
            texts.append(f"{OWN_PROCESS}, {self.fault}" if self.fault else OWN_PROCESS)
        texts += [f"replaces the bundled plugin {self.replaces}"] if self.replaces else []
        return [text for text in texts if text]


def report_loaded(record: LoadedPlugin) -> PluginReport:
    """Return the report on a plugin of this process."""
    return _report(record.manifest, record.status)._replace(
        error=record.error or "",
        where=record.where,
        remedy=record.remedy,
        registers=record.registers(),
        problems=tuple(problem.full for problem in record.problems),
        notes=tuple(record.notes),
        stale=record.stale,
        is_dev=record.is_dev,
        is_isolated=record.process is not None,
        fault="" if record.process is None else record.process.fault,
    )


def report_installed(
    manifest: PluginManifest, activation: Activation, grant: GrantState, state: Mapping[str, Any]
) -> PluginReport:
    """Return the report on a plugin that is not loaded.

    Args:
        state: entries of the last load (`read_state`).
    """
    report = _report(manifest, activation.status)._replace(error=activation.reason, is_dev=grant.state == "dev")
    last = last_load(state, manifest)
    registers = last.get("registers") or {}
    if not activation.load:
        return report._replace(registers=registers)
    if last.get("error"):
        report = report._replace(status="failed", error=str(last["error"]), where=str(last.get("where") or ""))
    return report._replace(
        remedy=str(last.get("remedy") or ""),
        registers=registers,
        problems=tuple(last.get("problems", ())),
        notes=tuple(last.get("notes", ())),
    )


def report_rejected(rejected: RejectedPlugin) -> PluginReport:
    """Return the report on a folder or entry point that is no usable plugin."""
    name, reason = rejected.name, rejected.reason
    return PluginReport(name, name, "", "", rejected.source, rejected.path, "", "refused", reason)


def _report(manifest: PluginManifest, status: str) -> PluginReport:
    return PluginReport(
        manifest.key,
        manifest.name,
        manifest.shown_version,
        manifest.description,
        manifest.source,
        manifest.path,
        manifest.kind,
        status,
        replaces=manifest.replaces,
    )


def write_state(home: Path, records: Iterable[LoadedPlugin]) -> None:
    """Store the state of these plugins; do not write an unchanged file."""
    plugins = {r.manifest.key: _entry(r) for r in records if _is_noted(r)}
    text = json.dumps({"format": FORMAT, "plugins": plugins}, indent=1, sort_keys=True) + "\n"
    path = home / PLUGINS_STATE
    try:
        if (path.read_text(encoding="utf-8") if path.exists() else None) == text or not (plugins or path.exists()):
            return
        write_atomic(path, text, mode=PRIVATE)
    except (OSError, UnicodeDecodeError) as exc:
        logger.warning("cannot write %s, so `hermes plugins list` will not show load errors: %s", path, exc)


def read_state(home: Path) -> dict[str, Any]:
    """Return the entries by key; empty if there is no usable file."""
    try:
        value = json.loads((home / PLUGINS_STATE).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        logger.warning("cannot read %s: %s", home / PLUGINS_STATE, exc)
        return {}
    plugins = value.get("plugins") if isinstance(value, dict) and value.get("format") == FORMAT else None
    return plugins if isinstance(plugins, dict) else {}


def last_load(state: Mapping[str, Any], manifest: PluginManifest) -> dict[str, Any]:
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
    report = report_loaded(record)
    noted = report.problems or report.notes or report.platforms or "cli_commands" in report.registers
    return record.status == "failed" or bool(noted)


def _entry(record: LoadedPlugin) -> dict[str, Any]:
    report = report_loaded(record)
    fields = ("path", "error", "where", "remedy", "problems", "registers", "notes", "platforms")
    return {"stamp": stamp_of(record.manifest), **{name: getattr(report, name) for name in fields}}
