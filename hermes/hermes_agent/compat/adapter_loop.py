"""Direct message loop of an adapter that runs without a gateway: its message handler answers.

Importing this module installs the loop; upstream's modules of `BasePlatformAdapter` and `Platform` are mapped to it.
`Platform` then knows the bundled platforms, also without a host. A session processes
one message at a time. Messages that arrive meanwhile wait: their texts are joined and their images collected. Commands
in `BYPASS` are handled at once. Source: plugin contract §7.3, §8.2.2.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from pathlib import Path
from typing import Any

from hermes_agent.adapters.base import BasePlatformAdapter, run_callback, set_direct_loop
from hermes_agent.adapters.config import Platform as Platform
from hermes_agent.adapters.config import add_lookup
from hermes_agent.adapters.events import (
    EphemeralReply,
    MessageEvent,
    MessageType,
    ProcessingOutcome,
    SendResult,
    bind_session,
    call_optional,
    merge_pending_message_event,
)
from hermes_agent.adapters.media_references import AS_DOCUMENT, file_method
from hermes_agent.adapters.sender import reply_metadata
from hermes_agent.config import hermes_home
from hermes_agent.core.tasks import end_task
from hermes_agent.plugins.discovery import BUNDLED, PLATFORMS, plugin_roots

logger = logging.getLogger(__name__)


class _BundledPlatforms:
    """Names of the bundled platforms."""

    def is_registered(self, name: str) -> bool:
        """Return whether a folder of the bundled platforms has that name."""
        roots = plugin_roots(hermes_home(), os.environ, Path.cwd())[BUNDLED]
        return any(root.path.name == PLATFORMS and (root.path / name / "plugin.yaml").is_file() for root in roots)


_bundled_platforms = _BundledPlatforms()
add_lookup(_bundled_platforms)

FAILURE_NOTICE = "⚠️ Something went wrong while I worked on this ({what}). Please try again; the log has the details."


async def _process_message(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    """Answer a message with the message handler and deliver the reply."""
    assert event.source is not None
    metadata = reply_metadata(event)
    typing = _start_typing(adapter, event.source.chat_id, metadata)
    outcome = ProcessingOutcome.FAILURE
    try:
        await call_optional(adapter, "on_processing_start", event)
        response = await _call_handler(adapter, event, key)
        if await _deliver(adapter, event, response, {**metadata, "notify": True}):
            outcome = ProcessingOutcome.SUCCESS
    except asyncio.CancelledError:
        outcome = ProcessingOutcome.CANCELLED
        raise
    except Exception as exc:
        logger.error("[%s] a message of %s failed: %r", adapter.name, key, exc, exc_info=True)
        await _send_failure_notice(adapter, event, exc, metadata)
    finally:
        await end_task(typing)
        if outcome is not ProcessingOutcome.CANCELLED:
            await run_callback(adapter, key)
        await call_optional(adapter, "on_processing_complete", event, outcome)


async def _answer_inline(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    """Answer a command while its session processes another message."""
    metadata = reply_metadata(event)
    try:
        await _deliver(adapter, event, await _call_handler(adapter, event, key), metadata)
    except Exception as exc:
        logger.error("[%s] a command of %s failed: %r", adapter.name, key, exc, exc_info=True)
        await _send_failure_notice(adapter, event, exc, metadata)


async def _call_handler(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> Any:
    assert event.source is not None
    assert adapter._message_handler is not None
    with bind_session(event.source, key):
        response = adapter._message_handler(event)
        return await response if inspect.isawaitable(response) else response


async def _deliver(adapter: BasePlatformAdapter, event: MessageEvent, response: Any, metadata: dict[str, Any]) -> bool:
    """Send text, images and files of a response; return False if the text was not delivered."""
    if response is None or response == "":
        return True
    assert event.source is not None
    said, chat = str(response), event.source.chat_id
    media, text = adapter.extract_media(said)
    images, text = adapter.extract_images(text)
    files, text = adapter.extract_local_files(text)
    arrived = True
    if text.strip():
        mode = getattr(
            adapter.config, "reply_to_mode", "first"
        )  # some adapters replace `config` by an object of another type
        reply_to = event.message_id if mode != "off" else None
        result = await adapter._send_with_retry(chat, text, reply_to=reply_to, metadata=metadata or None)
        arrived = result.success
        _delete_later(adapter, chat, response, result)
    if images:
        await call_optional(adapter, "send_multiple_images", chat, images, metadata=metadata or None)
    for path, is_voice in adapter.filter_media_delivery_paths(media):
        await _send_file(adapter, chat, path, metadata, as_document=AS_DOCUMENT in said and not is_voice)
    for path in adapter.filter_local_delivery_paths(files):
        await _send_file(adapter, chat, path, metadata, as_document=AS_DOCUMENT in said)
    return arrived


async def _send_file(
    adapter: BasePlatformAdapter, chat: str, path: str, metadata: dict[str, Any], *, as_document: bool
) -> None:
    await call_optional(adapter, file_method(path, as_document=as_document), chat, path, metadata=metadata or None)


def _delete_later(adapter: BasePlatformAdapter, chat: str, response: Any, result: SendResult) -> None:
    ttl = response.ttl_seconds if isinstance(response, EphemeralReply) else None
    if ttl is None or not result.success or not result.message_id:
        return

    async def delete(message: str) -> None:
        await asyncio.sleep(ttl)
        await call_optional(adapter, "delete_message", chat, message)

    task = asyncio.create_task(delete(result.message_id), name=f"delete {result.message_id}")
    adapter._background_tasks.add(task)
    task.add_done_callback(adapter._background_tasks.discard)


async def _send_failure_notice(
    adapter: BasePlatformAdapter, event: MessageEvent, exc: Exception, metadata: dict[str, Any]
) -> None:
    """Report in the chat that the message failed; the log has the error."""
    assert event.source is not None
    text = FAILURE_NOTICE.format(what=type(exc).__name__)
    await call_optional(adapter, "_send_with_retry", event.source.chat_id, text, metadata=metadata or None)


def _start_typing(adapter: BasePlatformAdapter, chat: str, metadata: dict[str, Any]) -> asyncio.Task[None] | None:
    if not getattr(adapter.config, "typing_indicator", True):
        return None
    return asyncio.create_task(adapter._keep_typing(chat, metadata=metadata or None), name=f"typing {chat}")


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
"""Commands that are handled while their session is busy."""


async def receive_message(adapter: BasePlatformAdapter, event: MessageEvent) -> None:
    """Process a message in a task of the running event loop, after earlier messages of its session."""
    key = adapter._event_session_key(event)
    if key not in adapter._active_sessions:
        _start(adapter, event, key)
        return
    if event.get_command() in BYPASS:
        await _answer_inline(adapter, event, key)
        return
    if adapter._busy_session_handler is not None and await _is_handled(adapter, event, key):
        return
    merge_pending_message_event(adapter._pending_messages, key, event, merge_text=True)
    if event.message_type is not MessageType.PHOTO and key in adapter._active_sessions:
        adapter._active_sessions[key].set()


async def _is_handled(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> bool:
    """Return whether the busy handler handled the message; if it fails, the message waits."""
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
    """Process a message, then the messages that arrived meanwhile."""
    following: MessageEvent | None = event
    try:
        while following is not None:
            await _process_message(adapter, following, key)
            following = adapter._pending_messages.pop(key, None)
            if following is not None:
                adapter._active_sessions[key] = asyncio.Event()
    finally:
        if adapter._session_tasks.get(key) is asyncio.current_task():
            adapter._session_tasks.pop(key, None)
            adapter._active_sessions.pop(key, None)
            left = adapter._pending_messages.pop(key, None)
            if left is not None:  # the task was cancelled while a message was waiting
                _start(adapter, left, key)


set_direct_loop(receive_message)
