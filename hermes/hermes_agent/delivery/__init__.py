"""Durable inbox and outbox in `state.db`, and the service that processes them.

A message is stored before the platform gets its acknowledgement. Its replies are stored in the transaction that ends
it, and sent until the platform confirms them.
"""

from hermes_agent.core.backoff import Backoff
from hermes_agent.delivery.inbox import InboxClaim
from hermes_agent.delivery.mailbox import Mailbox
from hermes_agent.delivery.messages import (
    DeliveryCheck,
    InboundMessage,
    OutboundReply,
    ParkedTarget,
    Receipt,
    ReplyTarget,
    SendOutcome,
    StaleClaim,
)
from hermes_agent.delivery.outbox import OutboxClaim
from hermes_agent.delivery.service import DeliveryService
from hermes_agent.delivery.tables import SCHEMA
from hermes_agent.delivery.workers import Abandon, Begin, Check, ClaimedMessage, Deliver, Serve

__all__ = [
    "SCHEMA",
    "Backoff",
    "Begin",
    "Check",
    "InboxClaim",
    "ClaimedMessage",
    "Deliver",
    "DeliveryService",
    "DeliveryCheck",
    "Abandon",
    "InboundMessage",
    "Mailbox",
    "SendOutcome",
    "ParkedTarget",
    "Receipt",
    "OutboundReply",
    "OutboxClaim",
    "Serve",
    "StaleClaim",
    "ReplyTarget",
]
