"""What every conversation is made with: the model, and what the operator set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hermes_agent.agent.limits import Limits
from hermes_agent.models.chosen import ChosenModel
from hermes_agent.policy import Smart

__all__ = ["ChooseModel", "Settings"]


ChooseModel = Callable[[str | None], ChosenModel]
"""Returns the model for a wish (None: as configured). Raises UserError when there is none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the operator set for every conversation."""

    max_turns: int = 90
    """Model steps of one turn before the last answer is asked for."""
    max_turn_tokens: int = 0
    """Tokens of one turn before the last answer is asked for; 0 sets no limit."""
    notice_after: int = 3
    """Identical calls in a row that bring a notice to the model; 0 never does."""
    end_after: int = 5
    """Identical calls in a row that end the turn; 0 never does."""
    max_verify_nudges: int = 3
    """Times that `pre_verify` may send the model back to work in one turn."""
    api_max_retries: int = 3
    """Repetitions of a request that failed for the moment."""
    approval_timeout_s: float = 60.0
    approvals_off: bool = False
    """Nobody is asked about anything."""
    smart: Smart | None = None
    """Looks at questions before a person does."""
    limits: Limits = field(default_factory=Limits)
    cwd: Path = Path()
