"""Why a name that a plugin brought is not there now: the plugin waits for a grant, failed, or is switched off."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_agent.commands import normalise_name
from hermes_agent.plugins.record import LoadedPlugin
from hermes_agent.plugins.trust import PINNED_SOURCES, GrantStore

__all__ = ["explain_not_running", "explain_absence"]


def explain_absence(kind: str, name: str, records: Iterable[LoadedPlugin], trust: GrantStore) -> str:
    """Return which plugin brought `name` when it last ran, and why it does not now; empty when none did.

    Args:
        kind: `tools`, `commands`, `cli_commands` or `skills`, as `LoadedPlugin.registers` has them.
        trust: has noted what a plugin registered at its last load.
    """
    wanted = normalise_name(name).replace("_", "-") if kind == "commands" else name
    for record in records:
        if record.enabled or record.manifest.source not in PINNED_SOURCES:
            continue
        brought = trust.entry(record.manifest).registers.get(kind, ())
        if wanted in brought or (kind == "commands" and wanted in [each.replace("_", "-") for each in brought]):
            return explain_not_running(record)
    return ""


def explain_not_running(record: LoadedPlugin) -> str:
    """Return that a plugin does not run, with the reason and what to do."""
    key = record.manifest.key
    if record.status == "failed":
        remedy = f"; {record.remedy}" if record.remedy else ""
        return f"plugin `{key}` failed to load: {record.failure}{remedy}"
    if record.status == "disabled" and record.error and record.error.startswith("Plugin "):
        return record.error
    return f"plugin `{key}` does not run: {record.error}"
