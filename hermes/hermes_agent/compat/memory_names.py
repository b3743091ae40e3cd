"""Upstream's search for the folder of a memory plugin. Source: plugin contract §1.14, §11.1."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.plugins.discovery import discover
from hermes_agent.plugins.memory_folder import add_memory_folder

__all__ = ["find_provider_dir"]


def find_provider_dir(name: str) -> Path | None:
    """Return the folder of the memory plugin that `memory.provider: NAME` would take; None when there is none.

    Nothing of it is imported, and it need not be enabled. An installed package has no folder of this kind.
    """
    home = hermes_home()
    found = discover(home, os.environ, Path.cwd())
    add_memory_folder(found, home, name)
    for manifest in found.plugins.values():
        if manifest.kind == "exclusive" and manifest.folder and name in (*manifest.answers_to, manifest.folder):
            return Path(manifest.path)
    return None
