"""Who may work on what is stored: the daemon that came last, and within it who holds the newest claim.

No lease and no clock: a daemon that starts raises the epoch, and everything that a former one still tries is refused.
"""

from __future__ import annotations

import sqlite3

from hermes_agent.delivery.values import StaleClaim

__all__ = ["LONGEST_WAIT_S", "OwnerEpoch", "seconds_until"]

LONGEST_WAIT_S = 3600.0
"""No wait is longer. A time further ahead than that was written before the clock was set back, and counts as now."""


class OwnerEpoch:
    """The epoch of one daemon."""

    def __init__(self) -> None:
        self._epoch: int | None = None

    def acquire(self, db: sqlite3.Connection, boot: str) -> None:
        """Make this the owner. What a former one had claimed waits again.

        Args:
            boot: id of this start of the machine. After another one, that a repeat began may have been forgotten; that
                it was about to is not.
        """
        former = db.execute("SELECT boot FROM delivery_owner").fetchone()[0]
        db.execute("UPDATE delivery_owner SET epoch = epoch + 1, boot = ?", (boot,))
        self._epoch = db.execute("SELECT epoch FROM delivery_owner").fetchone()[0]
        db.execute(
            "UPDATE outbox SET repeated = ? WHERE finished_at IS NULL AND repeated = 2", (not boot or boot != former,)
        )
        db.execute("UPDATE inbox SET state = 'pending' WHERE finished_at IS NULL AND state = 'claimed'")
        db.execute("UPDATE outbox SET state = 'pending' WHERE finished_at IS NULL AND state = 'sending'")

    def check(self, db: sqlite3.Connection) -> None:
        """Raise `StaleClaim` unless this is the owner."""
        if db.execute("SELECT epoch FROM delivery_owner").fetchone()[0] != self._epoch:
            raise StaleClaim("another daemon has taken over the inbox and the outbox of this home")

    def new_token(self, db: sqlite3.Connection) -> int:
        """Return the number of a new claim, higher than every former one.

        Raises:
            StaleClaim: this is not the owner.
        """
        self.check(db)
        db.execute("UPDATE delivery_owner SET token = token + 1")
        number: int = db.execute("SELECT token FROM delivery_owner").fetchone()[0]
        return number


def seconds_until(not_before: float, now: float) -> float:
    """Return how many seconds something still waits; 0 when it is due."""
    left = not_before - now
    return left if 0 < left <= LONGEST_WAIT_S else 0.0
