"""What is wrong with the plugins of a running process: not loaded, suspended, failed or stalled threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hermes_agent.io.bridge import Bridge
from hermes_agent.plugins.account import UsageAccount
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.threads import stalled_calls

__all__ = ["PluginTrouble", "find_plugin_troubles"]

CHECK = "`hermes plugins check {}`"


class PluginTrouble(NamedTuple):
    """One thing that is wrong with one plugin."""

    plugin: str
    state: str
    """`failed`, `changed`, `refused`, `stale`, `suspended`, `stalled` or `errors`."""
    reason: str
    remedy: str = ""


def find_plugin_troubles(
    plugins: PluginManager, account: UsageAccount, bridge: Bridge, suspended: Mapping[str, str]
) -> list[PluginTrouble]:
    """Return every trouble, by plugin. Not for the core loop: a blocked plugin loop is waited for, for a second.

    Args:
        suspended: why the hooks of a plugin are called no more, by its key.
    """
    found = [PluginTrouble(r.name, "refused", f"{r.path} is not used: {r.reason}") for r in plugins.rejected]
    for record in plugins.records:
        key = record.manifest.key
        if record.status in ("failed", "changed"):
            remedy = record.remedy or (CHECK.format(record.manifest.path) if record.status == "failed" else "")
            found.append(PluginTrouble(key, record.status, record.failure, remedy))
        if record.stale:
            found.append(PluginTrouble(key, "stale", f"a newer version could not be loaded: {record.stale}"))
    for key, why in suspended.items():
        text = f"its hooks are called no more, its guards block: {why}"
        found.append(PluginTrouble(key, "suspended", text, f"Raise plugins.entries.{key}.hook_timeout_s, or restart."))
    for call in stalled_calls(bridge.stalled(), plugins.suspects):
        text = f"a call has not returned for {call.seconds:.0f} s after its deadline, at {call.place}"
        found.append(PluginTrouble(call.plugin, "stalled", text, "The thread is lost until `hermes gateway restart`."))
    for key, tally in account.usage_by_plugin().items():
        if tally.other_errors:
            text = f"{tally.other_errors} errors in its threads and checks, the last: {tally.last_fault}"
            found.append(PluginTrouble(key, "errors", text, f"`hermes logs --plugin {key}` shows them."))
    return sorted(found)
