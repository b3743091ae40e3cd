"""The rules that make a command dangerous. The keys are those of plugin contract §10.4.

Operators list keys in `command_allowlist`, so a key never changes.
"""

from hermes_agent.policy.shell.rules import files, machine, processes, remote, secrets, services
from hermes_agent.policy.shell.script import ShellRule

__all__ = ["HARDLINE", "RULES", "ShellRule"]

RULES: tuple[ShellRule, ...] = (
    *files.DELETION_RULES,
    *files.RULES,
    *processes.RULES,
    *remote.RULES,
    *services.RULES,
    *processes.OWN_RULES,
    *machine.RULES,
    *secrets.RULES,
    *services.PUBLISHING_RULES,
    *secrets.SEARCH_RULES,
    *machine.REACH_RULES,
    *remote.UNKNOWN_CODE_RULES,
)
"""The rules in the order of the keys in a verdict."""
HARDLINE: tuple[ShellRule, ...] = processes.HARDLINE_RULES
