"""Recalled memory in messages. Source: plugin contract §8.3."""

from hermes_agent.memory.fence import sanitize_context as sanitize_context
