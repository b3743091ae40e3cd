"""Upstream's helpers for event loops and for values that are made once. Source: plugin contract §11.2, §11.3."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["SingletonSlot", "consume_detached_task_result", "is_interrupted", "safe_schedule_threadsafe"]

Value = TypeVar("Value")

_module_logger = logging.getLogger(__name__)


def safe_schedule_threadsafe(
    coro: Coroutine[Any, Any, Value],
    loop: asyncio.AbstractEventLoop | None,
    *,
    logger: logging.Logger | None = None,
    log_message: str = "Failed to schedule coroutine on loop",
    log_level: int = logging.DEBUG,
) -> concurrent.futures.Future[Value] | None:
    """Run `coro` on `loop` from another thread; when the loop is gone, close it and return None."""
    try:
        if loop is None or loop.is_closed():
            raise RuntimeError("the loop is closed")
        return asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError as exc:
        coro.close()
        (logger or _module_logger).log(log_level, "%s: %s", log_message, exc)
        return None


def consume_detached_task_result(task: asyncio.Future[Any]) -> None:
    """Take the result of a task that nobody waits for, so that its error is logged here and not at the exit."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _module_logger.debug("a task that nobody waited for failed", exc_info=error)


def is_interrupted() -> bool:
    """Say whether the tool call that runs here was told to stop; long tools poll it. Outside a call: no."""
    from hermes_agent.tools import current_scope  # loaded where a tool runs

    scope = current_scope.get()
    return scope is not None and scope.cancelled.is_set()


class SingletonSlot(Generic[Value]):
    """Holds one value that is made at first use, by one thread.

    Args:
        factory: makes it; None when `get` is given one.
    """

    def __init__(self, factory: Callable[[], Value] | None = None) -> None:
        self._factory = factory
        self._lock = threading.RLock()
        self._value: Value | None = None

    def get(self, factory: Callable[[], Value] | None = None) -> Value:
        """Return the value, made now when there is none.

        Raises:
            TypeError: there is nothing to make it with.
        """
        with self._lock:
            if self._value is None:
                make = factory or self._factory
                if make is None:
                    raise TypeError("SingletonSlot.get needs a factory: none was given to it or to the slot")
                self._value = make()
            return self._value

    def peek(self) -> Value | None:
        """Return the value, None when none was made."""
        return self._value

    def set(self, value: Value) -> None:
        """Put `value` in the slot."""
        with self._lock:
            self._value = value

    def reset(self) -> Value | None:
        """Empty the slot and return what was in it."""
        with self._lock:
            value, self._value = self._value, None
            return value
