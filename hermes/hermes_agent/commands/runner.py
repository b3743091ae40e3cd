"""Running slash commands, and commands that wait for a confirmation.

Source: plugin contract §7.2, §8.2.2, §11.2.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.runtime.bridge import Bridge

logger = logging.getLogger(__name__)

ASYNC_LIMIT_S = 30.0
"""Longest run of an async handler's coroutine in seconds."""


class CommandOutcome(LazyNamedTuple):
    """What a slash command answers."""

    text: str | None
    has_failed: bool = False
    """Whether the text is an error."""


async def run_command(
    command: SlashCommand, arguments: str, bridge: Bridge, *, limit_s: float = ASYNC_LIMIT_S
) -> CommandOutcome:
    """Return the answer of the handler; its error becomes the text.

    Args:
        limit_s: longest run of an async handler's coroutine; a sync handler has no limit (§7.2).
    """

    try:
        answer = await bridge.run(lambda: await_result(command.handler(arguments), bridge, limit_s=limit_s))
    except CommandFailed as exc:
        return CommandOutcome(str(exc), has_failed=True)
    except Exception as exc:
        logger.warning("Plugin command dispatch failed: /%s: %r", command.name, exc, exc_info=True)
        return CommandOutcome(f"Plugin command error: {str(exc) or type(exc).__name__}", has_failed=True)
    return CommandOutcome(None if answer is None else str(answer))


def await_result(value: Any, bridge: Bridge, *, limit_s: float = ASYNC_LIMIT_S) -> Any:
    """Return a handler's result, awaited if it is awaitable; never call it on the core loop.

    Raises:
        TimeoutError: the limit is over, with upstream's text; or the handler raised it.
    """
    if not inspect.isawaitable(value):
        return value
    own: list[TimeoutError] = []
    try:
        return bridge.wait_plugin(_awaited(value, own), deadline_s=limit_s)
    except TimeoutError:
        if own:
            raise own[0] from None
        raise TimeoutError(f"Plugin command async handler did not complete within {limit_s:g}s") from None


async def _awaited(value: Awaitable[Any], own: list[TimeoutError]) -> Any:
    try:
        return await value
    except TimeoutError as exc:
        own.append(exc)
        raise


class PendingConfirmations:
    """Slash commands that wait for a confirmation (`once`, `always`, `cancel`), one for each conversation."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, str, Callable[[str], Any]]] = {}

    def register(self, session_key: str, confirm_id: str, command: str, handler: Callable[[str], Any]) -> None:
        """Store the function that runs on confirmation: `handler(choice)`, sync or async, returns the reply."""
        self._waiting[session_key] = (confirm_id, command, handler)

    def get_pending(self, session_key: str) -> dict[str, Any] | None:
        """Return `confirm_id` and `command` of the pending confirmation of a conversation, or None."""
        found = self._waiting.get(session_key)
        return None if found is None else {"confirm_id": found[0], "command": found[1]}

    def clear(self, session_key: str) -> None:
        """Remove the pending confirmation."""
        self._waiting.pop(session_key, None)

    async def resolve(self, session_key: str, confirm_id: str, choice: str) -> str | None:
        """Run the pending handler and return the reply; None if the id differs, or after a silent cancel."""
        found = self._waiting.get(session_key)
        if found is None or found[0] != confirm_id:
            return None
        del self._waiting[session_key]
        try:
            reply = found[2](choice)
            if inspect.isawaitable(reply):
                reply = await reply
        except Exception as exc:  # the adapter that delivers the answer must continue
            logger.exception("/%s: failed after its confirmation", found[1])
            return f"/{found[1]} failed: {exc}"
        return None if reply is None else str(reply)
