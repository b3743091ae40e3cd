"""Who stands in for a model that does not answer: `fallback_providers`, and `auxiliary.<task>.fallback_chain`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.models.selection import Selection

__all__ = ["selections"]

logger = logging.getLogger(__name__)


def selections(chain: Any, select: Callable[[Mapping[str, Any]], Selection]) -> list[Selection]:
    """Return who stands in, in order; an entry that cannot be used is left out, with a warning.

    Args:
        chain: names of providers, or mappings with `provider`, `model`, `base_url`, `api_key`, `key_env`.
        select: chooses by a block like the config's `model`.
    """
    found: list[Selection] = []
    for entry in chain if isinstance(chain, Iterable) and not isinstance(chain, str | Mapping) else ():
        given: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"provider": entry}
        block = {**given, "default": given.get("model") or given.get("default") or ""}
        try:
            found.append(select(block))
        except UserError as exc:
            logger.warning("the fallback %s cannot be used: %s", given.get("provider") or "without a provider", exc)
    return found
