"""Strangers' text: what it touched, and what is asked before it acts. Rule: `rule`; state: `provenance`."""

from hermes_agent.policy.foreign.called import CheckedCall
from hermes_agent.policy.foreign.guessing import guess_effect
from hermes_agent.policy.foreign.provenance import TaintSettings, TaintTracker

__all__ = ["CheckedCall", "TaintSettings", "TaintTracker", "guess_effect"]
