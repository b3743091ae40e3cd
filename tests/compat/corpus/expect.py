"""Write what plugins of the later contract register here as what is expected of them; upstream cannot be asked."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compat.corpus.install import installed
from compat.corpus.lists import DATA, LATER, Plugin, Run
from compat.corpus.world import PluginHome

__all__ = ["recorded"]


def recorded(plugin: Plugin, *, data: Path = DATA) -> str:
    """Record the runs of a plugin; return a sentence about them.

    A run that does not load keeps its `reason`, which a person writes.
    """
    if plugin.listing.partition(".")[0] != LATER:
        return f"{plugin.name}: {plugin.listing} keeps its record"
    if plugin.repository is not None and plugin.repository.place is None:
        return f"{plugin.name}: skipped, its repository is not there"
    file = data / LATER / f"{plugin.name}.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    site = installed(plugin)
    said = []
    for raw, run in zip(content["runs"], plugin.runs, strict=True):
        raw.update(_answer(plugin, run, site))
        errors = [f"{key}: {one['error']}" for key, one in raw["registered"]["plugins"].items() if failed(one)]
        said.append(f"{run.mode} {'loads' if raw['loads'] else 'does not load'} {' '.join(errors)}".strip())
    content["version"] = plugin.version
    file.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return f"{plugin.name}: {'; '.join(said)}"


def failed(entry: Mapping[str, Any]) -> bool:
    """Say whether a plugin should run and does not."""
    return not entry["enabled"] and entry["status"] != "not enabled"


def _answer(plugin: Plugin, run: Run, site: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        answer = PluginHome(Path(place), plugin, run, site).start(depth="register")
    registered = answer["registered"]
    plugins = registered.setdefault("plugins", {})
    loads = any(one["enabled"] for one in plugins.values()) and not any(map(failed, plugins.values()))
    return {"loads": loads, "registered": registered, "refused": answer["refused"]}
