"""What makes a command dangerous, a module per kind of harm. The keys are those of plugin contract §10.4.

Operators keep keys in `command_allowlist`, so a key never changes its text.
"""

from hermes_agent.policy.shell.rules import (
    code,
    deletion,
    files,
    hardline,
    keeping,
    own,
    processes,
    publishing,
    reach,
    remote,
    searching,
    sending,
    services,
)
from hermes_agent.policy.shell.rules.rule import ShellRule

__all__ = ["HARDLINE", "RULES", "ShellRule"]

RULES: tuple[ShellRule, ...] = (
    *(
        *deletion.DELETION_RULES,
        *files.RULES,
        *processes.RULES,
        *remote.RULES,
        *services.RULES,
        *own.OWN_RULES,
        *keeping.RULES,
    ),
    *sending.RULES,
    *publishing.PUBLISHING_RULES,
    *searching.SEARCH_RULES,
    *reach.REACH_RULES,
    *code.UNKNOWN_CODE_RULES,
)
HARDLINE: tuple[ShellRule, ...] = hardline.HARDLINE_RULES
