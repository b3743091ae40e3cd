"""Memory. Source: plugin contract §8.3."""

from hermes_agent.contracts.memory import MemoryProvider as MemoryProvider
