"""Hard caps of the operator: what a session, a scheduled job and a day may use. They end a turn with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from hermes_agent.sessions import Spent

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation

__all__ = ["Limits", "reached"]

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


async def reached(talk: Conversation, turn_id: str) -> str:
    """Return the sentence that ends the turn when a cap is reached; empty when none is."""
    limits = talk.agent.settings.limits
    if limits == Limits():
        return ""
    is_job = talk.platform == JOB
    of_session = {"session_id": talk.account} if talk.account else {"turn_id": turn_id}
    checks = [
        ("session", "This session", limits.session_tokens, limits.session_usd, of_session),
        ("job", "This job", limits.job_tokens * is_job, limits.job_usd * is_job, of_session),
        ("day", "The agent", limits.day_tokens, limits.day_usd, {"day": date.today().isoformat()}),
    ]
    for name, who, tokens, usd, where in checks:
        if not tokens and not usd:
            continue
        spent: Spent = await talk.agent.transcript("spent", **where)
        when = " today" if name == "day" else ""
        if 0 < tokens <= spent.tokens:
            return _sentence(who, f"{spent.tokens:,} tokens{when}", f"{tokens:,}", f"limits.{name}_tokens")
        if 0 < usd <= spent.cost_usd:
            return _sentence(who, f"${spent.cost_usd:.2f}{when}", f"${usd:.2f}", f"limits.{name}_usd")
    return ""


def _sentence(who: str, used: str, limit: str, key: str) -> str:
    return f"I stopped: {who[0].lower()}{who[1:]} has used {used}, and the operator's limit is {limit} (`{key}`)."
