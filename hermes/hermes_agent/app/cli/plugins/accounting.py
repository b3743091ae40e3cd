"""What the running daemon says a plugin did: for `hermes plugins info`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from hermes_agent.app.cli.plugins.reloading import request_daemon
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.account import PluginUsage, account_lines

__all__ = ["DaemonUsage", "load_usage", "usage_rows"]

USAGE_LIMIT_S = 5.0
"""Longest wait for the daemon; what else is known of a plugin is shown without it."""


class DaemonUsage(NamedTuple):
    """What the daemon knows of a plugin."""

    usage: PluginUsage | None
    reason: str = ""
    """Why there is no tally."""

    def to_json(self) -> dict[str, Any]:
        """Return `account` (null when there is none) and `account_missing`, the reason."""
        return {"account": self.usage and self.usage.to_json(), "account_missing": self.reason}


def load_usage(key: str) -> DaemonUsage:
    """Ask the daemon of this home for a plugin's sums since it started."""
    try:
        status, answer = request_daemon("GET", "/v1/plugins", timeout_s=USAGE_LIMIT_S)
    except UserError as error:
        return DaemonUsage(None, error.message)
    plugins = answer.get("plugins")
    if status != 200 or not isinstance(plugins, list):
        return DaemonUsage(None, f"the daemon answered with status {status}")
    for one in plugins:
        if isinstance(one, dict) and one.get("key") == key and isinstance(one.get("account"), dict):
            return DaemonUsage(_parse_usage(one["account"]))
    return DaemonUsage(None, "the daemon that runs does not know this plugin; it looks for new ones when it starts")


def usage_rows(accounted: DaemonUsage) -> list[tuple[str, str]]:
    """Return the rows for people: a line each, or why there is none."""
    if accounted.usage is None:
        return [("account", f"none: {accounted.reason}")]
    return [("account", line) for line in account_lines(accounted.usage) or ["nothing was called since the start"]]


def _parse_usage(account: Mapping[str, Any]) -> PluginUsage:
    """Take the sums that are of the type that they should have."""
    known: dict[str, Any] = {}
    for field in fields(PluginUsage):
        value, default = account.get(field.name), field.default
        if isinstance(value, str if isinstance(default, str) else int | float):
            known[field.name] = value
    return PluginUsage(**known)
