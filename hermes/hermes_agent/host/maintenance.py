"""How much memory the daemon uses: beyond a first limit idle sessions are let go, beyond a second it restarts.

`gateway.memory_soft_mb` and `gateway.memory_hard_mb`; looked at twice a minute.

Once a day the daemon removes sessions and files that nobody used for long, and checkpoints over their limits.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes_agent.adapters.adapter_state import FOLDER as SENT
from hermes_agent.core.errors import UserError
from hermes_agent.policy.taint_store import SCHEMA as FOREIGN_TEXT
from hermes_agent.sessions import SCHEMA as SESSIONS
from hermes_agent.store.database import expire_rows

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 30.0
RELIEF_INTERVAL_S = 300.0
"""How long nothing more is let go after the first limit was met: what is left then is in use."""
GRACE_PERIOD_S = 600.0
"""A process this young does not restart: the next one would use as much."""
MB = 1024 * 1024


def resident_bytes() -> int:
    """Return the memory of this process that is not swapped out; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # no Linux, or no /proc
        return 0


class MemoryWatch:
    """Lives beside the daemon's server.

    Args:
        get: returns the effective value of a dotted key of the config.
        relieve: lets go of what idle sessions keep.
        restart: begins the end of this process and the next one.
        run: runs a sync call away from the loop.
        used: returns bytes.
        sleep, clock: those of the loop and of the machine.
    """

    def __init__(
        self,
        get: Callable[[str], Any],
        relieve: Callable[[], Awaitable[None]],
        restart: Callable[[], None],
        run: Callable[[Callable[[], None]], Awaitable[None]],
        *,
        used: Callable[[], int] = resident_bytes,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get, self._relieve, self._restart, self._run = get, relieve, restart, run
        self._used, self._sleep, self._clock = used, sleep, clock
        self._began = clock()
        self._relieved: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look, when there is a limit."""
        if self._get("gateway.memory_soft_mb") or self._get("gateway.memory_hard_mb"):
            self._task = asyncio.create_task(self._watch(), name="memory")

    async def drain(self, timeout_s: float) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while True:
            await self._sleep(CHECK_INTERVAL_S)
            try:
                if await self._check_memory():
                    return
            except Exception:
                logger.exception("the look at the memory failed; the next one in %g s", CHECK_INTERVAL_S)

    async def _check_memory(self) -> bool:
        """Act when it is needed; true when the process is about to end."""
        used, now = self._used() / MB, self._clock()
        soft, hard = (int(self._get(f"gateway.memory_{name}_mb")) for name in ("soft", "hard"))
        over = [limit for limit in (soft, hard) if limit and used > limit]
        if over and (self._relieved is None or now - self._relieved > RELIEF_INTERVAL_S):
            self._relieved = now
            logger.warning("%.0f MB are used, more than %d MB: idle sessions are let go", used, over[0])
            await self._relieve()
            await self._run(_release_memory)
            used = self._used() / MB
        if not hard or used <= hard:
            return False
        if now - self._began < GRACE_PERIOD_S:
            logger.error("%.0f MB are used so soon, gateway.memory_hard_mb is %d: it is too low", used, hard)
            return False
        logger.error("%.0f MB are used, gateway.memory_hard_mb is %d: restarting", used, hard)
        self._restart()
        return True


def _release_memory() -> None:
    """Collect what nobody refers to, and return free memory to the system where the C library can."""
    gc.collect()
    import ctypes  # for a daemon that met its limit

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


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
