"""Texts that were sent. Source: plugin contract §11.1."""

from hermes_agent.contracts.platform.sent_texts import lookup as lookup
from hermes_agent.contracts.platform.sent_texts import record as record
