"""Maintenance of a daemon: limits of memory, update checks of plugins, daily removal of old data.

Above `gateway.memory_soft_mb` the daemon releases the memory of idle sessions; above `gateway.memory_hard_mb` it
restarts. Once a day it removes sessions and files that were not used for long, and checkpoints over their limits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from hermes_agent.adapters.adapter_state import FOLDER as SENT
from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import UserError
from hermes_agent.core.tasks import end_task
from hermes_agent.policy.taint_store import SCHEMA as FOREIGN_TEXT
from hermes_agent.sessions import SCHEMA as SESSIONS
from hermes_agent.store.database import expire_rows
from hermes_agent.system.process_tree import resident_bytes

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 30.0
RELIEF_INTERVAL_S = 300.0
"""Shortest time between two releases of memory; what remains after a release is in use."""
GRACE_PERIOD_S = 600.0
"""A younger process does not restart: the next one would use as much memory."""
MB = 1024 * 1024


class Watch(ABC):
    """A component of the daemon with one task, which works at intervals until the daemon drains."""

    NAME: ClassVar[str]
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._watch(), name=self.NAME)

    async def drain(self, timeout_s: float) -> None:
        """Stop the task; a thread that works for it finishes its step."""
        await end_task(self._task)

    @abstractmethod
    async def _watch(self) -> None:
        """Work at intervals."""


class MemoryWatch(Watch):
    """A component of the daemon that checks the memory twice a minute.

    Args:
        settings: returns the settings in effect.
        release: releases the memory of idle sessions.
        restart: ends this process and starts the next one.
        run: runs a sync call in a worker.
        used: returns the resident memory in bytes.
        sleep: waits for some seconds.
        clock: returns a time in seconds that never goes back.
    """

    NAME = "memory"

    def __init__(
        self,
        settings: Callable[[], Settings],
        release: Callable[[], Awaitable[None]],
        restart: Callable[[], None],
        run: Callable[[Callable[[], None]], Awaitable[None]],
        *,
        used: Callable[[], int] = resident_bytes,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._release, self._restart, self._run = settings, release, restart, run
        self._used, self._sleep, self._clock = used, sleep, clock
        self._began = clock()
        self._released_at: float | None = None

    async def start(self) -> None:
        """Start the checks if the config sets a limit."""
        limits = self._settings().gateway
        if limits.memory_soft_mb or limits.memory_hard_mb:
            await super().start()

    async def _watch(self) -> None:
        while True:
            await self._sleep(CHECK_INTERVAL_S)
            try:
                if await self._check_memory():
                    return
            except Exception:
                logger.exception("memory check failed, next one in %g s", CHECK_INTERVAL_S)

    async def _check_memory(self) -> bool:
        """Enforce the limits and return whether the process restarts."""
        used, now = self._used() / MB, self._clock()
        limits = self._settings().gateway
        soft, hard = limits.memory_soft_mb, limits.memory_hard_mb
        over = [limit for limit in (soft, hard) if limit and used > limit]
        if over and (self._released_at is None or now - self._released_at > RELIEF_INTERVAL_S):
            self._released_at = now
            logger.warning("memory: idle sessions are released: %.0f MB used, limit %d MB", used, over[0])
            await self._release()
            await self._run(_release_memory)
            used = self._used() / MB
        if not hard or used <= hard:
            return False
        if now - self._began < GRACE_PERIOD_S:
            logger.error(
                "memory: no restart so soon after the start: %.0f MB used; `gateway.memory_hard_mb` is too low: %d",
                used,
                hard,
            )
            return False
        logger.error("memory: restart: %.0f MB used, `gateway.memory_hard_mb` is %d", used, hard)
        self._restart()
        return True


def _release_memory() -> None:
    """Collect garbage, and return free memory to the system if the C library can."""
    gc.collect()
    import ctypes  # only a daemon above its limit needs it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


FIRST_UPDATE_CHECK_S = 300.0
"""Earliest look after the start of the daemon."""
LONGEST_SLEEP_S = 3600.0
"""After it the setting is read again."""


class UpdateWatch(Watch):
    """A component of the daemon that looks for updates of plugins in the background.

    Args:
        look: looks up the updates and stores the time and the results; blocks.
        last: returns the time of the last look, in seconds since the epoch.
        settings: returns the settings in effect.
        run: runs a sync call in a worker.
        sleep: waits for some seconds.
        clock: returns seconds since the epoch.
    """

    NAME = "plugin updates"

    def __init__(
        self,
        look: Callable[[], None],
        last: Callable[[], float],
        settings: Callable[[], Settings],
        run: Callable[[Callable[[], None]], Awaitable[None]],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._look, self._last, self._settings, self._run = look, last, settings, run
        self._sleep, self._clock = sleep, clock

    async def _watch(self) -> None:
        began = self._clock()
        while True:
            hours = self._settings().plugins.auto_update_check_hours
            due = max(began + FIRST_UPDATE_CHECK_S, self._last() + hours * 3600)
            if hours and self._clock() >= due:
                await self._run(self._look)
            left = due - self._clock() if hours else LONGEST_SLEEP_S
            await self._sleep(max(1.0, min(left, LONGEST_SLEEP_S)))


EXPIRING = (SESSIONS, FOREIGN_TEXT)
"""Tables with rows that expire, in this order."""
FOLDERS = ("audio", "documents", "images", "people", "results", "videos")
"""Folders of `HERMES_HOME/cache` with files of messages, generated files, and long results of tools."""
FIRST_DELAY_S, DAY_S = 300.0, 86400.0
"""Delay of the first run after the start, and the interval of the others."""


SENT_DAYS = 30.0
"""Copies of sent files are kept for so many days, since their delivery may still be retried."""


def expire_files(home: Path, days: float) -> int:
    """Remove files of `FOLDERS` that are older than `days`, and return the number of removed files.

    Args:
        days: 0 keeps the files of `FOLDERS`; copies of sent files expire after `SENT_DAYS`.
    """
    removed, before = 0, time.time() - days * 86400
    for name in FOLDERS if days else ():
        removed += _remove_older(home / "cache" / name, before)
    sent = home / "cache" / SENT
    removed += _remove_older(sent, time.time() - SENT_DAYS * 86400)
    for directory in sent.iterdir() if sent.is_dir() else ():
        with suppress(OSError):  # a directory with a file stays
            directory.rmdir()
    return removed


def _remove_older(folder: Path, before: float) -> int:
    count = 0
    for directory, _, names in os.walk(folder):
        for path in (Path(directory, name) for name in names):
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()
                    count += 1
    return count


class DailyMaintenance(Watch):
    """A component of the daemon that removes old data, and fetches prices, once a day.

    Args:
        path: the database `state.db`; files of its home expire, too.
        settings: returns the settings in effect.
        run: runs a sync call in a worker.
        features: does the daily work of the features and returns the number of removed items.
        sleep: waits for some seconds.
    """

    NAME = "upkeep"

    def __init__(
        self,
        path: Path,
        settings: Callable[[], Settings],
        run: Callable[..., Awaitable[int]],
        features: Callable[[], int] = lambda: 0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._settings = settings
        self._run = run
        self._features = features
        self._sleep = sleep

    async def once(self) -> int:
        """Do the work of a day, and return the number of removed rows and files."""
        limits = self._settings().sessions
        days, size = limits.retention_days, limits.max_size_mb
        files = await self._run(expire_files, self._path.parent, days)
        rows = await self._run(expire_rows, self._path, EXPIRING, days, size)
        return files + rows + await self._run(self._features)

    async def _watch(self) -> None:
        await self._sleep(FIRST_DELAY_S)
        while True:
            try:
                if removed := await self.once():
                    logger.info("maintenance: expired rows and files removed: %d", removed)
            except (UserError, sqlite3.Error, OSError) as exc:
                logger.warning("maintenance: old sessions and checkpoints are kept: %s", exc)
            await self._sleep(DAY_S)
