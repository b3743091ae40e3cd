"""The tables of inbox and outbox."""

from hermes_agent.store import Schema

__all__ = ["SCHEMA"]

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
        # What the release before was sending at its end may have arrived: it did not note when the sending began.
        "UPDATE outbox SET uncertain = 1 WHERE state = 'sending';",
        "ALTER TABLE delivery_owner ADD COLUMN boot TEXT NOT NULL DEFAULT '';",
        """
        ALTER TABLE inbox ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
        CREATE INDEX inbox_fingerprint ON inbox (platform, chat, fingerprint, received_at) WHERE fingerprint <> '';
        """,
    ),
)
"""States. inbox: pending, claimed, done, failed. outbox: pending, sending, parked, sent, failed. The last two of each
are finished, and the only ones with `finished_at`.
outbox.repeated: 2 means that a repeat is about to begin, 1 that it did."""
