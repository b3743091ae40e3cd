"""`hermes plugins list`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.core.errors import EXIT_OK
from hermes_agent.plugins.gate import unknown_names

if TYPE_CHECKING:
    from hermes_agent.plugins.listing import PluginRow

__all__ = ["run_list"]


def run_list(args: argparse.Namespace) -> int:
    """Print every plugin and whether it runs."""
    from hermes_agent.plugins.listing import plugin_rows  # only for this command
    from hermes_agent.plugins.state import read_state

    here = InstalledPlugins()
    every = plugin_rows(here.found, here.settings, here.secrets, read_state(here.home), here.trust)
    rows = [row for row in every if _is_wanted(row, args)]
    if args.json:
        print(json.dumps([_as_object(row) for row in rows], indent=2, ensure_ascii=False))
    elif args.plain:
        for row in rows:
            print(f"{row.status:<12} {row.source:<8} {row.version:<8} {row.key}")
    else:
        print("\n".join(_table(rows)) if rows else f"No plugins. Those of this home go to {here.home}/plugins/.")
    if here.found.index_ignored:
        print(f"warning: {here.found.index_ignored}", file=sys.stderr)
    for unknown in unknown_names(here.settings, here.found):
        print(f"warning: plugins.enabled: {unknown.text}", file=sys.stderr)
    return EXIT_OK


def _is_wanted(row: PluginRow, args: argparse.Namespace) -> bool:
    if args.enabled and row.status != "enabled":
        return False
    if args.user and row.source not in ("user", "project"):
        return False
    return not (args.no_bundled and row.source == "bundled")


def _as_object(row: PluginRow) -> dict[str, Any]:
    first = ("name", "status", "version", "description", "source")  # upstream's keys, then ours
    values = row._asdict()
    return {key: values[key] for key in (*first, "key", "kind", "path", "reason", "platforms")}


def _table(rows: list[PluginRow]) -> list[str]:
    cells = [("NAME", "VERSION", "STATUS", "SOURCE", "")]
    cells += [(row.key, row.version, row.status, row.source, row.reason or row.description) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[4]]).rstrip() for line in cells]
