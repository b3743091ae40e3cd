"""Recalled memory in messages. Source: plugin contract §8.3."""

from hermes_agent.compat.texts import sanitize_context as sanitize_context
