"""Several keys of one provider: in which order they are used, by `credential_pool_strategies`.

The first one that does not rest is used (`models.chosen.Health`); a key that its provider does not accept, that has no
credit or is used too often rests, and the next one takes its place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hermes_agent.models.endpoint import Endpoint

__all__ = ["KeyPools"]


class KeyPools:
    """Whose turn it is; lives as long as the process."""

    def __init__(self) -> None:
        self._used: Counter[Endpoint] = Counter()

    def ordered(self, keys: Sequence[Endpoint], strategy: str) -> list[Endpoint]:
        """Return a provider's endpoint with each of its keys, the one to use first at the front.

        A conversation keeps to it, for the provider's prompt cache.

        Args:
            strategy: `fill_first` (the first as long as it works), `round_robin`, `random`, `least_used`.
        """
        if strategy == "random":
            return random.sample(keys, len(keys))
        if strategy not in ("round_robin", "least_used"):
            return list(keys)
        # in turns, each one is the least used one when it is its turn
        found = sorted(keys, key=self._used.__getitem__)
        self._used[found[0]] += 1
        return found
