"""The agent: conversations, and the turns in them."""

from hermes_agent.agent.conversation import Agent, Conversation, Settings

__all__ = ["Agent", "Conversation", "Settings"]
