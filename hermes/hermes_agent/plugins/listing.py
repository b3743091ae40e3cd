"""The plugins as `hermes plugins list` shows them: nothing is imported; errors are those noted at the last load."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from hermes_agent.plugins.discovery import Discovery
from hermes_agent.plugins.gate import PluginSettings, SecretLookup, make_value_check
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.state import last_load
from hermes_agent.plugins.trust import GrantStore, activation_with_grant

__all__ = ["NOT_PINNED", "PluginRow", "plugin_rows"]

logger = logging.getLogger(__name__)

NOT_PINNED = "dev: its files are not pinned"
"""The mark of a plugin with `plugins.entries.<id>.trust: dev`."""


class PluginRow(NamedTuple):
    """One plugin."""

    key: str
    name: str
    status: str
    version: str
    description: str
    source: str
    path: str
    kind: str
    reason: str
    """Why it does not run, or what it goes without; empty when all is well."""
    platforms: tuple[str, ...] = ()
    """The chat platforms that it registered at the last load."""


def plugin_rows(
    found: Discovery, settings: PluginSettings, secrets: SecretLookup, state: dict[str, Any], trust: GrantStore
) -> list[PluginRow]:
    """Return the rows, sorted by key; what cannot be used comes last."""
    has_env = make_value_check(secrets)
    rows = [_plugin_row(found.plugins[key], settings, has_env, state, trust) for key in sorted(found.plugins)]
    rejected = sorted(found.rejected, key=lambda r: (r.name, r.path))
    return rows + [PluginRow(r.name, r.name, "refused", "", "", r.source, r.path, "", r.reason) for r in rejected]


def _plugin_row(
    manifest: PluginManifest, settings: PluginSettings, has_env: Any, state: dict[str, Any], trust: GrantStore
) -> PluginRow:
    gate, verdict = activation_with_grant(manifest, settings, has_env, trust)
    status: str = gate.status
    reasons = [gate.reason] if gate.reason else []
    if gate.load:
        logger.debug("%s would be loaded; a listing loads nothing (`hermes plugins check` does)", manifest.key)
    else:
        logger.debug("skip %s: %s", manifest.key, gate.reason)
    platforms: tuple[str, ...] = ()
    if gate.load:
        last = last_load(state, manifest)
        if last.get("error"):
            status = "failed"
            place = f" ({last['where']})" if last.get("where") else ""
            reasons.append(f"{last['error']}{place}")
        if last.get("remedy"):
            reasons.append(str(last["remedy"]))
        platforms = tuple(last.get("platforms", ()))
        reasons += [f"without {text}" for text in last.get("problems", ())]
        reasons += [f"note: {text}" for text in last.get("notes", ())]
    if verdict.state == "dev":
        reasons.append(NOT_PINNED)
    if manifest.replaces:
        reasons.append(f"replaces the bundled plugin {manifest.replaces}")
    return PluginRow(
        manifest.key,
        manifest.name,
        status,
        manifest.shown_version,
        manifest.description,
        manifest.source,
        manifest.path,
        manifest.kind,
        "; ".join(reasons),
        platforms,
    )
