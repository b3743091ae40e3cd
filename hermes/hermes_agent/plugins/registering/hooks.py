"""`ctx.register_hook`. Source: plugin contract §3.1."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hermes_agent.config.nearness import nearest
from hermes_agent.hooks import HOOKS, VALID_HOOKS
from hermes_agent.plugins.registering.registrant import Registrant, add_once

__all__ = ["register_hook"]

logger = logging.getLogger(__name__)


def register_hook(by: Registrant, hook_name: str, callback: Callable[..., Any]) -> None:
    """Register a callback; a name that nobody knows is kept, with a warning that names the nearest one.

    Raises:
        TypeError: `callback` cannot be called.
    """
    by.ground.hooks.add(hook_name, callback, by.key)
    add_once(by.record.hooks_registered, hook_name)
    if hook_name not in HOOKS:
        near = nearest(hook_name, tuple(HOOKS))
        meant = f"; did you mean '{near}'?" if near else ""
        logger.warning(
            "Plugin '%s' registered unknown hook '%s' (valid: %s)%s", by.name, hook_name, ", ".join(VALID_HOOKS), meant
        )
        by.note(f"unknown hook `{hook_name}`{meant}")
