"""The terminal front door: a conversation with a prompt, or one question."""

from hermes_agent.console.console import Console
from hermes_agent.console.output import answer_once

__all__ = ["Console", "answer_once"]
