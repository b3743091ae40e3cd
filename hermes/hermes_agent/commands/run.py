"""Run a slash command beside whatever else is going on. Source: plugin contract §7.2."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import Any

from hermes_agent.contracts.command import SlashCommand
from hermes_agent.io.bridge import Bridge

__all__ = ["ASYNC_LIMIT_S", "run_command"]

logger = logging.getLogger(__name__)

ASYNC_LIMIT_S = 30.0
"""Longest life of an async handler's coroutine."""


async def run_command(
    command: SlashCommand, arguments: str, bridge: Bridge, *, limit_s: float = ASYNC_LIMIT_S
) -> str | None:
    """Return what the handler answers; its error is reported to the person as text.

    Args:
        limit_s: longest life of an async handler's coroutine.
    """

    def call() -> Any:
        value = command.handler(arguments)
        if inspect.isawaitable(value):
            try:
                return bridge.wait_plugin(_awaited(value), deadline_s=limit_s)
            except TimeoutError:
                raise TimeoutError(f"Plugin command async handler did not complete within {limit_s:g}s") from None
        return value

    try:
        answer = await bridge.run(call)
    except Exception as exc:
        logger.warning("Plugin command dispatch failed: /%s: %r", command.name, exc, exc_info=True)
        return f"Plugin command error: {exc}"
    return None if answer is None else str(answer)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
