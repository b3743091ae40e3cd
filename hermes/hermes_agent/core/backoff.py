"""The delay before another attempt."""

from __future__ import annotations

import random

from hermes_agent.core.lazy_types import LazyNamedTuple


class Backoff(LazyNamedTuple):
    """A delay that grows with each failure and varies randomly.

    The variation keeps many callers from retrying at the same moment.
    """

    first_s: float = 1.0
    longest_s: float = 600.0
    factor: float = 2.0
    jitter: float = 0.25
    """Largest share by which a delay is longer or shorter."""

    def after(self, failures: int) -> float:
        """Return the delay in seconds after this number of consecutive failures (1 or more)."""
        delay_s = min(self.first_s * self.factor ** min(failures - 1, 30), self.longest_s)
        return float(delay_s * random.uniform(1 - self.jitter, 1 + self.jitter))
