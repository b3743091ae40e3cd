"""From a message to its reply: typing, handler, text, pictures, files, callbacks. Source: plugin contract §8.2.2."""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.platform.calling import call_optional
from hermes_agent.contracts.platform.media_tags import (
    AS_DOCUMENT,
    AUDIO_EXTENSIONS,
    IMAGE_EXTENSIONS,
    VIDEO_EXTENSIONS,
)
from hermes_agent.contracts.platform.messages import MessageEvent, ProcessingOutcome
from hermes_agent.contracts.platform.results import EphemeralReply, SendResult
from hermes_agent.contracts.platform.session_context import bind_session

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.adapter import BasePlatformAdapter

__all__ = ["answer_inline", "file_method", "reply_metadata", "run_callback", "process_message"]

logger = logging.getLogger(__name__)

FAILURE_NOTICE = "⚠️ Something went wrong while I worked on this ({what}). Please try again; the log has the details."


async def process_message(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    """Let the handler answer a message, and deliver what it says."""
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
        await _stop_typing(typing)
        if outcome is not ProcessingOutcome.CANCELLED:
            await run_callback(adapter, key)
        await call_optional(adapter, "on_processing_complete", event, outcome)


async def answer_inline(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> None:
    """Answer a command while the session works on something else."""
    metadata = reply_metadata(event)
    try:
        await _deliver(adapter, event, await _call_handler(adapter, event, key), metadata)
    except Exception as exc:
        logger.error("[%s] a command of %s failed: %r", adapter.name, key, exc, exc_info=True)
        await _send_failure_notice(adapter, event, exc, metadata)


def reply_metadata(event: MessageEvent) -> dict[str, Any]:
    """Return what a reply says about where it goes: `thread_id`, when there is a thread."""
    thread = event.source.thread_id if event.source is not None else None
    return {"thread_id": thread} if thread else {}


async def _call_handler(adapter: BasePlatformAdapter, event: MessageEvent, key: str) -> Any:
    assert event.source is not None
    assert adapter._message_handler is not None
    with bind_session(event.source, key):
        response = adapter._message_handler(event)
        return await response if inspect.isawaitable(response) else response


async def _deliver(adapter: BasePlatformAdapter, event: MessageEvent, response: Any, metadata: dict[str, Any]) -> bool:
    """Send text, pictures and files of a response; false when the text did not arrive."""
    if response is None or response == "":
        return True
    assert event.source is not None
    said, chat = str(response), event.source.chat_id
    media, text = adapter.extract_media(said)
    images, text = adapter.extract_images(text)
    files, text = adapter.extract_local_files(text)
    arrived = True
    if text.strip():
        mode = getattr(adapter.config, "reply_to_mode", "first")  # some adapters have a config of their own
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


def file_method(path: str, *, as_document: bool) -> str:
    """Return the adapter's method that sends a file of this kind."""
    end = Path(path).suffix.lower()
    kinds = (("send_voice", AUDIO_EXTENSIONS), ("send_video", VIDEO_EXTENSIONS), ("send_image_file", IMAGE_EXTENSIONS))
    return next((name for name, ends in kinds if end in ends and not as_document), "send_document")


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
    """Say that it failed; what failed stands in the log, not in the chat."""
    assert event.source is not None
    text = FAILURE_NOTICE.format(what=type(exc).__name__)
    await call_optional(adapter, "_send_with_retry", event.source.chat_id, text, metadata=metadata or None)


def _start_typing(adapter: BasePlatformAdapter, chat: str, metadata: dict[str, Any]) -> asyncio.Task[None] | None:
    if not getattr(adapter.config, "typing_indicator", True):
        return None
    return asyncio.create_task(adapter._keep_typing(chat, metadata=metadata or None), name=f"typing {chat}")


async def _stop_typing(typing: asyncio.Task[None] | None) -> None:
    if typing is not None:
        typing.cancel()
        await asyncio.wait((typing,))


async def run_callback(adapter: BasePlatformAdapter, key: str) -> None:
    """Call, once, what a session's next reply was waited for."""
    callback = adapter.pop_post_delivery_callback(key)
    if callback is None:
        return
    try:
        value = callback()
        if inspect.isawaitable(value):
            await value
    except Exception as exc:  # noqa: BLE001 - the reply is delivered, the adapter goes on
        logger.warning("[%s] a callback after the reply failed: %r", adapter.name, exc)
