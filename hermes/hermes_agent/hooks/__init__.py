"""Hooks: their names, the bus that calls them, and what a guard's answer means; middleware."""

from hermes_agent.hooks.bus import HookBus
from hermes_agent.hooks.deadlines import HookDeadlines
from hermes_agent.hooks.guard import GuardAllow, GuardAsk, GuardBlock, GuardVerdict, decide_verdict
from hermes_agent.hooks.listener import HookAccount, HookResult
from hermes_agent.hooks.middleware import MiddlewareChain
from hermes_agent.hooks.names import ACCEPTED_HOOKS, OWN_HOOKS, TELEMETRY_SCHEMA, VALID_HOOKS
from hermes_agent.hooks.table import HOOKS, Hook

__all__ = [
    "ACCEPTED_HOOKS",
    "HOOKS",
    "Hook",
    "OWN_HOOKS",
    "TELEMETRY_SCHEMA",
    "VALID_HOOKS",
    "GuardAllow",
    "GuardAsk",
    "GuardBlock",
    "HookDeadlines",
    "HookAccount",
    "HookBus",
    "HookResult",
    "MiddlewareChain",
    "GuardVerdict",
    "decide_verdict",
]
