"""What the running daemon says a plugin did: for `hermes plugins info`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from hermes_agent.app.cli.plugins.reloading import ask_daemon
from hermes_agent.core.errors import UserError
from hermes_agent.plugins.account import Tally, account_lines

__all__ = ["Accounted", "account_of", "account_rows"]

TIMEOUT_S = 5.0
"""Longest wait for the daemon; what else is known of a plugin is shown without it."""


class Accounted(NamedTuple):
    """What the daemon knows of a plugin."""

    tally: Tally | None
    why_not: str = ""
    """Why there is no tally."""

    def to_json(self) -> dict[str, Any]:
        """Return `account` (null when there is none) and `account_missing`, the reason."""
        return {"account": self.tally and self.tally.to_json(), "account_missing": self.why_not}


def account_of(key: str) -> Accounted:
    """Ask the daemon of this home for a plugin's sums since it started."""
    try:
        status, answer = ask_daemon("GET", "/v1/plugins", timeout_s=TIMEOUT_S)
    except UserError as error:
        return Accounted(None, error.message)
    plugins = answer.get("plugins")
    if status != 200 or not isinstance(plugins, list):
        return Accounted(None, f"the daemon answered with status {status}")
    for one in plugins:
        if isinstance(one, dict) and one.get("key") == key and isinstance(one.get("account"), dict):
            return Accounted(_tally(one["account"]))
    return Accounted(None, "the daemon that runs does not know this plugin; it looks for new ones when it starts")


def account_rows(accounted: Accounted) -> list[tuple[str, str]]:
    """Return the rows for people: a line each, or why there is none."""
    if accounted.tally is None:
        return [("account", f"none: {accounted.why_not}")]
    return [("account", line) for line in account_lines(accounted.tally) or ["nothing was called since the start"]]


def _tally(account: Mapping[str, Any]) -> Tally:
    """Take the sums that are of the type that they should have."""
    known: dict[str, Any] = {}
    for field in fields(Tally):
        value, default = account.get(field.name), field.default
        if isinstance(value, str if isinstance(default, str) else int | float):
            known[field.name] = value
    return Tally(**known)
