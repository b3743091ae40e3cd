"""Ids of sessions, turns and calls: sortable by time, readable in a log."""

from __future__ import annotations

import os
import random
import secrets
import time

__all__ = ["new_id", "new_session_id"]


_random = random.Random()
"""An id is no secret, and asking the kernel for each has its price."""
os.register_at_fork(after_in_child=_random.seed)


def new_session_id(now: float | None = None) -> str:
    """Return `YYYYMMDD_HHMMSS_xxxxxx` (UTC), the form that upstream's sessions have."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(time.time() if now is None else now))
    return f"{stamp}_{secrets.token_hex(3)}"


def new_id(prefix: str) -> str:
    """Return `prefix_` and 16 hex digits of randomness."""
    return f"{prefix}_{_random.getrandbits(64):016x}"
