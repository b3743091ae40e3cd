"""Hard caps of the operator: what a session, a scheduled job and a day may use. They end a turn with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.sessions import Spent

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["Cap", "Limits", "caps", "limits_of", "reached"]

JOB = "cron"
"""The front door of scheduled jobs; a run has a session of its own."""


@dataclass(frozen=True, slots=True)
class Limits:
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
        when = " today" if self.name == "day" else ""
        if 0 < self.tokens <= spent.tokens:
            return _sentence(
                self.who, f"{spent.tokens:,} tokens{when}", f"{self.tokens:,}", f"limits.{self.name}_tokens"
            )
        if 0 < self.usd <= spent.cost_usd:
            return _sentence(self.who, f"${spent.cost_usd:.2f}{when}", f"${self.usd:.2f}", f"limits.{self.name}_usd")
        return ""


def caps(limits: Limits, of_session: dict[str, str], platform: str) -> list[Cap]:
    """Return those that are set.

    Args:
        of_session: whose usage counts for the session; empty for none.
        platform: the front door of the session.
    """
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


def _sentence(who: str, used: str, limit: str, key: str) -> str:
    return f"I stopped: {who} has used {used}, and the operator's limit is {limit} (`{key}`)."
