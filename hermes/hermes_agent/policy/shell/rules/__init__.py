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
from hermes_agent.policy.shell.rules.rule import Rule

__all__ = ["HARDLINE", "RULES", "Rule"]

RULES: tuple[Rule, ...] = (
    *(*deletion.RULES, *files.RULES, *processes.RULES, *remote.RULES, *services.RULES, *own.RULES, *keeping.RULES),
    *sending.RULES,
    *publishing.RULES,
    *searching.RULES,
    *reach.RULES,
    *code.RULES,
)
HARDLINE: tuple[Rule, ...] = hardline.RULES
