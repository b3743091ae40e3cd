"""Durable in, durable out: inbox and outbox in `state.db`, and the service that works on them.

A message is stored before its platform is told that it arrived; its replies are stored in the transaction that ends
it; a reply is sent until the platform confirms it.
"""

from hermes_agent.delivery.inbox import Claim
from hermes_agent.delivery.mailbox import Mailbox
from hermes_agent.delivery.outbox import Sending
from hermes_agent.delivery.schema import SCHEMA
from hermes_agent.delivery.sending import Begin, Check, Deliver
from hermes_agent.delivery.service import Delivery
from hermes_agent.delivery.serving import Claimed, GiveUp, Serve
from hermes_agent.delivery.storing import Backoff
from hermes_agent.delivery.values import Finding, Inbound, Outcome, Parked, Receipt, Reply, Stale, Target

__all__ = [
    "SCHEMA",
    "Backoff",
    "Begin",
    "Check",
    "Claim",
    "Claimed",
    "Deliver",
    "Delivery",
    "Finding",
    "GiveUp",
    "Inbound",
    "Mailbox",
    "Outcome",
    "Parked",
    "Receipt",
    "Reply",
    "Sending",
    "Serve",
    "Stale",
    "Target",
]
