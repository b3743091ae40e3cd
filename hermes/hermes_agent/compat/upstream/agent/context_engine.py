"""Context engines. Source: plugin contract §8.4."""

from hermes_agent.contracts.context_engine import ContextEngine as ContextEngine
