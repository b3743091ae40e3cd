"""Hooks: their names, the bus that calls them, and what a guard's answer means; middleware."""

from hermes_agent.hooks.bus import (
    GuardAllow,
    GuardAsk,
    GuardBlock,
    GuardVerdict,
    HookBus,
    argument_changes,
    decide_verdict,
)
from hermes_agent.hooks.catalog import ACCEPTED_HOOKS, HOOKS, OWN_HOOKS, TELEMETRY_SCHEMA, VALID_HOOKS, Hook
from hermes_agent.hooks.listeners import REST_S, HookAccount, HookDeadlines, HookResult
from hermes_agent.hooks.middleware import MiddlewareChain

__all__ = [
    "ACCEPTED_HOOKS",
    "HOOKS",
    "Hook",
    "OWN_HOOKS",
    "REST_S",
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
    "argument_changes",
    "decide_verdict",
]
