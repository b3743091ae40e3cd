"""Code that the detector does not read, and programs that it does not know: they may do anything."""

from __future__ import annotations

from hermes_agent.policy.shell.known import label
from hermes_agent.policy.shell.rules.rule import Rule
from hermes_agent.policy.shell.script import LIBRARY, UNLISTED, UNTOLD

__all__ = ["PROGRAM", "RULES", "UNKNOWN", "is_unknown"]

PROGRAM = "unknown program"
_CODE = (
    Rule("code that is not analysed", lambda command: UNTOLD in command.marks),
    Rule("load a library into a program", lambda command: LIBRARY in command.marks),
)
RULES = (*_CODE, Rule(PROGRAM, lambda command: UNLISTED in command.marks, label))
UNKNOWN = frozenset(rule.key for rule in _CODE)
"""Keys of commands whose text does not tell what runs."""


def is_unknown(key: str) -> bool:
    """Say whether a key is that of a command neither known to be dangerous nor to be harmless."""
    return key in UNKNOWN or key.startswith(f"{PROGRAM}: ")
