"""What a shell command would do, told from its grammar and not from its letters."""

from hermes_agent.policy.shell.judging import Judgement, judge
from hermes_agent.policy.shell.script import Command, Redirect, Script, Word

__all__ = ["Command", "Judgement", "Redirect", "Script", "Word", "judge"]
