"""The plugins of a host, as the server asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.plugins.account import metrics_text
from hermes_agent.plugins.troubles import find_plugin_troubles

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.plugins.record import LoadedPlugin

__all__ = ["PluginStatus", "troubles_as_json"]


def troubles_as_json(host: Host) -> list[dict[str, str]]:
    """Return what is wrong with plugins: `plugin`, `state`, `reason`, `remedy` each. Not for the core loop."""
    return [
        one._asdict() for one in find_plugin_troubles(host.plugins, host.account, host.bridge, host.hooks.suspended())
    ]


class PluginStatus:
    """`server.PluginDoor` over a host.

    Args:
        after_reload: takes over what plugins and config say now; returns what changed, by platform.
    """

    def __init__(self, host: Host, after_reload: Callable[[], Awaitable[Mapping[str, str]]] | None = None) -> None:
        self._host = host
        self._after_reload = after_reload

    def report(self) -> list[dict[str, Any]]:
        """Return each plugin: what it is, whether it runs and why not, what it did; refused ones at the end."""
        found = [self._describe(record) for record in self._host.plugins.records]
        return found + [
            {"key": r.name, "source": r.source, "path": r.path, "status": "refused", "error": r.reason}
            for r in self._host.plugins.rejected
        ]

    def metrics(self) -> str:
        """Return the account of all plugins in Prometheus' text format."""
        return metrics_text(self._host.account.usage_by_plugin())

    async def reload(self, name: str | None) -> list[dict[str, str]]:
        """Reload in a worker: a plugin that hangs delays nobody."""
        done = await self._host.bridge.run(self._host.plugins.reload, name)
        platforms = await self._after_reload() if self._after_reload is not None else {}
        later = self._host.needs_restart if name is None else []
        told = [{"key": one.key, "outcome": one.outcome, "reason": one.reason} for one in done]
        told += [{"key": f"platform {n}", "outcome": what, "reason": ""} for n, what in platforms.items()]
        return told + [{"key": f"config {one}", "outcome": "needs a restart", "reason": ""} for one in later]

    def _describe(self, record: LoadedPlugin) -> dict[str, Any]:
        return record.summary() | {
            "status": record.status,
            "path": record.manifest.path,
            "where": record.where,
            "stale": record.stale,
            "tools": list(record.tools_registered),
            "problems": [problem.text for problem in record.problems],
            "notes": list(record.notes),
            "account": self._host.account.usage_of(record.manifest.key).to_json(),
        }
