"""Strangers' text: what it touched, and what is asked before it acts. Rule: `rule`; state: `provenance`."""

from hermes_agent.policy.foreign.provenance import Called, ForeignSettings, Provenance, guessed

__all__ = ["Called", "ForeignSettings", "Provenance", "guessed"]
