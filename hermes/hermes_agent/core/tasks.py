"""Tasks of the running event loop: start that of a plugin (`ctx.spawn_task`), end one.

Source: plugin contract of 0.23 §6.2.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


def spawn_task(
    plugin: str, coro: Coroutine[Any, Any, Any], name: str | None
) -> tuple[asyncio.Task[Any], Callable[[], None]]:
    """Start a task and return it with a function that cancels it from any thread.

    Raises:
        TypeError: `coro` is no coroutine.
        RuntimeError: no event loop runs in this thread.
    """
    if not inspect.iscoroutine(coro):
        raise TypeError(f"spawn_task of plugin '{plugin}' needs a coroutine, got {coro!r}")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        coro.close()
        raise RuntimeError(f"spawn_task of plugin '{plugin}' needs a running event loop in this thread") from None
    task = loop.create_task(coro, name=f"plugin:{plugin}:{name or 'task'}")
    task.add_done_callback(_log_failure)

    def cancel() -> None:
        if not task.done() and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    return task, cancel


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended; its error is not raised. The running task is left alone."""
    if task is not None and task is not asyncio.current_task():
        task.cancel()
        await asyncio.wait((task,))


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("task %s failed: %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)
