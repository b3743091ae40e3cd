"""Run a slash command beside whatever else is going on. Source: plugin contract §7.2."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.io.bridge import Bridge

__all__ = ["ASYNC_LIMIT_S", "run_command", "await_result"]

logger = logging.getLogger(__name__)

ASYNC_LIMIT_S = 30.0
"""Longest life of an async handler's coroutine."""


async def run_command(
    command: SlashCommand, arguments: str, bridge: Bridge, *, limit_s: float = ASYNC_LIMIT_S
) -> str | None:
    """Return what the handler answers; its error is reported to the person as text.

    Args:
        limit_s: longest life of an async handler's coroutine; a sync handler has no limit (§7.2).
    """

    try:
        answer = await bridge.run(lambda: await_result(command.handler(arguments), bridge, limit_s=limit_s))
    except Exception as exc:
        logger.warning("Plugin command dispatch failed: /%s: %r", command.name, exc, exc_info=True)
        return f"Plugin command error: {str(exc) or type(exc).__name__}"
    return None if answer is None else str(answer)


def await_result(value: Any, bridge: Bridge, *, limit_s: float = ASYNC_LIMIT_S) -> Any:
    """Return what a handler returned, awaited when it is awaitable; never call it on the core loop.

    Raises:
        TimeoutError: it was not done at its limit, with upstream's words for that; or it raised one itself, which is
            raised as it is.
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
