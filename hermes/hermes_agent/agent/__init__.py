"""The agent: conversations, and the turns in them."""

from hermes_agent.agent.conversation import Agent, ChosenModel, Conversation, Settings

__all__ = ["Agent", "ChosenModel", "Conversation", "Settings"]
