"""The plugins of a home with their settings and grants, and `hermes plugins list`.

Nothing is imported; the errors in the list are those of the last load.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.manifest_cache import ManifestCache, quiet_or_debug
from hermes_agent.app.plugin_updates import pending_updates
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_OK
from hermes_agent.plugins.activation import (
    HOST,
    IN_PROCESS,
    Activation,
    PluginSettings,
    find_plugin,
    make_value_check,
    unknown_names,
)
from hermes_agent.plugins.discovery import Discovery, add_every_memory_folder, discover
from hermes_agent.plugins.grants import GrantState, GrantStore, activation_with_grant
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_state import PluginReport, read_state, report_installed, report_rejected
from hermes_agent.plugins.removed_list import REMOVED_TEXT

if TYPE_CHECKING:
    from hermes_agent.credentials import Credentials


class LazySecrets:
    """The secrets of a home, opened at the first lookup, since a listing of most plugins needs none."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._opened: Credentials | None = None

    def get(self, name: str, /) -> str | None:
        """Return the value of `name`, or None if it has none."""
        if self._opened is None:
            from hermes_agent.credentials import Credentials

            self._opened = Credentials(self._home, os.environ)
        return self._opened.get(name)


class InstalledPlugins:
    """The plugins of the current home (`$HERMES_HOME`), as discovery finds them now; nothing is loaded.

    Raises:
        ConfigError: a setting is invalid.
    """

    def __init__(self) -> None:
        quiet_or_debug(os.environ)
        self.home = hermes_home()
        seen = ManifestCache(self.home)
        self.settings = seen.settings()
        self.secrets = LazySecrets(self.home)
        self.trust = GrantStore(self.home)
        self.found: Discovery = discover(self.home, os.environ, Path.cwd(), read=seen.manifest)
        add_every_memory_folder(self.found, self.home, self.settings.memory)
        seen.save()

    def find(self, name: str) -> PluginManifest:
        """Return the plugin with this key or name.

        Raises:
            UserError: there is no such plugin; the message suggests the nearest name.
        """
        return find_plugin(name, self.found)

    def activation(self, manifest: PluginManifest) -> tuple[Activation, GrantState]:
        """Return whether the plugin would run at the next start, and the state of its grant."""
        return activation_with_grant(manifest, self.settings, make_value_check(self.secrets), self.trust)

    def reload_settings(self) -> None:
        """Read the settings again after a change."""
        self.settings = PluginSettings.of(load(self.home).values)


logger = logging.getLogger(__name__)


def installed_reports(here: InstalledPlugins, state: Mapping[str, Any]) -> list[PluginReport]:
    """Return the reports, sorted by key, with rejected plugins last.

    Args:
        state: entries of the last load.
    """
    reports = []
    for key in sorted(here.found.plugins):
        manifest = here.found.plugins[key]
        gate, grant = here.activation(manifest)
        if gate.load:
            logger.debug("%s would be loaded; a listing loads nothing (`hermes plugins check` does)", key)
        else:
            logger.debug("skip %s: %s", key, gate.reason)
        report = report_installed(manifest, gate, grant, state)
        if here.settings.is_isolated(manifest):
            report = report._replace(is_isolated=True, fault=_fault(here.home, manifest))
        reports.append(report)
    rejected = sorted(here.found.rejected, key=lambda r: (r.name, r.path))
    return reports + [report_rejected(each) for each in rejected]


def _fault(home: Path, manifest: PluginManifest) -> str:
    """Return how the plugin's own process last ended by itself; empty if it never did."""
    from hermes_agent.plugins.isolation import process_state  # few homes isolate plugins

    state = process_state.read_state(process_state.record_of(home, manifest.key))
    return "" if state is None else state.fault


def run_list(args: argparse.Namespace) -> int:
    """Print the plugins, and whether each runs."""
    here = InstalledPlugins()
    rows = [row for row in installed_reports(here, read_state(here.home)) if _is_wanted(row, args)]
    updates = dict(pending_updates(here.home, here.found.plugins.values(), here.trust))
    if args.json:
        found = [_as_object(row) | {"update": updates.get(row.key, "")} for row in rows]
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif args.plain:
        for row in rows:
            print(f"{row.status:<12} {row.source:<8} {row.version:<8} {row.key}")
    else:
        print("\n".join(_table(rows)) if rows else f"No plugins. Those of this home go to {here.home}/plugins/.")
    if here.found.index_ignored:
        print(f"warning: {here.found.index_ignored}", file=sys.stderr)
    for row in rows:
        if row.error.startswith(REMOVED_TEXT) and not args.json:
            print(f"warning: {row.key}: {row.error}; `hermes plugins remove {row.key}` removes it", file=sys.stderr)
        if row.key in updates and not args.json:
            print(f"{row.key}: {updates[row.key]}", file=sys.stderr)
    for unknown in unknown_names(here.settings, here.found):
        print(f"warning: plugins.enabled: {unknown.text}", file=sys.stderr)
    return EXIT_OK


def _is_wanted(row: PluginReport, args: argparse.Namespace) -> bool:
    if args.enabled and row.status != "enabled":
        return False
    if args.user and row.source not in ("user", "project"):
        return False
    return not (args.no_bundled and row.source == "bundled")


def _as_object(row: PluginReport) -> dict[str, Any]:
    first = ("name", "status", "version", "description", "source")  # upstream's keys first
    values = {key: getattr(row, key) for key in (*first, "key", "kind", "path")}
    values["isolation"] = HOST if row.is_isolated else IN_PROCESS
    values["removed"] = row.error.startswith(REMOVED_TEXT)
    return values | {"reason": "; ".join(row.remarks()), "platforms": row.platforms}


def _table(rows: list[PluginReport]) -> list[str]:
    cells = [("NAME", "VERSION", "STATUS", "SOURCE", "")]
    cells += [
        (row.key, row.version, row.status, row.source, "; ".join(row.remarks()) or row.description) for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[4]]).rstrip() for line in cells]
