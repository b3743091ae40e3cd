"""The tables of inbox and outbox, and the owner epoch.

The daemon that started last owns the rows, and within it the newest claim of a row. There is no lease and no clock: a
daemon that starts raises the epoch, and each later step of a previous daemon is rejected.
"""

from __future__ import annotations

import sqlite3

from hermes_agent.delivery.messages import StaleClaim
from hermes_agent.store import Schema

SCHEMA = Schema(
    "delivery",
    (
        """
        CREATE TABLE delivery_owner (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            epoch INTEGER NOT NULL,
            token INTEGER NOT NULL
        );
        INSERT INTO delivery_owner VALUES (1, 0, 0);
        CREATE TABLE inbox (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            platform TEXT NOT NULL,
            chat TEXT NOT NULL,
            message_id TEXT,
            conversation TEXT NOT NULL,
            sender TEXT NOT NULL,
            payload TEXT NOT NULL,
            notes TEXT NOT NULL DEFAULT '{}',
            state TEXT NOT NULL DEFAULT 'pending',
            attempt INTEGER NOT NULL DEFAULT 0,
            errors INTEGER NOT NULL DEFAULT 0,
            token INTEGER NOT NULL DEFAULT 0,
            not_before REAL NOT NULL DEFAULT 0,
            received_at REAL NOT NULL,
            finished_at REAL,
            reason TEXT NOT NULL DEFAULT '',
            UNIQUE (platform, chat, message_id)
        );
        CREATE INDEX inbox_open ON inbox (platform, conversation, id) WHERE finished_at IS NULL;
        CREATE INDEX inbox_finished ON inbox (finished_at) WHERE finished_at IS NOT NULL;
        CREATE TABLE outbox (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            reply TEXT NOT NULL,
            part INTEGER NOT NULL,
            parts INTEGER NOT NULL,
            platform TEXT NOT NULL,
            chat TEXT NOT NULL,
            thread TEXT NOT NULL,
            content TEXT NOT NULL,
            reply_to TEXT NOT NULL,
            state TEXT NOT NULL DEFAULT 'pending',
            attempt INTEGER NOT NULL DEFAULT 0,
            uncertain INTEGER NOT NULL DEFAULT 0,
            repeated INTEGER NOT NULL DEFAULT 0,
            token INTEGER NOT NULL DEFAULT 0,
            not_before REAL NOT NULL DEFAULT 0,
            created_at REAL NOT NULL,
            finished_at REAL,
            message_id TEXT NOT NULL DEFAULT '',
            reason TEXT NOT NULL DEFAULT '',
            UNIQUE (reply, part)
        );
        CREATE INDEX outbox_open ON outbox (platform, chat, thread, id) WHERE finished_at IS NULL;
        CREATE INDEX outbox_finished ON outbox (finished_at) WHERE finished_at IS NOT NULL;
        CREATE TABLE parked_targets (
            platform TEXT NOT NULL,
            chat TEXT NOT NULL,
            thread TEXT NOT NULL,
            reason TEXT NOT NULL,
            since REAL NOT NULL,
            PRIMARY KEY (platform, chat, thread)
        );
        """,
        # what the previous release was sending at its end may have arrived: it did not record the start of sending
        "UPDATE outbox SET uncertain = 1 WHERE state = 'sending';",
        "ALTER TABLE delivery_owner ADD COLUMN boot TEXT NOT NULL DEFAULT '';",
        """
        ALTER TABLE inbox ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
        CREATE INDEX inbox_fingerprint ON inbox (platform, chat, fingerprint, received_at) WHERE fingerprint <> '';
        """,
    ),
)
"""States of the inbox: pending, claimed, done, failed; of the outbox: pending, sending, parked, sent, failed.

The last two of each are final, and the only ones with `finished_at`. In `outbox.repeated` 2 means that a repeat is
about to start, 1 that it started."""


LONGEST_WAIT_S = 3600.0
"""Longest wait in seconds. A later time was stored before the clock was set back, and counts as due."""


class OwnerEpoch:
    """The owner epoch of one daemon."""

    def __init__(self) -> None:
        self._epoch: int | None = None

    def acquire(self, db: sqlite3.Connection, boot: str) -> None:
        """Become the owner. Rows that a previous owner had claimed wait again.

        Args:
            boot: id of this start of the machine. After another start, the record that a repeat started may be lost;
                the record that it was about to start is not.
        """
        previous = db.execute("SELECT boot FROM delivery_owner").fetchone()[0]
        db.execute("UPDATE delivery_owner SET epoch = epoch + 1, boot = ?", (boot,))
        self._epoch = db.execute("SELECT epoch FROM delivery_owner").fetchone()[0]
        db.execute(
            "UPDATE outbox SET repeated = ? WHERE finished_at IS NULL AND repeated = 2", (not boot or boot != previous,)
        )
        db.execute("UPDATE inbox SET state = 'pending' WHERE finished_at IS NULL AND state = 'claimed'")
        db.execute("UPDATE outbox SET state = 'pending' WHERE finished_at IS NULL AND state = 'sending'")

    def check(self, db: sqlite3.Connection) -> None:
        """Raise `StaleClaim` if another daemon is the owner."""
        if db.execute("SELECT epoch FROM delivery_owner").fetchone()[0] != self._epoch:
            raise StaleClaim("another daemon has taken over the inbox and the outbox of this home")

    def new_token(self, db: sqlite3.Connection) -> int:
        """Return the number of a new claim, higher than every previous one.

        Raises:
            StaleClaim: another daemon is the owner.
        """
        self.check(db)
        db.execute("UPDATE delivery_owner SET token = token + 1")
        number: int = db.execute("SELECT token FROM delivery_owner").fetchone()[0]
        return number


def seconds_until(not_before: float, now: float) -> float:
    """Return the seconds until a row is due, or 0."""
    left = not_before - now
    return left if 0 < left <= LONGEST_WAIT_S else 0.0
