"""`MessageSender`, the methods by which an adapter sends; sending with retries.

All methods are implemented by `send`; an adapter overrides what its service can do better. Source: plugin contract
§8.2.2.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.adapters import media_references
from hermes_agent.adapters.config import Platform
from hermes_agent.adapters.events import (
    MessageEvent,
    SendResult,
    as_send_result,
    call_optional,
    call_send,
)
from hermes_agent.adapters.text import (
    Length,
    classify_send_error,
    is_retryable_error,
    is_timeout_error,
    split_message,
    strip_markdown,
)
from hermes_agent.contracts.speech import AudioFormat, StreamingTTSHandle
from hermes_agent.core.calls import call_supported
from hermes_agent.core.lazy_types import LazyNamedTuple

__all__ = ["MessageSender", "Metadata", "ToolPreview", "reply_metadata", "send_with_retry", "undeliverable_text"]

logger = logging.getLogger(__name__)

GAVE_UP = "⚠️ My answer could not be delivered: the connection failed several times. Please ask again."
PERMANENT_ERRORS = ("forbidden", "not_found", "rate_limited", "too_long")
"""Kinds of failures that another form of the text does not solve."""


async def send_with_retry(
    adapter: MessageSender,
    chat_id: str,
    content: str,
    reply_to: str | None,
    metadata: Mapping[str, Any] | None,
    *,
    max_retries: int,
    base_delay: float,
) -> SendResult:
    """Send a text, with retries after network failures, and as plain text after a format failure.

    A message that may have arrived is not sent again.

    Args:
        max_retries: additional attempts.
        base_delay: seconds before the first of them; doubled for each.
    """
    result = await _attempt(adapter, chat_id, content, reply_to, metadata)
    for number in range(max_retries):
        if result.success or not _may_retry(adapter, result):
            break
        pause = result.retry_after if result.retry_after is not None else base_delay * 2**number
        logger.info("[%s] send failed, retry in %g s: %s", adapter.name, pause, result.error)
        await asyncio.sleep(pause)
        result = await _attempt(adapter, chat_id, content, reply_to, metadata)
    if result.success or adapter._is_timeout_error(result.error):
        return result
    if _may_retry(adapter, result):
        logger.error("[%s] send failed %d times, message dropped: %s", adapter.name, max_retries + 1, result.error)
        await _attempt(adapter, chat_id, GAVE_UP, None, metadata)
        return result
    kind = result.error_kind or classify_send_error(None, result.error or "")
    if kind in PERMANENT_ERRORS:
        logger.error("[%s] send failed (%s): %s", adapter.name, kind, result.error)
        return result
    logger.warning("[%s] send failed, retry as plain text: %s", adapter.name, result.error)
    return await _attempt(adapter, chat_id, strip_markdown(content) or content, reply_to, metadata)


def reply_metadata(event: MessageEvent) -> dict[str, Any]:
    """Return the metadata of a reply: `thread_id`, if the message came from a thread."""
    thread = event.source.thread_id if event.source is not None else None
    return {"thread_id": thread} if thread else {}


def undeliverable_text(what: str, caption: str | None, file_name: str | None = None) -> str:
    """Return the text that replaces a file in the chat; it does not contain the path."""
    named = f" ({file_name})" if file_name else ""
    return (f"{caption}\n" if caption else "") + f"⚠️ Couldn't deliver the {what} attachment{named}."


async def _attempt(
    adapter: MessageSender,
    chat_id: str,
    content: str,
    reply_to: str | None,
    metadata: Mapping[str, Any] | None,
) -> SendResult:
    try:
        return await call_send(adapter, chat_id, content, reply_to, metadata)
    except Exception as exc:  # noqa: BLE001 - plugin code: the failure becomes a result
        logger.warning("[%s] send() raised %s: %s", adapter.name, type(exc).__name__, exc)
        text = f"{type(exc).__name__}: {exc}"
        return SendResult(False, error=text, error_kind=classify_send_error(exc))


def _may_retry(adapter: MessageSender, result: SendResult) -> bool:
    if result.success:
        return False
    return result.retryable or (
        adapter._is_retryable_error(result.error) and not adapter._is_timeout_error(result.error)
    )


# ruff: noqa: B027 - optional methods do nothing by default


Metadata = Mapping[str, Any] | None


class ToolPreview(LazyNamedTuple):
    """What is displayed of a tool call: its first argument, shortened, and the web address that this is."""

    text: str
    url: str | None = None


class MessageSender(abc.ABC):
    """The sending methods of an adapter."""

    supports_code_blocks: bool = False
    supports_status_text: bool = False
    supports_async_delivery: bool = True
    splits_long_messages: bool = False
    sends_any_file: bool = False
    """Whether `send_document` also sends images, videos and audio files."""
    begins_sends: bool = False
    """Whether `send` awaits `metadata["begin_send"]()`, if present, right before the first byte."""
    sends_lines: bool = False
    """Whether each line of a text becomes a message; long lists are then sent on demand."""
    typed_command_prefix: str = "/"
    REQUIRES_EDIT_FINALIZE: bool = False

    platform: Platform

    @property
    def name(self) -> str:
        """The name of the platform in title case."""
        return self.platform.value.replace("_", " ").title()

    @property
    def message_len_fn(self) -> Length:
        """The function that measures a message as the service does."""
        return len

    def max_message_length_for_chat(self, chat_id: str) -> int:
        """Return the length limit of a message of a chat, in the units of `message_len_fn_for_chat`."""
        own = getattr(self, "MAX_MESSAGE_LENGTH", 0)
        return own if isinstance(own, int) and own > 0 else 4096

    def message_len_fn_for_chat(self, chat_id: str) -> Length:
        """Return the function that measures a message of a chat."""
        return self.message_len_fn

    @property
    def send_path_degraded(self) -> bool:
        """Whether messages would not arrive although the adapter is connected; they are sent later then."""
        return getattr(self, "_send_path_degraded", False) is True

    @abc.abstractmethod
    async def send(
        self, chat_id: str, content: str, reply_to: str | None = None, metadata: Metadata = None
    ) -> SendResult:
        """Send a text.

        Args:
            reply_to: id of the message that it quotes.
            metadata: `thread_id`, `notify`, `delivery_key`, `begin_send` if `begins_sends`, and keys of the service.
        """

    def format_message(self, content: str) -> str:
        """Return a text in the markup of the service."""
        return content

    def format_tool_preview(self, preview: ToolPreview) -> str:
        """Return what a line about a tool call shows of its arguments."""
        return preview.text

    truncate_message = staticmethod(split_message)

    async def edit_message(self, chat_id: str, message_id: str, content: str, *, finalize: bool = False) -> SendResult:
        """Change a sent message."""
        return SendResult(success=False, error="Not supported")

    async def delete_message(self, chat_id: str, message_id: str) -> bool:
        """Delete a sent message; return whether that worked."""
        return False

    async def emit_warning(
        self, chat_id: str, text: str, *, reply_to: str | None = None, metadata: Metadata = None, **kwargs: Any
    ) -> SendResult:
        """Send a notice about a problem; by default like any other text."""
        return await call_send(self, chat_id, text, reply_to, metadata)

    async def emit_media_warning(
        self,
        chat_id: str,
        text: str,
        *,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Send a notice that replaces a file, after the file's caption."""
        text = f"{caption}\n{text}" if caption else text
        return await self.emit_warning(chat_id, text, reply_to=reply_to, metadata=metadata)

    async def send_typing(self, chat_id: str, metadata: Metadata = None) -> None:
        """Show the typing indicator."""

    async def stop_typing(self, chat_id: str) -> None:
        """Hide the typing indicator."""

    async def send_image(
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
    ) -> SendResult:
        """Send an image on the web; by default its URL."""
        return await call_send(self, chat_id, f"{caption}\n{image_url}" if caption else image_url, reply_to, metadata)

    async def send_animation(
        self,
        chat_id: str,
        animation_url: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
    ) -> SendResult:
        """Send an animation on the web."""
        return await self.send_image(chat_id, animation_url, caption, reply_to, metadata)

    async def send_image_file(
        self,
        chat_id: str,
        image_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Send an image file of this machine."""
        if self.sends_any_file:
            return await self.send_document(chat_id, image_path, caption, None, reply_to, metadata)
        return await self._undeliverable("image", chat_id, image_path, caption, None, reply_to, metadata)

    async def send_document(
        self,
        chat_id: str,
        file_path: str,
        caption: str | None = None,
        file_name: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Send a file."""
        return await self._undeliverable("file", chat_id, file_path, caption, file_name, reply_to, metadata)

    async def send_video(
        self,
        chat_id: str,
        video_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Send a video."""
        if self.sends_any_file:
            return await self.send_document(chat_id, video_path, caption, None, reply_to, metadata)
        return await self._undeliverable("video", chat_id, video_path, caption, None, reply_to, metadata)

    async def send_voice(
        self,
        chat_id: str,
        audio_path: str,
        caption: str | None = None,
        reply_to: str | None = None,
        metadata: Metadata = None,
        **kwargs: Any,
    ) -> SendResult:
        """Send a voice message."""
        if self.sends_any_file:
            return await self.send_document(chat_id, audio_path, caption, None, reply_to, metadata)
        return await self._undeliverable("audio", chat_id, audio_path, caption, None, reply_to, metadata)

    async def play_tts(self, chat_id: str, audio_path: str, **kwargs: Any) -> SendResult:
        """Send an answer as audio."""
        return await self.send_voice(chat_id, audio_path, **kwargs)

    def supports_streaming_tts(self, chat_id: str, audio_format: AudioFormat) -> bool:
        """Return whether a chat can play raw sound while it is made."""
        return False

    async def begin_streaming_tts(
        self, chat_id: str, audio_format: AudioFormat, metadata: Metadata = None
    ) -> StreamingTTSHandle | None:
        """Begin to play speech; return None if that is not possible now, and a file is sent then."""
        return None

    async def write_streaming_tts(self, handle: StreamingTTSHandle, chunk: bytes) -> None:
        """Play the next piece of speech."""

    async def finish_streaming_tts(self, handle: StreamingTTSHandle, *, interrupted: bool = False) -> None:
        """End speech after its last piece."""

    async def abort_streaming_tts(self, handle: StreamingTTSHandle, error: BaseException | None = None) -> None:
        """End speech early; a second call does nothing."""
        handle.aborted = True

    async def send_multiple_images(
        self,
        chat_id: str,
        images: Sequence[tuple[str, str]],
        metadata: Metadata = None,
        human_delay: float = 0.0,
    ) -> SendResult:
        """Send images one by one, and return the first failure, or else the last result.

        Args:
            images: URL and alternative text of each; `file://` URLs are files of this machine.
            human_delay: seconds between two images.
        """
        outcome = SendResult(True)
        for number, (url, alt) in enumerate(images):
            if number and human_delay > 0:
                await asyncio.sleep(human_delay)
            result = await call_optional(self, "_picture", chat_id, url, alt, metadata)
            result = SendResult(False, error="the image was not sent (see the log)") if result is None else result
            outcome = result if outcome.success else outcome
        return outcome

    async def _picture(self, chat_id: str, url: str, alt: str, metadata: Metadata) -> SendResult:
        local = media_references.local_path(url)
        method = "send_image_file" if local else "send_animation" if self._is_animation_url(url) else "send_image"
        about = {"caption": alt or None, "metadata": metadata}
        leading = (("", chat_id), ("", local or url))
        return as_send_result(await call_supported(getattr(self, method), leading, about))

    async def send_exec_approval(
        self,
        chat_id: str,
        command: str,
        session_key: str,
        description: str = "dangerous command",
        metadata: Metadata = None,
        **offered: Any,
    ) -> SendResult:
        """Ask for an approval with buttons; without this method, a text asks."""
        return SendResult(success=False, error="Not supported")

    @property
    def supports_exec_approval_buttons(self) -> bool:
        """Whether `send_exec_approval` asks."""
        return type(self).send_exec_approval is not MessageSender.send_exec_approval

    async def send_clarify(
        self,
        chat_id: str,
        question: str,
        choices: Sequence[str] | None,
        clarify_id: str,
        session_key: str,
        metadata: Metadata = None,
    ) -> SendResult:
        """Ask a question; by default as a text with numbered choices."""
        lines = [f"❓ {question}", *(f"{number}. {choice}" for number, choice in enumerate(choices or (), 1))]
        return await call_send(self, chat_id, "\n".join(lines), None, metadata)

    async def send_slash_confirm(
        self,
        chat_id: str,
        title: str,
        message: str,
        session_key: str,
        confirm_id: str,
        metadata: Metadata = None,
    ) -> SendResult:
        """Ask for a confirmation with buttons; without this method, a text asks."""
        return SendResult(success=False, error="Not supported")

    async def send_private_notice(
        self,
        chat_id: str,
        user_id: str | None,
        content: str,
        reply_to: str | None = None,
        metadata: Metadata = None,
    ) -> SendResult:
        """Send a text that only one user sees, if the service can do that; by default all users see it."""
        return await call_send(self, chat_id, content, reply_to, metadata)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Create a thread and return its id; None if there are no threads."""
        return None

    async def send_draft(self, chat_id: str, *args: Any, **kwargs: Any) -> SendResult:
        """Show an answer while it is written, without sending it."""
        return SendResult(success=False, error="Not supported")

    def supports_draft_streaming(
        self, chat_type: str | None = None, metadata: Metadata = None, chat_id: str | None = None
    ) -> bool:
        """Return whether `send_draft` works in a chat."""
        return False

    def prefers_fresh_final_streaming(self, content: str, metadata: Metadata = None) -> bool:
        """Return whether a streamed answer is sent again as a new message at its end."""
        return False

    def streaming_overflow_limit(self) -> int | None:
        """Return the length at which a streamed answer continues in a new message; None: the default."""
        return None

    # -- files and images in an answer ---------------------------------------------------------------------------------

    extract_media = staticmethod(media_references.extract_media)
    extract_images = staticmethod(media_references.extract_images)
    extract_local_files = staticmethod(media_references.extract_local_files)

    @staticmethod
    def validate_media_delivery_path(path: str, session_key: str = "") -> str | None:
        """Return the real path of a file that may be sent; None if it must not be sent."""
        return media_references.validate_media_delivery_path(path, session_key)

    @staticmethod
    def filter_media_delivery_paths(media_files: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
        """Return the items of `extract_media` that may be sent."""
        return media_references.filter_media_delivery_paths(media_files)

    @staticmethod
    def filter_local_delivery_paths(file_paths: Sequence[str]) -> list[str]:
        """Return the items of `extract_local_files` that may be sent."""
        return media_references.filter_local_delivery_paths(file_paths)

    # published adapters look for remaining tags by these upstream names
    _mask_protected_spans = staticmethod(media_references.blank_code)
    _mask_json_string_media = staticmethod(media_references.blank_json_media)

    async def _undeliverable(
        self,
        what: str,
        chat_id: str,
        path: str,
        caption: str | None,
        file_name: str | None,
        reply_to: str | None,
        metadata: Metadata,
    ) -> SendResult:
        logger.warning("[%s] file not sent, the platform does not support it: %s", self.name, path)
        text = undeliverable_text(what, None, file_name)
        return await self.emit_media_warning(chat_id, text, caption=caption, reply_to=reply_to, metadata=metadata)

    async def _send_with_retry(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: Metadata = None,
        max_retries: int = 2,
        base_delay: float = 2.0,
    ) -> SendResult:
        return await send_with_retry(
            self, chat_id, content, reply_to, metadata, max_retries=max_retries, base_delay=base_delay
        )

    @staticmethod
    def _is_retryable_error(error: str | None) -> bool:
        return is_retryable_error(error)

    @staticmethod
    def _is_timeout_error(error: str | None) -> bool:
        return is_timeout_error(error)

    @staticmethod
    def _is_animation_url(url: str) -> bool:
        return media_references.is_animation_url(url)
