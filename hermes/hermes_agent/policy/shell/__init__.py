"""What a shell command would do, told from its grammar and not from its letters."""

from hermes_agent.policy.shell.judging import ShellVerdict, judge
from hermes_agent.policy.shell.script import ShellCommand, ShellRedirect, ShellScript, ShellWord

__all__ = ["ShellCommand", "ShellVerdict", "ShellRedirect", "ShellScript", "ShellWord", "judge"]
