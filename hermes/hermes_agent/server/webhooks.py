"""`POST /webhooks/NAME`: another service tells of something; it is stored, answered 202, and becomes a turn."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from hermes_agent.core.redact import redactor
from hermes_agent.delivery import InboundMessage, Receipt
from hermes_agent.server.body import ClientDisconnected, read_body
from hermes_agent.server.failures import http_error_of
from hermes_agent.server.reply import HttpError, HttpReply, json_reply
from hermes_agent.server.webhook_checks import delivery_id, event_name, fingerprint, is_signature_valid
from hermes_agent.server.webhook_routes import WebhookRoute, fill_template

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope, Send

__all__ = ["PLATFORM", "WebhookInbox", "WebhookEndpoint"]

logger = logging.getLogger(__name__)

PLATFORM = "webhook"
"""What hooks and sessions see as the platform, as upstream."""
BODY_S = 30.0


class WebhookInbox(Protocol):
    """The part of `delivery.Delivery` that is used."""

    async def receive(self, message: InboundMessage, /) -> Receipt:
        """Store a message."""
        ...


class WebhookEndpoint:
    """The ASGI application of the route.

    Args:
        routes: by name.
        clock: seconds since the epoch.
    """

    def __init__(
        self, routes: Mapping[str, WebhookRoute], inbox: WebhookInbox, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._routes = routes
        self._inbox = inbox
        self._clock = clock
        self._rate_limits = {name: _RateLimit(route.per_minute) for name, route in routes.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            answer = await self._handle(scope, receive)
        except ClientDisconnected:
            return
        except Exception as error:  # noqa: BLE001 - mapped, and logged where nobody foresaw it
            answer = http_error_of(error).reply()
        await answer(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive) -> HttpReply:
        name = scope["name"]
        route = self._routes.get(name)
        if route is None:
            raise HttpError(404, f"there is no webhook {name[:100]!r}", code="not_found")
        body = await read_body(scope, receive, max_bytes=route.max_body_kb * 1024, timeout_s=BODY_S)
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        if not is_signature_valid(route.check, route.secret, route.header, headers, body, self._clock()):
            logger.warning("webhook %s: a request without a valid signature was refused", name)
            raise HttpError(401, "the signature is missing, wrong or too old", code="invalid_signature")
        if (wait_s := self._rate_limits[name].take()) > 0:
            raise HttpError(
                429, f"more than {route.per_minute} a minute", code="rate_limit_exceeded", retry_after_s=wait_s
            )
        payload = _json(body)
        if isinstance(payload, dict) and payload.get("type") == "url_verification":  # Slack's question, once
            return json_reply({"challenge": str(payload.get("challenge", ""))[:500]})
        event = event_name(headers, payload)
        if route.events and event not in route.events:
            return json_reply({"ignored": event})
        delivery = delivery_id(route.id_header, headers, payload)
        return await self._store(route, event, delivery, payload, fingerprint(route.check, headers, body))

    async def _store(self, route: WebhookRoute, event: str, delivery: str, payload: Any, content: str) -> HttpReply:
        values = payload if isinstance(payload, dict) else {}
        values = {
            **values,
            "body": payload,
            "webhook": route.name,
            "event": values.get("event", event),
            "event_in_words": f" ({event})" if event else "",
        }
        session = fill_template(route.session, values) if route.session else f"{self._clock():.6f}"
        receipt = await self._inbox.receive(
            InboundMessage(
                PLATFORM,
                route.name,
                delivery,
                f"{route.name}:{hashlib.sha256(session.encode()).hexdigest()[:24]}",
                f"{PLATFORM}:{route.name}",
                {"route": route.name, "text": redactor.mask_known(fill_template(route.prompt, values))},
                content if route.same_body_seconds else "",
                route.same_body_seconds,
            )
        )
        logger.info("webhook %s: %s %s is message %d", route.name, event, delivery, receipt.id)
        return json_reply({"id": receipt.id, "duplicate": not receipt.new}, 202)


class _RateLimit:
    """So many at once, refilled over a minute."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left = self._most
        self._at = time.monotonic()

    def take(self) -> float:
        """Take one; return how many seconds to wait when there is none."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._most / 60)
        self._at = now
        if self._left < 1:
            return (1 - self._left) * 60 / self._most
        self._left -= 1
        return 0.0


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise HttpError(400, "the body is not JSON", code="invalid_request") from None
