"""Code that the detector does not read, and programs that it does not know: they may do anything."""

from __future__ import annotations

from hermes_agent.policy.shell.known import unknown_label
from hermes_agent.policy.shell.rules.rule import ShellRule
from hermes_agent.policy.shell.script import LIBRARY, UNDETERMINED, UNLISTED

__all__ = ["PROGRAM", "UNKNOWN_CODE_RULES", "UNKNOWN_KEYS", "is_unknown"]

PROGRAM = "unknown program"
_CODE = (
    ShellRule("code that is not analysed", lambda command: UNDETERMINED in command.marks),
    ShellRule("load a library into a program", lambda command: LIBRARY in command.marks),
)
UNKNOWN_CODE_RULES = (*_CODE, ShellRule(PROGRAM, lambda command: UNLISTED in command.marks, unknown_label))
UNKNOWN_KEYS = frozenset(rule.key for rule in _CODE)
"""Keys of commands whose text does not tell what runs."""


def is_unknown(key: str) -> bool:
    """Say whether a key is that of a command neither known to be dangerous nor to be harmless."""
    return key in UNKNOWN_KEYS or key.startswith(f"{PROGRAM}: ")
