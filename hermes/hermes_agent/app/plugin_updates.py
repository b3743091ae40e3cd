"""Updates of plugins that the daemon looks up in the background, and what it found last.

Nothing is installed: `hermes plugins list` and `hermes doctor` name what there is. Source: contract of 0.23 §11.1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.plugins.grants import GrantStore
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.system.files import JsonFile

logger = logging.getLogger(__name__)


class CheckedPlugin(Protocol):
    """What a check found about one plugin (`UpdateReport`)."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def installed(self) -> str: ...
    @property
    def text(self) -> str: ...


def pending_updates(home: Path, manifests: Iterable[PluginManifest], trust: GrantStore) -> Iterator[tuple[str, str]]:
    """Yield each plugin with an update that is not installed yet, with a sentence about it."""
    found = _results(home).read().get("updates")
    if not isinstance(found, Mapping):
        return
    for manifest in manifests:
        row = found.get(manifest.key)
        if isinstance(row, Mapping) and row.get("installed") == installed_version(manifest, trust):
            yield manifest.key, str(row.get("text") or "")


def installed_version(manifest: PluginManifest, trust: GrantStore) -> str:
    """Return the commit of an installed plugin, or else its version."""
    return str(trust.entry(manifest).origin.get("commit") or manifest.shown_version)


def store_results(home: Path, reports: Sequence[CheckedPlugin], now: float) -> list[str]:
    """Store what a check found, and return the new sentences.

    A plugin that was not reached keeps its row.
    """
    with _results(home).change() as results:
        before = results.get("updates")
        known: dict[str, Any] = dict(before) if isinstance(before, Mapping) else {}
        for report in reports:
            if report.state != "unknown":
                known.pop(report.name, None)
            if report.state in ("update", "removed"):
                known[report.name] = {"installed": report.installed, "text": report.text}
        known = {name: row for name, row in known.items() if name in {report.name for report in reports}}
        results |= {"checked_at": now, "updates": known}
    return [row["text"] for name, row in known.items() if not isinstance(before, Mapping) or before.get(name) != row]


def _results(home: Path) -> JsonFile:
    return JsonFile(home / "cache" / "plugin_updates.json")


def look_for_updates(home: Path, check: Callable[[], Sequence[CheckedPlugin]]) -> None:
    """Check each plugin and store the results; a failure is logged, and the next check comes at its time."""
    reports: Sequence[CheckedPlugin] = ()
    try:
        reports = check()
    except Exception:  # the daemon serves without it
        logger.warning("updates of plugins could not be looked up", exc_info=True)
    if reports and all(report.state == "unknown" for report in reports):
        logger.info("updates of plugins: no source was reached")
    for text in store_results(home, reports, time.time()):
        logger.info("plugin: %s", text)


def last_check(home: Path) -> float:
    """Return the time of the last check in seconds since the epoch, or 0."""
    found = _results(home).read().get("checked_at")
    return float(found) if isinstance(found, int | float) else 0.0
