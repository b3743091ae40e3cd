"""What became of a message that was sent. Source: plugin contract §8.2.3, §11.2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ERROR_KINDS",
    "EphemeralReply",
    "SendResult",
    "as_send_result",
    "classify_send_error",
    "is_retryable_error",
    "is_timeout_error",
]

ERROR_KINDS = ("too_long", "bad_format", "forbidden", "not_found", "rate_limited", "transient", "unknown")

_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("rate_limited", ("rate limit", "ratelimit", "too many requests", "flood control", "retry after", "429")),
    ("too_long", ("too long", "too large", "message_too_long", "exceeds", "entity too large", "413")),
    ("bad_format", ("can't parse", "cannot parse", "parse entities", "invalid format", "markdown", "malformed")),
    ("forbidden", ("forbidden", "unauthorized", "not allowed", "permission", "blocked by", "kicked", "401", "403")),
    ("not_found", ("not found", "unknown channel", "no such", "does not exist", "404")),
    ("transient", ("connect", "network", "timed out", "timeout", "unavailable", "reset by peer", "broken pipe")),
    ("transient", ("500", "502", "503", "504", "temporar")),
)
_NEVER_ARRIVED = ("connect", "network", "unreachable", "refused", "reset by peer", "broken pipe", "dns", "resolve")
_MAYBE_ARRIVED = ("timed out", "timeout", "may have arrived")


@dataclass
class SendResult:
    """What became of a message.

    Attributes:
        message_id: the platform's id of it, or of the first of its parts.
        error: why it was not sent.
        retryable: it did not arrive, and sending it again may help.
        retry_after: seconds to wait first.
        continuation_message_ids: ids of its further parts.
        error_kind: one of `ERROR_KINDS`.
    """

    success: bool
    message_id: str | None = None
    error: str | None = None
    raw_response: Any = None
    retryable: bool = False
    retry_after: float | None = None
    continuation_message_ids: tuple[str, ...] = ()
    error_kind: str | None = None


class EphemeralReply(str):
    """A reply that is deleted again; a handler may return it in place of a text.

    Args:
        ttl_seconds: how long it stands; None leaves it to the platform, which keeps it.
    """

    ttl_seconds: float | None

    def __new__(cls, text: str, ttl_seconds: float | None = None) -> EphemeralReply:
        made = super().__new__(cls, text)
        made.ttl_seconds = ttl_seconds
        return made

    @property
    def text(self) -> str:
        """The text as a plain `str`."""
        return str.__str__(self)


def as_send_result(value: Any) -> SendResult:
    """Return what an adapter's `send` gave as a `SendResult`: the guide's adapters give nothing, or an id."""
    if isinstance(value, SendResult):
        return value
    if isinstance(value, Mapping):
        success = bool(value.get("success", not value.get("error")))
        message, error = value.get("message_id"), value.get("error")
        return SendResult(
            success,
            message_id=None if message is None else str(message),
            error=None if error is None else str(error),
            raw_response=value,
        )
    if value is False:
        return SendResult(False, error="send() returned False")
    if value is None or value is True:
        return SendResult(True)
    if isinstance(value, (str, int)):
        return SendResult(True, message_id=str(value))
    return SendResult(True, raw_response=value)


def classify_send_error(exc: BaseException | None, error_text: str = "") -> str:
    """Return which of `ERROR_KINDS` a failure is, by its class and text."""
    if isinstance(exc, (ConnectionError, TimeoutError)):
        return "transient"
    if isinstance(exc, PermissionError):
        return "forbidden"
    name = type(exc).__name__ if exc is not None else ""
    text = f"{name} {exc if exc is not None else ''} {error_text}".lower()
    return next((kind for kind, signs in _SIGNS if any(_has(text, sign) for sign in signs)), "unknown")


def _has(text: str, sign: str) -> bool:
    """Say whether `sign` stands in `text`; a number by itself, not in an id."""
    return bool(re.search(rf"(?<!\d){sign}(?!\d)", text)) if sign.isdigit() else sign in text


def is_retryable_error(error: str | None) -> bool:
    """Say whether a failure is the network's, before the message can have arrived."""
    text = (error or "").lower()
    return any(sign in text for sign in _NEVER_ARRIVED)


def is_timeout_error(error: str | None) -> bool:
    """Say whether nobody knows if the message arrived: sending it again could show it twice."""
    text = (error or "").lower()
    return any(sign in text for sign in _MAYBE_ARRIVED) and "connect" not in text
