"""Usage of models, and its cost: by day, session, turn, cause, plugin and model."""

from __future__ import annotations

import sqlite3
import threading
from datetime import date, timedelta
from pathlib import Path

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Usage
from hermes_agent.sessions.principals import LOCAL
from hermes_agent.store import Database, Schema

TURN = "turn"
"""The cause of a model request that a user's message caused."""

USAGE = Schema(
    "usage",
    (
        """
        CREATE TABLE usage (
            day TEXT NOT NULL,
            session_id TEXT NOT NULL,
            turn_id TEXT NOT NULL,
            cause TEXT NOT NULL,
            plugin TEXT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            source TEXT NOT NULL,
            principal TEXT NOT NULL,
            requests INTEGER NOT NULL,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            cost_usd REAL NOT NULL,
            unpriced INTEGER NOT NULL,
            seconds REAL NOT NULL,
            PRIMARY KEY (day, session_id, turn_id, cause, plugin, provider, model)
        ) WITHOUT ROWID;
        CREATE INDEX usage_of_session ON usage (session_id);
        """,
    ),
)

_SUMS = (
    "coalesce(sum(requests), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),"
    " coalesce(sum(cached_tokens), 0), coalesce(sum(cost_usd), 0), coalesce(sum(unpriced), 0),"
    " coalesce(sum(seconds), 0), coalesce(sum((input_tokens + output_tokens) * 1.0 * unpriced / requests), 0)"
)


@lazy_dataclass(frozen=True, slots=True)
class UsageRecord:
    """The usage of one model request."""

    usage: Usage
    provider: str
    model: str
    cause: str = TURN
    """The cause: `turn`, an auxiliary task (`title`, `compression`, …), or `plugin`."""
    plugin: str = ""
    """The plugin that made the request, or "" for the agent."""
    session_id: str = ""
    """The session that it is charged to, or ""."""
    turn_id: str = ""
    source: str = ""
    """The platform of the session."""
    principal: str = LOCAL
    cost_usd: float | None = None
    """None if the price is unknown."""
    seconds: float = 0.0

    def write(self, db: sqlite3.Connection) -> None:
        """Add the record, inside a transaction."""
        usage = self.usage
        db.execute(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (day, session_id, turn_id, cause, plugin, provider, model) DO UPDATE SET"
            " requests = requests + 1, input_tokens = input_tokens + excluded.input_tokens,"
            " output_tokens = output_tokens + excluded.output_tokens,"
            " cached_tokens = cached_tokens + excluded.cached_tokens, cost_usd = cost_usd + excluded.cost_usd,"
            " unpriced = unpriced + excluded.unpriced, seconds = seconds + excluded.seconds",
            (
                *(date.today().isoformat(), self.session_id, self.turn_id, self.cause, self.plugin),
                *(self.provider, self.model, self.source, self.principal),
                *(usage.input_tokens, usage.output_tokens, usage.cached_tokens),
                *(self.cost_usd or 0.0, self.cost_usd is None, self.seconds),
            ),
        )


class UsageTotals(LazyNamedTuple):
    """A sum over model requests."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    """Cost of the requests with a known price."""
    unpriced: int = 0
    """Requests with an unknown price."""
    seconds: float = 0.0
    """Time of the requests together."""
    unpriced_tokens: float = 0.0
    """Tokens of the requests with an unknown price, input and output together."""

    def cost_at(self, price: float) -> float:
        """Return the cost in dollars. `price`: dollars for a million tokens of requests with an unknown price."""
        return self.cost_usd + self.unpriced_tokens * price * 1e-6

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def usage_totals(db: Database, *, session_id: str = "", turn_id: str = "", day: str = "") -> UsageTotals:
    """Return the usage of a session, a turn or a day; without any, of everything."""
    conditions = [
        (f"{column} = ?", value)
        for column, value in (("session_id", session_id), ("turn_id", turn_id), ("day", day))
        if value
    ]
    where = " AND ".join(c for c, _ in conditions) or "1"
    (row,) = db.read(f"SELECT {_SUMS} FROM usage WHERE {where}", [v for _, v in conditions])
    return UsageTotals(*row)


class UsageLedger:
    """The store of model requests that are not part of a turn's own steps. Safe for threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None
        self._lock = threading.Lock()

    def _db(self) -> Database:
        if self._database is None:
            self._database = Database(self._path, (USAGE,))
        return self._database

    def record(self, note: UsageRecord) -> None:
        """Add one request, in a worker: it writes a file."""
        with self._lock, self._db().write() as db:
            note.write(db)

    def totals(self, *, session_id: str = "", turn_id: str = "", day: str = "") -> UsageTotals:
        """Return the usage of a session, a turn or a day (`2026-11-22`); without any, of everything."""
        with self._lock:
            return usage_totals(self._db(), session_id=session_id, turn_id=turn_id, day=day)

    def totals_by(
        self, column: str, *, days: int | None = None, source: str = "", session_id: str = ""
    ) -> dict[str, UsageTotals]:
        """Return the sums by a column (`day`, `model`, `source`, `cause`, `plugin`, …), most tokens first.

        Args:
            days: only this number of days up to today; None takes all.
            source: only sessions of this platform.

        Raises:
            ValueError: there is no such column.
        """
        if column not in ("day", "model", "source", "cause", "plugin", "principal", "session_id"):
            raise ValueError(f"usage has no column {column!r}")
        since = "" if days is None else (date.today() - timedelta(days=days - 1)).isoformat()
        with self._lock:
            rows = self._db().read(
                f"SELECT {column}, {_SUMS} FROM usage WHERE day >= ? AND (? = '' OR source = ?)"
                " AND (? = '' OR session_id = ?) GROUP BY 1 ORDER BY sum(input_tokens + output_tokens) DESC, 1",
                (since, source, source, session_id, session_id),
            )
        return {str(row[0]): UsageTotals(*row[1:]) for row in rows}

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None
