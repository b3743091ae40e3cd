"""A message came in: who works on it, and what waits meanwhile. Source: plugin contract §7.3, §8.2.2.

A session works on one message at a time. What comes meanwhile waits, texts joined and pictures together, except for
the few commands that are meant for a busy session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hermes_agent.contracts.platform.messages import MessageEvent, MessageType, merge_pending_message_event
from hermes_agent.contracts.platform.reply import answer_inline, process_message

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.adapter import BasePlatformAdapter

__all__ = ["BYPASS", "cancel_all", "cancel_session", "receive_message"]

logger = logging.getLogger(__name__)

_CONTROL_COMMANDS = (
    "approve",
    "deny",
    "stop",
    "new",
    "reset",
    "steer",
    "queue",
    "q",
    "background",
    "bg",
    "btw",
    "restart",
)
_STATUS_COMMANDS = ("status", "agents", "tasks", "help", "commands")
BYPASS = frozenset((*_CONTROL_COMMANDS, *_STATUS_COMMANDS))
"""Commands that reach a session while it works."""


async def receive_message(adapter: BasePlatformAdapter, event: MessageEvent) -> None:
    """Take a message in: the gateway's inbox has it when this returns, and the service may be told that it arrived.

    Without a gateway the work goes on in a task of the adapter's loop.
    """
    if adapter._inbox is not None and event.source is not None:
        adapter._apply_topic_recovery(event)
        await adapter._inbox(event)
        return
    if adapter._message_handler is None or event.source is None:
        missing = "nobody handles messages yet" if event.source is not None else "it has no source"
        logger.warning("[%s] a message was dropped: %s", adapter.name, missing)
        return
    adapter._apply_topic_recovery(event)
    key = adapter._event_session_key(event)
    if key not in adapter._active_sessions:
        _start(adapter, event, key)
        return
    if event.get_command() in BYPASS:
        await answer_inline(adapter, event, key)
        return
    if adapter._busy_session_handler is not None and await _is_handled(adapter, event, key):
        return
    merge_pending_message_event(adapter._pending_messages, key, event, merge_text=True)
    if event.message_type is not MessageType.PHOTO and key in adapter._active_sessions:
        adapter._active_sessions[key].set()


async def cancel_session(adapter: BasePlatformAdapter, key: str, *, discard_pending: bool) -> None:
    """Stop the work on a session's message and wait until it has stopped.

    Args:
        discard_pending: what waits is forgotten; otherwise it is worked on next.
    """
    if discard_pending:
        adapter._pending_messages.pop(key, None)
    task = adapter._session_tasks.get(key)
    if task is not None and task is not asyncio.current_task() and not task.done():
        task.cancel()
        await asyncio.wait((task,))


async def cancel_all(adapter: BasePlatformAdapter) -> None:
    """Stop all work of an adapter; what waits is forgotten."""
    adapter._pending_messages.clear()
    tasks = [task for task in adapter._background_tasks if task is not asyncio.current_task() and not task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    adapter._background_tasks.clear()
    adapter._session_tasks.clear()
    adapter._active_sessions.clear()


async def _is_handled(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> bool:
    """Ask the runner what becomes of a message to a busy session; it waits when the runner fails."""
    assert adapter._busy_session_handler is not None
    try:
        return bool(await adapter._busy_session_handler(event, key))
    except Exception as exc:  # noqa: BLE001 - the message must not be lost
        logger.warning("[%s] the handler of busy sessions failed, the message waits: %s", adapter.name, exc)
        return False


def _start(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    adapter._active_sessions[key] = asyncio.Event()
    task = asyncio.create_task(_run_session(adapter, event, key), name=f"session {key}")
    adapter._session_tasks[key] = task
    adapter._background_tasks.add(task)
    task.add_done_callback(adapter._background_tasks.discard)


async def _run_session(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    """Work on a message, then on what came meanwhile."""
    following: MessageEvent | None = event
    try:
        while following is not None:
            await process_message(adapter, following, key)
            following = adapter._pending_messages.pop(key, None)
            if following is not None:
                adapter._active_sessions[key] = asyncio.Event()
    finally:
        if adapter._session_tasks.get(key) is asyncio.current_task():
            adapter._session_tasks.pop(key, None)
            adapter._active_sessions.pop(key, None)
            left = adapter._pending_messages.pop(key, None)
            if left is not None:  # this one was cancelled, and somebody still waits
                _start(adapter, left, key)
