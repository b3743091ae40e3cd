"""`ctx.register_*_provider` and its siblings. Source: plugin contract §2.2, §8."""

from __future__ import annotations

import logging
from typing import Any

from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.providers import KINDS, WrongType
from hermes_agent.plugins.registering.registrant import Registrant

__all__ = ["register_provider"]

logger = logging.getLogger(__name__)


def register_provider(by: Registrant, kind: str, provider: Any) -> None:
    """Register a provider; one of the wrong type, or whose name is taken, is refused with a line in the log.

    Raises:
        ValueError: it has no usable name, and its kind is not lenient about that.
    """
    spec = KINDS[kind]
    label, given = spec.kind.label, type(provider).__name__
    try:
        name = by.ground.providers.add(kind, provider, owner=by.key)
    except WrongType as exc:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, label, exc)
        by.note(f"{given} was not registered as {label}: it {exc}")
    except Conflict as exc:
        by.refused(label, exc.name, exc.owner)
    except ValueError as exc:
        if not spec.lenient:
            raise
        logger.warning("Plugin '%s' could not register a %s: %s", by.name, label, exc)
        by.note(f"{given} was not registered: {exc}")
    else:
        by.registered(spec.kind, name)
