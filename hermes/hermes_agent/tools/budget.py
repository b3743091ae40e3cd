"""How many steps a turn may still make; a plugin that calls tools in it spends from the same budget."""

from __future__ import annotations

import threading

__all__ = ["StepBudget"]


class StepBudget:
    """Counts down. Safe for threads."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Spend one step; false when none is left."""
        with self._lock:
            self._left -= 1
            return self._left >= 0
