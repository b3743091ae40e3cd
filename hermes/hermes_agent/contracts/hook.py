"""Hooks: callbacks by name, called with keyword arguments only. Source: plugin contract §3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.kind import Kind

__all__ = ["HOOK", "HookCallback"]

HOOK = Kind("hook", "register_hook", "hook")

HookCallback = Callable[..., Any]
"""`callback(**payload)`; a coroutine function is awaited. Each gets the keywords that it names, or all of them
when it has `**kwargs`."""
