"""What an answer cost, where it is known: the embedded model is free, some say it with the answer, else it is counted
with the prices of the provider's list, or of the table that comes with the release (`models.infos`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.models.providers import LOCAL
from hermes_agent.models.request import ModelAnswer

__all__ = ["cost_usd", "costs_nothing", "told_cost_usd"]

TELLS_ITS_COST = "openrouter"
"""Its `cost` is in credits, which are dollars: https://openrouter.ai/docs/use-cases/usage-accounting"""


def costs_nothing(provider: str) -> bool:
    """Say whether a provider's model runs on this machine."""
    return provider == LOCAL


def cost_usd(answer: ModelAnswer, provider: str) -> float | None:
    """Return what an answer cost in dollars; None when it is not known.

    Args:
        provider: who was asked, where the answer does not say who answered.
    """
    told = told_cost_usd(answer.provider or provider, answer.usage.details)
    return answer.listed_cost_usd if told is None else told


def told_cost_usd(provider: str, details: Mapping[str, Any]) -> float | None:
    """Return what an answer cost in dollars; None when nobody said so.

    Args:
        details: the provider's `usage` object.
    """
    if costs_nothing(provider):
        return 0.0
    cost = details.get("cost") if provider == TELLS_ITS_COST else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
