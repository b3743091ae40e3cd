"""What an answer cost, where that is known: the embedded model costs nothing, one provider says it itself.

There is no table of prices: such tables are wrong soon, and a wrong price is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_agent.models.providers import LOCAL

__all__ = ["costs_nothing", "told_cost_usd"]

TELLS_ITS_COST = "openrouter"
"""Its `cost` is in credits, which are dollars: https://openrouter.ai/docs/use-cases/usage-accounting"""


def costs_nothing(provider: str) -> bool:
    """Say whether a provider's model runs on this machine."""
    return provider == LOCAL


def told_cost_usd(provider: str, details: Mapping[str, Any]) -> float | None:
    """Return what an answer cost in dollars; None when nobody said so.

    Args:
        details: the provider's `usage` object.
    """
    if costs_nothing(provider):
        return 0.0
    cost = details.get("cost") if provider == TELLS_ITS_COST else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None
