"""A calculator for the model: two tools, and a hook that keeps a log of tool calls."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from . import schemas, tools

__all__ = ["call_log", "register"]

logger = logging.getLogger(__name__)

call_log: deque[dict[str, Any]] = deque(maxlen=100)
"""The last calls of any tool: its name, the task, and how long it took in milliseconds."""


def _log_call(tool_name: str, task_id: str = "", duration_ms: int = 0, **_: Any) -> None:
    call_log.append({"tool": tool_name, "session": task_id, "duration_ms": duration_ms})
    logger.debug("tool %s took %d ms (task %s)", tool_name, duration_ms, task_id)


def register(ctx: Any) -> None:
    """Called once when the plugin is loaded."""
    ctx.register_tool("calculate", "calculator", schemas.CALCULATE, tools.calculate, emoji="🧮")
    ctx.register_tool("unit_convert", "calculator", schemas.UNIT_CONVERT, tools.unit_convert, emoji="📏")
    ctx.register_hook("post_tool_call", _log_call)
