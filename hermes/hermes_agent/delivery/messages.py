"""Values of inbox and outbox. Everything in them can be stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from hermes_agent.core.lazy_types import lazy_dataclass

Content = Mapping[str, Any]


class StaleClaim(Exception):
    """Another claim has replaced this one; the result of its work must be dropped."""


@lazy_dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message that arrived.

    Attributes:
        message_id: the platform's id; a second message with the same platform, chat and id is a duplicate. A message
            with "" is never a duplicate.
        conversation: messages of one conversation are processed in order, those of different ones in parallel.
        sender: the authenticated principal.
        payload: what the front end needs to process it; returned unchanged.
        fingerprint: hash of the content; a second message with the same platform, chat and fingerprint within
            `same_s` seconds is a duplicate, whatever its id. With "" the content is not compared.
    """

    platform: str
    chat: str
    message_id: str
    conversation: str
    sender: str = ""
    payload: Content = field(default_factory=dict)
    fingerprint: str = ""
    same_s: float = 0.0


@lazy_dataclass(frozen=True, slots=True)
class ReplyTarget:
    """The destination of a reply. Parts to one target stay in order."""

    platform: str
    chat: str
    thread: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.platform, self.chat, self.thread) if part)


@lazy_dataclass(frozen=True, slots=True)
class Receipt:
    """The result of storing a message.

    Attributes:
        id: stable over restarts.
        new: False for a duplicate; `id` is that of the first message.
        revived: parked targets that are revived, because their chat is in use.
    """

    id: int
    new: bool
    revived: tuple[ReplyTarget, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class OutboundReply:
    """A reply to send.

    Attributes:
        parts: messages on the wire, as JSON objects that the platform's `Deliver` understands.
        id: idempotency key in ASCII; a second reply with the same id is dropped. "" gets one when it is stored.
    """

    target: ReplyTarget
    parts: tuple[Content, ...]
    reply_to: str = ""
    id: str = ""


@lazy_dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome of one attempt to send one part."""

    kind: Literal["sent", "retry", "held", "unknown", "refused", "dead"]
    message_id: str = ""
    reason: str = ""
    after_s: float | None = None

    @classmethod
    def sent(cls, message_id: str = "") -> SendOutcome:
        """Return the outcome of a confirmed part."""
        return cls("sent", message_id)

    @classmethod
    def retry(cls, reason: str, after_s: float | None = None) -> SendOutcome:
        """Return the outcome of a part that certainly did not arrive; a later attempt may succeed.

        Args:
            after_s: seconds to wait as the platform demands; None uses the backoff.
        """
        return cls("retry", reason=reason, after_s=after_s)

    @classmethod
    def not_attempted(cls, reason: str, after_s: float) -> SendOutcome:
        """Return the outcome without an attempt: nothing was tried, and it follows in `after_s` seconds."""
        return cls("held", reason=reason, after_s=after_s)

    @classmethod
    def unknown(cls, reason: str) -> SendOutcome:
        """Return the outcome of a part that may have arrived."""
        return cls("unknown", reason=reason)

    @classmethod
    def refused(cls, reason: str) -> SendOutcome:
        """Return the outcome of a part that the platform never accepts; others to the target may be sent."""
        return cls("refused", reason=reason)

    @classmethod
    def park(cls, reason: str) -> SendOutcome:
        """Return the outcome that parks the target: nothing can be sent to it any more."""
        return cls("dead", reason=reason)


@lazy_dataclass(frozen=True, slots=True)
class DeliveryCheck:
    """The answer of a platform about a part that may have arrived."""

    kind: Literal["arrived", "safe", "unknown"]
    message_id: str = ""

    @classmethod
    def arrived(cls, message_id: str = "") -> DeliveryCheck:
        """Return the answer that it arrived."""
        return cls("arrived", message_id)

    @classmethod
    def safe(cls) -> DeliveryCheck:
        """Return the answer that it may be sent: it did not arrive, or a duplicate key is dropped."""
        return cls("safe")

    @classmethod
    def unknown(cls) -> DeliveryCheck:
        """Return the answer that the platform cannot tell."""
        return cls("unknown")


@lazy_dataclass(frozen=True, slots=True)
class ParkedTarget:
    """A target to which nothing is sent until it is revived.

    Attributes:
        since: seconds since the epoch.
        count: parts that wait.
    """

    target: ReplyTarget
    reason: str
    since: float
    count: int
