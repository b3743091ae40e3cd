"""Delivery of outbound webhooks by a daemon, through the durable outbox.

An event is on disk before its hook ends. A receiver that does not answer gets it again with growing delays, also after
a restart; it drops a delivery that it knows by `X-Hermes-Delivery`. What it refuses, or does not take within the
attempts, is a dead letter (`hermes hooks dead`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from hermes_agent.delivery import DeliveryService, OutboundReply, ReplyTarget, SendOutcome
from hermes_agent.delivery.messages import DeliveryCheck
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.hooks.outbound import OutboundHook, request_headers
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.system.safe_http import AddressRejected, post_url

PLATFORM = "outbound-webhook"
"""Platform of the parts in the outbox; the chat is the name of the webhook."""
LATER = (408, 425, 429)
"""Statuses below 500 after which another attempt may succeed."""


class OutboundDelivery:
    """Stores events and sends them; a process that is no daemon stores nothing.

    Args:
        hooks: returns the webhooks of the config by name.
    """

    def __init__(
        self, delivery: DeliveryService, bridge: Bridge, hooks: Callable[[], Mapping[str, OutboundHook]]
    ) -> None:
        self._delivery, self._bridge, self._hooks = delivery, bridge, hooks
        delivery.deliver(PLATFORM, self.deliver, self.check)

    def store(self, hook: OutboundHook, event: str, number: str, body: bytes) -> bool:
        """Store one event, in a worker; return False if this process does not send it."""
        if not self._delivery.is_running:
            return False
        part = {"event": event, "delivery": number, "text": body.decode()}
        reply = OutboundReply(ReplyTarget(PLATFORM, hook.name), (part,), id=f"hook-{number}")
        self._bridge.wait_core(self._delivery.send(reply))
        return True

    async def check(self, part: OutboxClaim) -> DeliveryCheck:
        """Answer that a part may be sent again: the receiver knows the delivery by its id."""
        return DeliveryCheck.safe()

    async def deliver(self, part: OutboxClaim, begin: Callable[[], Awaitable[None]]) -> SendOutcome:
        """Send one event."""
        import httpx  # only a daemon that sends loads it

        hook = self._hooks().get(part.target.chat)
        if hook is None:
            return SendOutcome.refused(f"hooks.outbound has no entry {part.target.chat!r} that can be used")
        body = str(part.part["text"]).encode()
        headers = request_headers(hook, str(part.part["event"]), str(part.part["delivery"]), body)
        await begin()
        try:  # the operator named the host, so a private one is fine; a metadata service never is
            answer = await post_url(hook.url, body, headers, private=True, timeout_s=hook.timeout_s)
        except AddressRejected as exc:
            return SendOutcome.refused(str(exc))
        except (httpx.HTTPError, OSError) as exc:
            return SendOutcome.retry(f"{type(exc).__name__}: {exc}"[:300])
        if answer.is_success:
            return SendOutcome.sent(headers["X-Hermes-Delivery"])
        reason = f"the receiver answered {answer.status_code}"
        if answer.status_code in LATER or answer.status_code >= 500:
            after = answer.headers.get("retry-after", "")
            return SendOutcome.retry(reason, float(after) if after.isdigit() else None)
        return SendOutcome.refused(reason)
