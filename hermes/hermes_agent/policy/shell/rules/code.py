"""Code that the detector does not read: it may do anything."""

from __future__ import annotations

from hermes_agent.policy.shell.rules.rule import Rule
from hermes_agent.policy.shell.script import LIBRARY, UNTOLD

__all__ = ["RULES", "UNKNOWN"]

RULES = (
    Rule("code that is not analysed", lambda command: UNTOLD in command.marks),
    Rule("load a library into a program", lambda command: LIBRARY in command.marks),
)
UNKNOWN = frozenset(rule.key for rule in RULES)
"""Keys of commands that are neither known to be dangerous nor to be harmless."""
