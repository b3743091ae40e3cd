"""The console, the interactive terminal of `hermes`, and the answer to one question."""

from hermes_agent.console.output import OneShotOptions, answer_once

__all__ = ["OneShotOptions", "answer_once"]
