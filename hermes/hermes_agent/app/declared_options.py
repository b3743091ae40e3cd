"""The schema of the config with the options that the plugins of a home declare."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_agent.config.schema import Node
from hermes_agent.plugins.config_schema import with_options
from hermes_agent.plugins.debug_log import quiet_or_debug
from hermes_agent.plugins.discovery import discover
from hermes_agent.plugins.seen import Seen

__all__ = ["declared_schema"]


def declared_schema(home: Path) -> Node:
    """Return the whole schema with the options of every plugin that is there, enabled or not."""
    quiet_or_debug(os.environ)
    seen = Seen(home)
    found = discover(home, os.environ, Path.cwd(), read=seen.manifest)
    return with_options(found.plugins.values())
