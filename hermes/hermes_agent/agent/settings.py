"""What every conversation is made with: the model, and what the operator set; its hard caps end a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.models.chosen import ChosenModel
from hermes_agent.policy import Smart
from hermes_agent.sessions import Spent

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["Cap", "ChooseModel", "CompressionSettings", "Limits", "Settings", "caps", "limits_of", "reached"]

JOB = "cron"
"""The front door of scheduled jobs; a run has a session of its own."""


class Limits(NamedTuple):
    """0 sets no limit. Tokens are input and output together, whoever caused them; costs are those that are known."""

    session_tokens: int = 0
    session_usd: float = 0.0
    job_tokens: int = 0
    job_usd: float = 0.0
    day_tokens: int = 0
    day_usd: float = 0.0


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """Return what the block `limits` of the config sets."""
    return Limits(**{name: value or 0 for name, value in settings.items()})


class Cap(NamedTuple):
    """One of them, with whose usage it looks at (arguments of `Transcript.spent`)."""

    name: str
    who: str
    tokens: int
    usd: float
    where: dict[str, str]

    def sentence(self, spent: Spent) -> str:
        """Return the sentence that ends the turn when it is reached; empty when it is not."""
        if 0 < self.tokens <= spent.tokens:
            unit, used, limit = "tokens", f"{spent.tokens:,} tokens", f"{self.tokens:,}"
        elif 0 < self.usd <= spent.cost_usd:
            unit, used, limit = "usd", f"${spent.cost_usd:.2f}", f"${self.usd:.2f}"
        else:
            return ""
        when = " today" if self.name == "day" else ""
        key = f"limits.{self.name}_{unit}"
        return f"I stopped: {self.who} has used {used}{when}, and the operator's limit is {limit} (`{key}`)."


def caps(limits: Limits, of_session: dict[str, str], platform: str) -> list[Cap]:
    """Return those that are set.

    Args:
        of_session: whose usage counts for the session; empty for none.
        platform: the front door of the session.
    """
    if not any(limits):
        return []
    job = platform == JOB and bool(of_session)
    found = [
        Cap("session", "this session", limits.session_tokens, limits.session_usd, of_session),
        Cap("job", "this job", limits.job_tokens * job, limits.job_usd * job, of_session),
        Cap("day", "the agent", limits.day_tokens, limits.day_usd, {"day": date.today().isoformat()}),
    ]
    return [cap for cap in found if cap.where and (cap.tokens or cap.usd)]


async def reached(talk: Conversation, turn_id: str) -> str:
    """Return the sentence that ends the turn when a cap is reached; empty when none is."""
    of_session = {"session_id": talk.account} if talk.account else {"turn_id": turn_id}
    for cap in caps(talk.agent.settings.limits, of_session, talk.platform):
        if sentence := cap.sentence(await talk.agent.transcript("spent", **cap.where)):
            return sentence
    return ""


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


class CompressionSettings(NamedTuple):
    """The settings under `compression`."""

    enabled: bool = True
    threshold: float = 0.5
    """Part of the context at which it starts."""
    target_ratio: float = 0.2
    """Part of the context that the messages may take that stay as they are at the end."""
    protect_first_n: int = 3
    protect_last_n: int = 20
