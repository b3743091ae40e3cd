"""Hooks: their names, the bus that calls them, and what a guard's answer means."""

from hermes_agent.hooks.bus import HookAccount, HookBus, HookResult
from hermes_agent.hooks.deadlines import Deadlines
from hermes_agent.hooks.guard import Allow, Approve, Block, Verdict, verdict
from hermes_agent.hooks.names import OWN_HOOKS, TELEMETRY_SCHEMA, VALID_HOOKS

__all__ = [
    "OWN_HOOKS",
    "TELEMETRY_SCHEMA",
    "VALID_HOOKS",
    "Allow",
    "Approve",
    "Block",
    "Deadlines",
    "HookAccount",
    "HookBus",
    "HookResult",
    "Verdict",
    "verdict",
]
