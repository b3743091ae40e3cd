"""Strangers' text: what it touched, and what is asked before it acts. Rule: `rule`; state: `provenance`."""

from hermes_agent.policy.foreign.provenance import ForeignSettings, Provenance, guessed

__all__ = ["ForeignSettings", "Provenance", "guessed"]
