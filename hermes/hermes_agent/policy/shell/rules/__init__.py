"""What makes a command dangerous, a module per kind of harm. The keys are those of plugin contract §10.4.

Operators keep keys in `command_allowlist`, so a key never changes its text.
"""

from hermes_agent.policy.shell.rules import files, machine, processes, remote, secrets, services
from hermes_agent.policy.shell.rules import files as deletion
from hermes_agent.policy.shell.rules import processes as hardline
from hermes_agent.policy.shell.rules import processes as own
from hermes_agent.policy.shell.rules import remote as code
from hermes_agent.policy.shell.rules import services as publishing
from hermes_agent.policy.shell.script import ShellRule

__all__ = ["HARDLINE", "RULES", "ShellRule"]

RULES: tuple[ShellRule, ...] = (
    *(
        *deletion.DELETION_RULES,
        *files.RULES,
        *processes.RULES,
        *remote.RULES,
        *services.RULES,
        *own.OWN_RULES,
        *machine.RULES,
    ),
    *secrets.RULES,
    *publishing.PUBLISHING_RULES,
    *secrets.SEARCH_RULES,
    *machine.REACH_RULES,
    *code.UNKNOWN_CODE_RULES,
)
HARDLINE: tuple[ShellRule, ...] = hardline.HARDLINE_RULES
