"""Several keys of one provider: in which order they are used, by `credential_pool_strategies`.

The first one that does not rest is used (`models.chosen.Health`); a key that its provider does not accept, that has no
credit or is used too often rests, and the next one takes its place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

__all__ = ["STRATEGIES", "Key", "KeyPools"]

Key = tuple[str, str]
"""Name for messages (a variable, an entry of auth.json), and the key."""

STRATEGIES = ("fill_first", "round_robin", "random", "least_used")


class KeyPools:
    """Whose turn it is, by provider; lives as long as the process."""

    def __init__(self) -> None:
        self._used: Counter[Key] = Counter()

    def ordered(self, provider: str, keys: Sequence[Key], strategy: str) -> list[Key]:
        """Return the keys, the one to use first; a conversation keeps to it, for the provider's prompt cache.

        Args:
            strategy: one of `STRATEGIES`: the first as long as it works; in turns; by lot; the least used one first.
        """
        if strategy == "random":
            return random.sample(keys, len(keys))
        if strategy not in ("round_robin", "least_used"):
            return list(keys)
        # in turns, each one is the least used one when it is its turn
        found = sorted(keys, key=lambda key: self._used[provider, key[1]])
        self._used[provider, found[0][1]] += 1
        return found
