"""Send one message, and what to do when it does not arrive. Source: plugin contract §8.2.2 (`_send_with_retry`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.platform.calling import call_send
from hermes_agent.contracts.platform.markdown import strip_markdown
from hermes_agent.contracts.platform.results import SendResult, classify_send_error

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.adapter import BasePlatformAdapter

__all__ = ["send_with_retry", "undeliverable_text"]

logger = logging.getLogger(__name__)

GAVE_UP = "⚠️ My answer could not be delivered: the connection failed several times. Please ask again."
PERMANENT_ERRORS = ("forbidden", "not_found", "rate_limited", "too_long")
"""Failures that another form of the text does not cure."""

Sleep = Callable[[float], Awaitable[Any]]


async def send_with_retry(
    adapter: BasePlatformAdapter,
    chat_id: str,
    content: str,
    reply_to: str | None,
    metadata: Mapping[str, Any] | None,
    *,
    max_retries: int,
    base_delay: float,
) -> SendResult:
    """Send a text; again after a failure of the network, and once more without marks when the form is at fault.

    A message of which nobody knows whether it arrived is not sent again.

    Args:
        max_retries: further attempts.
        base_delay: seconds before the first of them; doubled each time.
    """
    result = await _attempt(adapter, chat_id, content, reply_to, metadata)
    for number in range(max_retries):
        if result.success or not _may_retry(adapter, result):
            break
        pause = result.retry_after if result.retry_after is not None else base_delay * 2**number
        logger.info("[%s] not sent, again in %g s: %s", adapter.name, pause, result.error)
        await asyncio.sleep(pause)
        result = await _attempt(adapter, chat_id, content, reply_to, metadata)
    if result.success or adapter._is_timeout_error(result.error):
        return result
    if _may_retry(adapter, result):
        logger.error("[%s] gave up after %d attempts: %s", adapter.name, max_retries + 1, result.error)
        await _attempt(adapter, chat_id, GAVE_UP, None, metadata)
        return result
    kind = result.error_kind or classify_send_error(None, result.error or "")
    if kind in PERMANENT_ERRORS:
        logger.error("[%s] not sent (%s): %s", adapter.name, kind, result.error)
        return result
    logger.warning("[%s] not sent, again as plain text: %s", adapter.name, result.error)
    return await _attempt(adapter, chat_id, strip_markdown(content) or content, reply_to, metadata)


def undeliverable_text(what: str, caption: str | None, file_name: str | None = None) -> str:
    """Return what stands in the chat in place of a file; never its path."""
    named = f" ({file_name})" if file_name else ""
    return (f"{caption}\n" if caption else "") + f"⚠️ Couldn't deliver the {what} attachment{named}."


async def _attempt(
    adapter: BasePlatformAdapter,
    chat_id: str,
    content: str,
    reply_to: str | None,
    metadata: Mapping[str, Any] | None,
) -> SendResult:
    try:
        return await call_send(adapter, chat_id, content, reply_to, metadata)
    except Exception as exc:  # noqa: BLE001 - a plugin's code: the failure becomes a result
        logger.warning("[%s] send() raised %s: %s", adapter.name, type(exc).__name__, exc)
        text = f"{type(exc).__name__}: {exc}"
        return SendResult(False, error=text, error_kind=classify_send_error(exc))


def _may_retry(adapter: BasePlatformAdapter, result: SendResult) -> bool:
    if result.success:
        return False
    return result.retryable or (
        adapter._is_retryable_error(result.error) and not adapter._is_timeout_error(result.error)
    )
