"""`ctx.register_middleware`. Source: plugin contract §3.9."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hermes_agent.config.nearness import nearest
from hermes_agent.contracts.middleware import VALID_MIDDLEWARE
from hermes_agent.plugins.registering.registrant import Registrant, add_once

__all__ = ["register_middleware"]

logger = logging.getLogger(__name__)


def register_middleware(by: Registrant, kind: str, callback: Callable[..., Any]) -> None:
    """Register a callback; a kind that nobody knows is kept, with a warning that names the nearest one.

    Raises:
        TypeError: `callback` cannot be called.
    """
    by.ground.hooks.middleware.add(kind, callback, by.key)
    add_once(by.record.middleware_registered, kind)
    if kind not in VALID_MIDDLEWARE:
        near = nearest(str(kind), VALID_MIDDLEWARE)
        meant = f"; did you mean '{near}'?" if near else ""
        logger.warning(
            "Plugin '%s' registered unknown middleware '%s' (valid: %s)%s",
            by.name,
            kind,
            ", ".join(VALID_MIDDLEWARE),
            meant,
        )
        by.note(f"unknown middleware `{kind}`{meant}")
