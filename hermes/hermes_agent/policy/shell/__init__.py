"""What a shell command would do, told from its grammar and not from its letters."""

from hermes_agent.policy.shell.script import ShellCommand, ShellRedirect, ShellScript, ShellWord
from hermes_agent.policy.shell.verdict import ShellVerdict, judge

__all__ = ["ShellCommand", "ShellVerdict", "ShellRedirect", "ShellScript", "ShellWord", "judge"]
