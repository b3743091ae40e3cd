"""What the daily upkeep removes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hermes_agent.config.settings import Settings
from hermes_agent.host.maintenance import DailyMaintenance
from hermes_agent.policy.taint_store import TaintStore, TrackedText
from hermes_agent.sessions import Transcript


async def _run(fn: Any, *args: Any) -> Any:
    return fn(*args)


async def test_what_strangers_wrote_goes_with_the_session_that_it_came_to(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    transcript, keeping = Transcript(path), TaintStore(path)
    transcript.create("lives", source="cli", model="m", system_prompt="", cwd="/")
    for session in ("lives", "gone"):
        keeping.add(session, [TrackedText("https://evil.example/", "words")])
    left = []
    for days in (30, 1e-9):
        settings = Settings({"sessions": {"retention_days": days, "max_size_mb": 0}})
        await DailyMaintenance(path, lambda kept=settings: kept, _run).once()
        left.append([len(keeping.texts(session)) for session in ("lives", "gone")])

    assert left == [[1, 1], [0, 0]]
    keeping.close()
    transcript.close()


async def test_what_messages_brought_and_long_results_go_with_their_age(tmp_path: Path) -> None:
    Transcript(tmp_path / "state.db").close()
    files = [tmp_path / "cache" / name for name in ("results/a.txt", "audio/b.ogg", "documents/c", "models/kept.json")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("x")
        os.utime(file, (0, 0))
    fresh = tmp_path / "cache" / "results" / "new.txt"
    fresh.write_text("x")
    there = []
    for days in (0, 30):
        settings = Settings({"sessions": {"retention_days": days, "max_size_mb": 0}})
        await DailyMaintenance(tmp_path / "state.db", lambda kept=settings: kept, _run).once()
        there.append([file.exists() for file in (*files, fresh)])

    assert there == [[True] * 5, [False, False, False, True, True]]


async def test_nothing_is_removed_or_fetched_at_the_start_of_a_daemon(tmp_path: Path) -> None:
    Transcript(tmp_path / "state.db").close()
    waits: asyncio.Queue[float] = asyncio.Queue()
    over, work = asyncio.Semaphore(0), []

    async def sleep(seconds: float) -> None:
        waits.put_nowait(seconds)
        await over.acquire()

    def features() -> int:
        work.append("prices")
        return 0

    upkeep = DailyMaintenance(tmp_path / "state.db", lambda: Settings({}), _run, features, sleep=sleep)
    await upkeep.start()
    first = await waits.get()
    before = list(work)
    over.release()
    second = await waits.get()
    await upkeep.drain(1.0)

    assert (first >= 300, before) == (True, [])
    assert (second, work) == (86_400, ["prices"])
