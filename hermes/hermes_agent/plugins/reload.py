"""Give one plugin its new code, its new settings, or its leave, while the others serve.

A directory plugin is loaded anew, under a new module name, beside the old one; when it has registered, it takes the
old one's place in every store in one step. Calls that run end on the old code. When it does not load, the old one
stays. Packages cannot be imported twice: they need a restart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, NamedTuple

from hermes_agent.plugins.discovery import Discovery
from hermes_agent.plugins.enabling import find_plugin
from hermes_agent.plugins.gate import Activation
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.record import LoadedPlugin

__all__ = ["ReloadResult", "ReloadSteps", "unload_modules", "reload_one", "reload_targets"]

Outcome = Literal["reloaded", "loaded", "stopped", "not loaded", "unchanged", "failed", "restart needed"]


class ReloadResult(NamedTuple):
    """What became of one plugin."""

    key: str
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.outcome}" + (f": {self.reason}" if self.reason else "")


class ReloadSteps(NamedTuple):
    """What a reload can do with plugins."""

    decide: Callable[[PluginManifest], Activation]
    load: Callable[[PluginManifest, Activation], LoadedPlugin]
    """Loads beside what serves; what it registered takes its place only when it succeeded."""
    stop: Callable[[str], None]
    """Takes everything that a plugin registered out of every store."""


def reload_targets(name: str | None, found: Discovery, records: dict[str, LoadedPlugin]) -> list[str]:
    """Return the keys that are meant: one, or all that are there or were.

    Raises:
        UserError: nobody has the name; the nearest is named.
    """
    if name is None:
        return list(dict.fromkeys((*found.plugins, *records)))
    known = next((key for key, r in records.items() if name in r.manifest.answers_to), None)
    return [known or find_plugin(name, found).key]


def reload_one(
    key: str, present: LoadedPlugin | None, found: Discovery, workshop: ReloadSteps, *, by_name: bool
) -> tuple[LoadedPlugin | None, ReloadResult]:
    """Bring one plugin to what its folder and the settings say now; return its record and what was done.

    Args:
        by_name: somebody asked for this one: an installed package is told that it needs a restart, though it did not
            change as far as one can see.
    """
    runs = present is not None and present.enabled
    manifest = found.plugins.get(key)
    if manifest is None:
        return _unload_missing(key, present, found, workshop)
    gate = workshop.decide(manifest)
    if not gate.load:
        if present is not None and runs and gate.status == "changed":
            return present, _keep_present(present, gate.reason)
        if runs:
            workshop.stop(key)
        return LoadedPlugin(manifest, gate.status, gate.reason or None, notes=list(manifest.notes)), ReloadResult(
            key, "stopped" if runs else "not loaded", gate.reason
        )
    if present is not None and runs and not by_name and {present.manifest.source, manifest.source} == {"bundled"}:
        return present, ReloadResult(key, "unchanged")  # it belongs to the release, which a restart exchanges
    if present is not None and runs and "entrypoint" in (present.manifest.source, manifest.source):
        if by_name or present.manifest.distribution != manifest.distribution:
            return present, ReloadResult(key, "restart needed", "it is an installed package, which is imported once")
        return present, ReloadResult(key, "unchanged")
    record = workshop.load(manifest, gate)
    if record.enabled:
        return record, ReloadResult(key, "reloaded" if runs else "loaded")
    if present is not None and runs:
        return present, _keep_present(present, record.failure)
    return record, ReloadResult(key, "failed", record.failure)


def _unload_missing(
    key: str, present: LoadedPlugin | None, found: Discovery, workshop: ReloadSteps
) -> tuple[LoadedPlugin | None, ReloadResult]:
    if present is None:
        return None, ReloadResult(key, "unchanged")
    refused = next((r for r in found.rejected if r.path == present.manifest.path), None)
    if refused is not None and present.enabled:
        return present, _keep_present(present, refused.reason)
    if present.enabled:
        workshop.stop(key)
    return None, ReloadResult(key, "stopped", refused.reason if refused else f"{present.manifest.path} is gone")


def _keep_present(present: LoadedPlugin, reason: str) -> ReloadResult:
    """Note that the new version could not be loaded and the old one stays."""
    present.stale = reason
    return ReloadResult(present.manifest.key, "failed", f"{reason}; the version that was loaded before goes on")


def unload_modules(root: str) -> None:
    """Drop a version's modules; those that still run keep what they hold."""
    for name in [n for n in sys.modules if n == root or n.startswith(f"{root}.")]:
        del sys.modules[name]
