"""The delay before another attempt."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """A delay that grows with each failure, a little different each time: many callers do not come back at once."""

    first_s: float = 1.0
    longest_s: float = 600.0
    factor: float = 2.0
    jitter: float = 0.25
    """Largest share by which a delay is longer or shorter."""

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1."""
        delay_s = min(self.first_s * self.factor ** min(failures - 1, 30), self.longest_s)
        return float(delay_s * random.uniform(1 - self.jitter, 1 + self.jitter))
