"""Strangers' text: what it touched, and what is asked before it acts. Rule: `rule`; state: `provenance`."""

from hermes_agent.policy.foreign.called import Called
from hermes_agent.policy.foreign.guessing import guessed
from hermes_agent.policy.foreign.provenance import ForeignSettings, Provenance

__all__ = ["Called", "ForeignSettings", "Provenance", "guessed"]
