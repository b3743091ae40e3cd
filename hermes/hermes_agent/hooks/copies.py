"""Copies of what callbacks are given, so that what they do to it later is seen by nobody."""

from __future__ import annotations

import copy
import logging
from typing import Any

__all__ = ["copy_payload", "copy_value"]

logger = logging.getLogger(__name__)


def copy_value(value: Any) -> Any:
    """Return a deep copy; what cannot be copied is returned as it is, with a line in the log."""
    try:
        return copy.deepcopy(value)
    except Exception as exc:  # noqa: BLE001 - any object may be in there, or a callback changes it right now
        logger.warning("what a plugin was given is not copied and may still change: %r", exc)
        return value


def copy_payload(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with copies of its dicts and lists."""
    return {k: copy_value(v) if isinstance(v, dict | list) else v for k, v in payload.items()}
