"""What goes through inbox and outbox. Everything in it can be stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Content = Mapping[str, Any]


class StaleClaim(Exception):
    """Somebody else has taken over what this claim was for; what was done for it must be thrown away."""


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message that arrived.

    Attributes:
        message_id: the platform's id of it; a second one with the same platform, chat and id is a duplicate. Empty: the
            platform has none, and it is never a duplicate.
        conversation: within one, messages are served in order; different ones in parallel.
        sender: the authenticated principal.
        payload: what the front door needs to serve it; comes back unchanged.
        fingerprint: hash of the content; a second message with the same platform, chat and fingerprint within
            `same_s` seconds is a duplicate, whatever its id. Empty: content is not compared.
    """

    platform: str
    chat: str
    message_id: str
    conversation: str
    sender: str = ""
    payload: Content = field(default_factory=dict)
    fingerprint: str = ""
    same_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """Where a reply goes. What goes to one target stays in order."""

    platform: str
    chat: str
    thread: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.platform, self.chat, self.thread) if part)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message that arrived.

    Attributes:
        id: stable over restarts.
        new: false for a duplicate; `id` is the first one's.
        revived: targets that were parked and are not any more, since the chat has spoken.
    """

    id: int
    new: bool
    revived: tuple[ReplyTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboundReply:
    """What is to be sent.

    Attributes:
        parts: one message on the wire each, as JSON objects that the platform's deliverer understands.
        id: idempotency key, ASCII; a second reply with the same id is dropped. Empty: made when it is stored.
    """

    target: ReplyTarget
    parts: tuple[Content, ...]
    reply_to: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of one attempt to send one part; made by the methods below."""

    kind: Literal["sent", "retry", "held", "unknown", "refused", "dead"]
    message_id: str = ""
    reason: str = ""
    after_s: float | None = None

    @classmethod
    def sent(cls, message_id: str = "") -> SendOutcome:
        """Say that the platform has it."""
        return cls("sent", message_id)

    @classmethod
    def retry(cls, reason: str, after_s: float | None = None) -> SendOutcome:
        """Say that it certainly did not arrive, and that a later attempt may help.

        Args:
            after_s: seconds to wait, as the platform says.
        """
        return cls("retry", reason=reason, after_s=after_s)

    @classmethod
    def not_attempted(cls, reason: str, after_s: float) -> SendOutcome:
        """Say that nothing was tried: it is no attempt, and comes again in `after_s` seconds."""
        return cls("held", reason=reason, after_s=after_s)

    @classmethod
    def unknown(cls, reason: str) -> SendOutcome:
        """Say that it may have arrived."""
        return cls("unknown", reason=reason)

    @classmethod
    def refused(cls, reason: str) -> SendOutcome:
        """Say that this message can never be sent, while others to the same target can."""
        return cls("refused", reason=reason)

    @classmethod
    def park(cls, reason: str) -> SendOutcome:
        """Say that nothing can be sent to this target any more."""
        return cls("dead", reason=reason)


@dataclass(frozen=True, slots=True)
class DeliveryCheck:
    """What a platform says about a part that may have arrived; made by the methods below."""

    kind: Literal["arrived", "safe", "unknown"]
    message_id: str = ""

    @classmethod
    def arrived(cls, message_id: str = "") -> DeliveryCheck:
        """Say that it is there."""
        return cls("arrived", message_id)

    @classmethod
    def safe(cls) -> DeliveryCheck:
        """Say that it is not there, or that the platform drops a second one with the same key."""
        return cls("safe")

    @classmethod
    def unknown(cls) -> DeliveryCheck:
        """Say that the platform gives no way to know."""
        return cls("unknown")


@dataclass(frozen=True, slots=True)
class ParkedTarget:
    """A target that nothing is sent to.

    Attributes:
        since: seconds since the epoch.
        count: parts that wait for it.
    """

    target: ReplyTarget
    reason: str
    since: float
    count: int
