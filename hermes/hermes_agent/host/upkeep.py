"""Once a day the daemon removes sessions and files that nobody used for long, and checkpoints over their limits."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes_agent.contracts.platform.sent_files import FOLDER as SENT
from hermes_agent.core.errors import UserError
from hermes_agent.policy.foreign.keeping import SCHEMA as FOREIGN_TEXT
from hermes_agent.sessions import SCHEMA as SESSIONS
from hermes_agent.store.upkeep import expire_rows

__all__ = ["EXPIRING", "DailyMaintenance", "expire_files"]

logger = logging.getLogger(__name__)

EXPIRING = (SESSIONS, FOREIGN_TEXT)
"""Whose rows go with their age, in this order."""
FOLDERS = ("audio", "documents", "images", "people", "results", "videos")
"""Below `HERMES_HOME/cache`: what came with messages or was made for them, and long results of tools."""
FIRST_DELAY_S, DAY_S = 300.0, 86400.0
"""When after the start, and how often."""


SENT_DAYS = 30.0
"""Copies of files that were sent into chats are kept so long, for what could not be delivered yet."""


def expire_files(home: Path, days: float) -> int:
    """Remove what is in `FOLDERS` and was written so many days ago, 0 keeps all; return how many files went."""
    removed, before = 0, time.time() - days * 86400
    for name in FOLDERS if days else ():
        removed += _removed(home / "cache" / name, before)
    sent = home / "cache" / SENT
    removed += _removed(sent, time.time() - SENT_DAYS * 86400)
    for place in sent.iterdir() if sent.is_dir() else ():
        with suppress(OSError):  # its file is still there
            place.rmdir()
    return removed


def _removed(folder: Path, before: float) -> int:
    count = 0
    for place, _, names in os.walk(folder):
        for path in (Path(place, one) for one in names):
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()
                    count += 1
    return count


class DailyMaintenance:
    """Lives beside the daemon's server.

    Args:
        get: returns the effective value of a dotted key of the config.
        run: runs a sync call away from the loop.
        prune: removes checkpoints.
    """

    def __init__(
        self,
        path: Path,
        get: Callable[[str], Any],
        run: Callable[..., Awaitable[int]],
        prune: Callable[[], int] = lambda: 0,
    ) -> None:
        self._path = path
        self._get = get
        self._run = run
        self._prune = prune
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to wait for the first time."""
        self._task = asyncio.create_task(self._daily(), name="upkeep")

    async def drain(self, timeout_s: float) -> None:
        """End; a removal that runs is finished by its thread."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def once(self) -> int:
        """Remove what is too old now; return how many rows and files went."""
        days, size = float(self._get("sessions.retention_days")), float(self._get("sessions.max_size_mb"))
        files = await self._run(expire_files, self._path.parent, days)
        return files + await self._run(expire_rows, self._path, EXPIRING, days, size)

    async def _daily(self) -> None:
        await asyncio.sleep(FIRST_DELAY_S)
        while True:
            try:
                if removed := await self.once():
                    logger.info("%d rows and files that nobody used for long were removed", removed)
                await self._run(self._prune)
            except (UserError, sqlite3.Error, OSError) as exc:
                logger.warning("old sessions and checkpoints stay: %s", exc)
            await asyncio.sleep(DAY_S)
