"""The memory plugin that `memory.provider` names, where the general sweep does not find it.

That is a bundled one, which is read only when it is wanted; and one in the home that upstream's memory loader takes
although it has no manifest: it asks for a folder `HOME/plugins/<memory.provider>` whose `__init__.py` speaks of
memory. Source: plugin contract §1.14.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from hermes_agent.plugins.discovery import BUNDLED, MEMORY, USER, Discovery, is_on, is_plugin_folder, plugin_roots
from hermes_agent.plugins.manifest import PluginManifest, guess_kind, name_problem, read_manifest

__all__ = ["add_every_memory_folder", "add_memory_folder", "bundled_memories"]

logger = logging.getLogger(__name__)


def bundled_memories() -> dict[str, Path]:
    """Return the folders of the memories that come with the agent, by name."""
    roots = [root.path / MEMORY for root in plugin_roots(Path(), os.environ, Path())[BUNDLED][:1]]
    folders = [
        folder for root in roots if root.is_dir() for folder in sorted(root.iterdir()) if is_plugin_folder(folder)
    ]
    return {folder.name: folder for folder in folders}


def add_memory_folder(found: Discovery, home: Path, name: str) -> None:
    """Add the memory that `memory.provider` names, when no plugin that was found is meant.

    Args:
        name: the setting; empty, or the name of a plugin that was found: nothing is added.
    """
    name = name.removeprefix(f"{MEMORY}/")
    if not name or name_problem(name) is not None or os.sep in name or is_on(os.environ.get("HERMES_SAFE_MODE")):
        return
    if name in _known_names(found):
        return
    for folder in (home / "plugins" / name, home / "plugins" / MEMORY / name):
        if guess_kind(str(folder)) == "exclusive":
            logger.warning("memory plugin %s: it has no manifest", name)
            found.add(_read_memory_manifest(folder))
            return
    bundled = bundled_memories().get(name)
    if bundled is not None:
        found.add(read_manifest(str(bundled / "plugin.yaml"), source=BUNDLED, category=MEMORY))


def add_every_memory_folder(found: Discovery, home: Path, name: str) -> None:
    """Add every memory of the home that has no manifest, and the bundled one that is used, for who lists plugins.

    Args:
        name: `memory.provider`.
    """
    if is_on(os.environ.get("HERMES_SAFE_MODE")):
        return
    for root in (home / "plugins", home / "plugins" / MEMORY):
        try:
            folders = sorted(folder for folder in root.iterdir() if folder.is_dir())
        except OSError:  # there is none, or the listing has said why not
            continue
        taken = _known_names(found)
        for folder in folders:
            usable = name_problem(folder.name) is None and folder.name not in taken
            if usable and not is_plugin_folder(folder) and guess_kind(str(folder)) == "exclusive":
                found.add(_read_memory_manifest(folder))
    add_memory_folder(found, home, name)


def _known_names(found: Discovery) -> set[str]:
    """Return what the plugins that were found answer to."""
    return {name for m in found.plugins.values() for name in (*m.answers_to, m.folder)}


def _read_memory_manifest(folder: Path) -> PluginManifest:
    name, notes = folder.name, ("it has no manifest",)
    return PluginManifest(name=name, source=USER, path=str(folder), kind="exclusive", key=name, notes=notes)
