"""`ctx.register_hook` and `ctx.register_middleware`. Source: plugin contract §3.1, §3.9."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from hermes_agent.config.nearness import nearest_name
from hermes_agent.contracts.middleware import ACCEPTED_MIDDLEWARE, VALID_MIDDLEWARE
from hermes_agent.hooks import ACCEPTED_HOOKS, HOOKS, OWN_HOOKS, VALID_HOOKS
from hermes_agent.plugins.registering.registrant import Registration, add_once

__all__ = ["register_hook", "register_middleware"]

logger = logging.getLogger(__name__)


def register_hook(by: Registration, hook_name: str, callback: Callable[..., Any]) -> None:
    """Register a callback; a name that nobody knows is kept, with a warning that names the nearest one."""
    by.services.hooks.add(hook_name, callback, by.key)
    add_once(by.record.hooks_registered, hook_name)
    if hook_name not in ACCEPTED_HOOKS and hook_name not in OWN_HOOKS:
        _warn_unknown(by, "hook", hook_name, HOOKS, VALID_HOOKS)


def register_middleware(by: Registration, kind: str, callback: Callable[..., Any]) -> None:
    """Do what `register_hook` does, for a kind of middleware."""
    by.services.hooks.middleware.add(kind, callback, by.key)
    add_once(by.record.middleware_registered, kind)
    if kind not in ACCEPTED_MIDDLEWARE:
        _warn_unknown(by, "middleware", kind, VALID_MIDDLEWARE, VALID_MIDDLEWARE)


def _warn_unknown(by: Registration, what: str, name: str, known: Collection[str], valid: Collection[str]) -> None:
    near = nearest_name(str(name), tuple(known))
    meant = f"; did you mean '{near}'?" if near else ""
    logger.warning("Plugin '%s' registered unknown %s '%s' (valid: %s)%s", by.name, what, name, ", ".join(valid), meant)
    by.note(f"unknown {what} `{name}`{meant}")
