"""Verdicts on shell commands, from the parsed command and not from patterns in its text."""

from hermes_agent.policy.shell.script import ShellCommand, ShellRedirect, ShellScript, ShellWord
from hermes_agent.policy.shell.verdict import ShellVerdict, judge

__all__ = ["ShellCommand", "ShellVerdict", "ShellRedirect", "ShellScript", "ShellWord", "judge"]
