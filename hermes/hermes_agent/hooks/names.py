"""The names of the hooks, out of the table. Source: plugin contract §3.1."""

from __future__ import annotations

from hermes_agent.hooks.table import HOOKS

__all__ = ["ACCEPTED_HOOKS", "FIRED", "OBSERVERS", "OWN_HOOKS", "TELEMETRY_SCHEMA", "VALID_HOOKS"]

TELEMETRY_SCHEMA = "hermes.observer.v1"
"""Value of `telemetry_schema_version`, which every callback is given."""

VALID_HOOKS: tuple[str, ...] = tuple(name for name, hook in HOOKS.items() if not hook.is_own)
"""The 23 names of the contract."""

ACCEPTED_HOOKS = set(VALID_HOOKS)
"""The same, for plugins to add names to that they call themselves: `hermes_cli.plugins.VALID_HOOKS` (§1.11)."""

OWN_HOOKS: tuple[str, ...] = tuple(name for name, hook in HOOKS.items() if hook.is_own)
"""Names beyond the contract that published plugins register."""

FIRED: frozenset[str] = frozenset(name for name, hook in HOOKS.items() if hook.status == "fired")
"""Names that this release calls; a callback for another known name is kept and not called."""

OBSERVERS: frozenset[str] = frozenset(name for name, hook in HOOKS.items() if not hook.answer)
"""Names whose answers nobody looks at: their callbacks hold up nothing."""
