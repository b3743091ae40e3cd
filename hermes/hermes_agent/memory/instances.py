"""One object of a memory provider for each session: what one session is told must not be in another's hands.

A plugin registers one object. The first session takes it; for the others it is copied as it was before its first use,
or made anew from its class. One for which neither works serves one session at a time.
"""

from __future__ import annotations

import copy
import logging

from hermes_agent.contracts.memory import MemoryProvider

__all__ = ["Instances"]

logger = logging.getLogger(__name__)


class Instances:
    """In a worker, one call at a time."""

    def __init__(self, registered: MemoryProvider) -> None:
        self.registered = registered
        self._fresh: MemoryProvider | None = None
        self._taken = False

    def take(self) -> MemoryProvider | None:
        """Return an object that nobody has; None when there can be no other one."""
        if not self._taken:
            self._taken = True
            self._fresh = _copied(self.registered)
            return self.registered
        return _made(type(self.registered)) if self._fresh is None else _copied(self._fresh)


def _copied(provider: MemoryProvider) -> MemoryProvider | None:
    try:
        return copy.deepcopy(provider)
    except Exception as exc:  # noqa: BLE001 - a plugin's object; locks and connections cannot be copied
        logger.debug("memory provider %r cannot be copied: %r", provider, exc)
        return None


def _made(cls: type[MemoryProvider]) -> MemoryProvider | None:
    try:
        return cls()
    except Exception as exc:  # noqa: BLE001 - a plugin's class, which may want arguments
        logger.warning(
            "memory provider %s serves one session at a time: it can be neither copied nor made without arguments (%r)",
            cls.__name__,
            exc,
        )
        return None
