"""A memory plugin that upstream's memory loader takes although it has no manifest.

That loader asks for a folder `HOME/plugins/<memory.provider>` whose `__init__.py` speaks of memory. Source: plugin
contract §1.14.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from hermes_agent.plugins.discovery import USER, Discovery
from hermes_agent.plugins.manifest import PluginManifest, name_problem, sniffed_kind

__all__ = ["add_memory_folder"]

logger = logging.getLogger(__name__)


def add_memory_folder(found: Discovery, home: Path, name: str) -> None:
    """Add the folder that `memory.provider` names, when no manifest speaks for it.

    Args:
        name: the setting; empty, or the name of a plugin that was found: nothing is added.
    """
    if not name or name_problem(name) is not None or os.sep in name:
        return
    if any(name in (*m.answers_to, m.folder) for m in found.plugins.values()):
        return
    for folder in (home / "plugins" / name, home / "plugins" / "memory" / name):
        if sniffed_kind(str(folder)) != "exclusive":
            continue
        logger.warning("memory plugin %s: it has no manifest", name)
        notes = ("it has no manifest",)
        found.add(PluginManifest(name=name, source=USER, path=str(folder), kind="exclusive", key=name, notes=notes))
        return
