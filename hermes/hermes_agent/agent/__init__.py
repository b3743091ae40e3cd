"""The agent: conversations, and the turns in them."""

from hermes_agent.agent.agent import Agent
from hermes_agent.agent.settings import AgentSettings
from hermes_agent.models.client_pool import ChosenModel

__all__ = ["Agent", "ChosenModel", "AgentSettings"]
