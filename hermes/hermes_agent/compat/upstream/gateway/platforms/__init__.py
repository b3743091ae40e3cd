"""Upstream's package of chat platforms: what an adapter is made of."""

from hermes_agent.contracts.platform.adapter import BasePlatformAdapter as BasePlatformAdapter
from hermes_agent.contracts.platform.messages import MessageEvent as MessageEvent
from hermes_agent.contracts.platform.results import SendResult as SendResult
