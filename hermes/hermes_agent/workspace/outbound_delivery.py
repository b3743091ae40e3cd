"""Delivery of outbound webhooks by a daemon, through the durable outbox.

An event is on disk before its hook ends. A receiver that does not answer gets it again with growing delays, also after
a restart; it drops a delivery that it knows by `X-Hermes-Delivery`. What it refuses, or does not take within the
attempts, is a dead letter (`hermes hooks dead`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from hermes_agent.delivery import DeliveryService, OutboundReply, ReplyTarget, SendOutcome
from hermes_agent.delivery.messages import DeliveryCheck
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.hooks.outbound import OutboundHook, SendFailure, request_headers
from hermes_agent.policy.network import HostTables, log_connection
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
        tables: the operator's table of hosts.
    """

    def __init__(
        self,
        delivery: DeliveryService,
        bridge: Bridge,
        hooks: Callable[[], Mapping[str, OutboundHook]],
        tables: HostTables,
    ) -> None:
        self._delivery, self._bridge, self._hooks, self._tables = delivery, bridge, hooks, tables
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
        hook = self._hooks().get(part.target.chat)
        if hook is None:
            return SendOutcome.refused(f"hooks.outbound has no entry {part.target.chat!r} that can be used")
        await begin()
        event, number, body = str(part.part["event"]), str(part.part["delivery"]), str(part.part["text"]).encode()
        return await self._request(hook, event, number, body)

    def send(self, hook: OutboundHook, event: str, number: str, body: bytes) -> SendFailure | None:
        """Send one event from a background thread of a process that stores none; return why it failed."""
        outcome = self._bridge.wait_core(self._request(hook, event, number, body))
        return None if outcome.kind == "sent" else SendFailure(outcome.reason, outcome.kind == "retry")

    async def _request(self, hook: OutboundHook, event: str, number: str, body: bytes) -> SendOutcome:
        """Send one request, if the present table of hosts does not deny its destination.

        The operator named the host, so a private address is allowed; one of a metadata service never is.
        """
        import httpx  # only a process that sends loads it

        headers = request_headers(hook, event, number, body)
        table = self._tables.current()
        host, port = _place(hook.url)
        try:
            if why := table.why_denied(hook.url):
                raise AddressRejected(why)
            answer = await post_url(hook.url, body, headers, private=table.may_ask_own, timeout_s=hook.timeout_s)
        except AddressRejected as exc:
            log_connection("", f"webhook:{hook.name}", host, port, f"refused ({exc})")
            return SendOutcome.refused(str(exc))
        except (httpx.HTTPError, OSError) as exc:
            return SendOutcome.retry(f"{type(exc).__name__}: {exc}"[:300])
        if answer.is_success:
            return SendOutcome.sent(number)
        reason = f"the receiver answered {answer.status_code}"
        if answer.status_code in LATER or answer.status_code >= 500:
            after = answer.headers.get("retry-after", "")
            return SendOutcome.retry(reason, float(after) if after.isdigit() else None)
        return SendOutcome.refused(reason)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
