"""One part of a reply goes to its platform, and what became of it. Source: plugin contract §8.2.2."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hermes_agent.contracts.platform.calling import call_optional, call_send, call_supported
from hermes_agent.contracts.platform.markdown import strip_markdown
from hermes_agent.contracts.platform.reply import file_method
from hermes_agent.contracts.platform.results import SendResult, as_send_result, classify_send_error, is_timeout_error
from hermes_agent.delivery import Begin, DeliveryCheck, OutboxClaim, SendOutcome
from hermes_agent.gateway.link import AdapterConnection
from hermes_agent.gateway.parts import is_sent_singly, reply_target
from hermes_agent.io.bridge import Bridge

__all__ = ["PlatformDelivery"]

logger = logging.getLogger(__name__)

SEND_S = 120.0
"""Longest time that an adapter may take for one message; after it nobody knows whether it arrived."""
MAX_UNKNOWN_ATTEMPTS = 8
"""Attempts, within two minutes, for a failure that says nothing about itself; then the message is given up, not the
chat, whose next messages wait for it."""
REPEATED = "(repeated) "


class PlatformDelivery:
    """Delivers to one platform while its adapter is connected (`delivery.Deliver`)."""

    def __init__(self, link: AdapterConnection, bridge: Bridge) -> None:
        self._link = link
        self._bridge = bridge

    async def deliver(self, sending: OutboxClaim, begin: Begin) -> SendOutcome:
        """Send one part; `begin` is awaited here, unless the adapter does it later itself."""
        adapter = self._link.adapter
        metadata: dict[str, Any] = {"notify": True, "delivery_key": sending.key}
        if sending.target.thread:
            metadata["thread_id"] = sending.target.thread
        if getattr(adapter, "begins_sends", False):
            metadata["begin_send"] = begin
        else:
            await begin()
        try:
            result = await self._bridge.on_plugin(self._send(adapter, sending, metadata), deadline_s=SEND_S)
        except TimeoutError:
            return SendOutcome.unknown(f"no answer within {SEND_S:g} s")
        return _outcome(result, sending)

    async def check(self, sending: OutboxClaim) -> DeliveryCheck:
        """Say whether sending again is safe: where the service drops a second message of the same key."""
        return (
            DeliveryCheck.safe() if getattr(self._link.adapter, "idempotent_sends", False) else DeliveryCheck.unknown()
        )

    async def _send(self, adapter: Any, sending: OutboxClaim, metadata: Mapping[str, Any]) -> SendResult:
        part, chat = sending.part, sending.target.chat
        try:
            if "text" in part:
                return await self._text(adapter, sending, metadata)
            if "images" in part:
                images = [(str(url), str(alt)) for url, alt in part["images"]]
                if len(images) == 1 and is_sent_singly(adapter):  # it says what became of it
                    return await _call_method(adapter, "_picture", (chat, *images[0], metadata), {})
                return await _call_method(adapter, "send_multiple_images", (chat, images), {"metadata": metadata})
            method = file_method(str(part["file"]), as_document=bool(part.get("document")))
            method = "play_tts" if part.get("spoken") and hasattr(adapter, "play_tts") else method
            return await _call_method(adapter, method, (chat, str(part["file"])), {"metadata": metadata})
        except Exception as exc:  # noqa: BLE001 - a plugin's code: the failure becomes a result
            logger.warning("platform %s: sending failed: %s: %s", self._link.name, type(exc).__name__, exc)
            return SendResult(False, error=f"{type(exc).__name__}: {exc}", error_kind=classify_send_error(exc))

    async def _text(self, adapter: Any, sending: OutboxClaim, metadata: Mapping[str, Any]) -> SendResult:
        chat, text = sending.target.chat, str(sending.part["text"])
        preview = str(sending.part.get("edit") or "")
        if preview:
            edited = await _call_method(adapter, "edit_message", (chat, preview, text), {"finalize": True})
            if edited.success:
                return SendResult(True, message_id=edited.message_id or preview)
            await call_optional(adapter, "delete_message", chat, preview)
        text = REPEATED + text if sending.repeat else text
        mode = str(getattr(self._link.config, "reply_to_mode", "first"))
        answered = reply_target(sending.part, sending.index, sending.reply_to, mode)
        result = await call_send(adapter, chat, text, answered, metadata)
        if not result.success and _kind(result) == "bad_format":
            return await call_send(adapter, chat, strip_markdown(text) or text, answered, metadata)
        return result


def _outcome(result: SendResult, sending: OutboxClaim) -> SendOutcome:
    """Return what a result means for the outbox."""
    if result.success:
        return SendOutcome.sent(str(result.message_id or ""))
    reason, kind = result.error or "send() failed", _kind(result)
    if kind in ("forbidden", "not_found"):
        # a file that is not allowed there says nothing about the chat: its texts would wait behind it for ever
        return SendOutcome.park(reason) if "text" in sending.part else SendOutcome.refused(reason)
    if kind in ("too_long", "bad_format"):
        return SendOutcome.refused(reason)
    if kind == "rate_limited" or result.retryable:
        return SendOutcome.retry(reason, result.retry_after)
    if is_timeout_error(reason):
        return SendOutcome.unknown(reason)
    if kind == "transient" or sending.attempt < MAX_UNKNOWN_ATTEMPTS:
        return SendOutcome.retry(reason, result.retry_after)
    return SendOutcome.refused(reason)


def _kind(result: SendResult) -> str:
    said = result.error_kind or "unknown"
    if said != "unknown" or is_timeout_error(result.error):  # what may have arrived was not refused
        return said
    return classify_send_error(None, result.error or "")


async def _call_method(adapter: Any, method: str, leading: tuple[Any, ...], offered: Mapping[str, Any]) -> SendResult:
    """Call an adapter's method; one that it lacks says so."""
    function = getattr(adapter, method, None)
    if not callable(function):
        return SendResult(False, error="Not supported", error_kind="bad_format")
    value = call_supported(function, tuple(("", one) for one in leading), offered)
    return as_send_result(await value)
