"""The terminal front door: a conversation with a prompt, or one question."""

from hermes_agent.terminal.chat import Console
from hermes_agent.terminal.oneshot import answer_once

__all__ = ["Console", "answer_once"]
