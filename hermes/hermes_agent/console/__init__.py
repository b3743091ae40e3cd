"""The console, the interactive terminal of `hermes`, and the answer to one question."""

from hermes_agent.console.output import answer_once

__all__ = ["answer_once"]
