"""The plugins of a home as they are found, and the schema of the config with the options that they declare."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_agent.app.manifest_cache import ManifestCache, quiet_or_debug
from hermes_agent.config.schema import Node
from hermes_agent.plugins.config_schema import schema_with_options
from hermes_agent.plugins.discovery import Discovery, discover


def find_plugins(home: Path) -> Discovery:
    """Return every plugin that is there, enabled or not; nothing is loaded."""
    quiet_or_debug(os.environ)
    return discover(home, os.environ, Path.cwd(), read=ManifestCache(home).manifest)


def declared_schema(home: Path, found: Discovery | None = None) -> Node:
    """Return the whole schema with the options of every plugin that is there.

    Args:
        found: the plugins; None looks for them.
    """
    return schema_with_options((found or find_plugins(home)).plugins.values())
