"""Upstream's questions to a chat: `tools.clarify_gateway` and `tools.slash_confirm`. Source: plugin contract §11.2.

A platform adapter gives the answers; who asks registers the question first.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_agent.compat.hosting import host
from hermes_agent.policy import Question, Waiting

__all__ = ["SlashConfirms", "clarifications", "confirms", "mark_awaiting_text", "open_clarifications"]

logger = logging.getLogger(__name__)


def clarifications() -> Waiting[str]:
    """Return the open questions to people."""
    return host().questions


def mark_awaiting_text(clarify_id: str) -> bool:
    """Take the conversation's next message for the answer; false when the question is not open."""
    question = clarifications().get(clarify_id)
    if question is None:
        return False
    question.awaiting_text = True
    return True


class _Open(Mapping[str, Question[str]]):
    """The open questions by id, as upstream's `_entries`."""

    def __getitem__(self, key: str) -> Question[str]:
        found = clarifications().get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(clarifications().ids())

    def __len__(self) -> int:
        return len(clarifications().ids())


open_clarifications = _Open()


class SlashConfirms:
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


confirms = SlashConfirms()
