"""Slash commands that wait for a word of who gave them. Source: plugin contract §8.2.2, §11.2."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

__all__ = ["PendingConfirmations"]

logger = logging.getLogger(__name__)


class PendingConfirmations:
    """Slash commands that wait for a word: `once`, `always` or `cancel`. One a conversation."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, str, Callable[[str], Any]]] = {}

    def register(self, session_key: str, confirm_id: str, command: str, handler: Callable[[str], Any]) -> None:
        """Keep what is done when the word comes: `handler(choice)`, sync or async, returns the reply."""
        self._waiting[session_key] = (confirm_id, command, handler)

    def get_pending(self, session_key: str) -> dict[str, Any] | None:
        """Return `confirm_id` and `command` of what waits in a conversation."""
        found = self._waiting.get(session_key)
        return None if found is None else {"confirm_id": found[0], "command": found[1]}

    def clear(self, session_key: str) -> None:
        """Forget what waits."""
        self._waiting.pop(session_key, None)

    async def resolve(self, session_key: str, confirm_id: str, choice: str) -> str | None:
        """Do what waits and return the reply; None when it is not that which waits, or it was cancelled silently."""
        found = self._waiting.get(session_key)
        if found is None or found[0] != confirm_id:
            return None
        del self._waiting[session_key]
        try:
            reply = found[2](choice)
            if inspect.isawaitable(reply):
                reply = await reply
        except Exception as exc:  # the adapter that brings the word must go on
            logger.exception("/%s failed after it was confirmed", found[1])
            return f"/{found[1]} failed: {exc}"
        return None if reply is None else str(reply)
