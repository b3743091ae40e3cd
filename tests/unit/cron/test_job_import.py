"""Jobs of the published program's `cron/jobs.json` are taken over once, and the file is left alone."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from hermes_agent.cron import JobStore
from hermes_agent.cron.job_store import import_jobs

NOW = 1_800_000_000.0
JOBS = [
    {
        "id": "abc123def456", "name": "news", "prompt": "what is new?", "deliver": "origin", "enabled": True,
        "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "display": "0 9 * * 1-5"}, "skills": ["news"],
        "repeat": {"times": None, "completed": 4},
        "origin": {"platform": "telegram", "chat_id": "-10", "thread_id": "7"},
    },
    {
        "id": "b", "prompt": "look", "schedule": {"kind": "interval", "minutes": 30, "display": "every 30m"},
        "state": "paused", "deliver": "local", "repeat": {"times": 5, "completed": 1},
    },
    {"id": "c", "prompt": "late", "schedule": {"kind": "once", "run_at": "2001-01-01T00:00:00+00:00"}},
    {"id": "d", "prompt": "x", "script": "gone.py", "schedule": {"kind": "interval", "minutes": 5}},
    "nonsense",
]  # fmt: skip


def test_jobs_come_once_as_they_were_and_what_cannot_be_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "cron" / "jobs.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"jobs": JOBS, "updated_at": "x"}))
    before = file.read_bytes()
    with contextlib.closing(JobStore(tmp_path / "state.db")) as store:
        import_jobs(store, tmp_path, NOW)
        news, look = sorted(store.jobs(), key=lambda job: job.id)
        store.remove("b")
        assert import_jobs(store, tmp_path, NOW) == []
        assert [job.id for job in store.jobs()] == ["abc123def456"]
    assert (news.name, news.origin, news.deliver, news.skills) == ("news", "telegram:-10:7", "origin", ("news",))
    assert (news.schedule.text, news.enabled, news.next_run is not None) == ("0 9 * * 1-5", True, True)
    assert (look.enabled, look.times, look.schedule.seconds) == (False, 5, 1800)
    assert "job 'c'" in caplog.text
    assert "there is no script" in caplog.text
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_read_is_tried_again_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "cron" / "jobs.json"
    file.parent.mkdir()
    file.write_text("{")
    with contextlib.closing(JobStore(tmp_path / "state.db")) as store:
        assert import_jobs(store, tmp_path, NOW) == []
        file.write_text(json.dumps(JOBS[:1]))
        assert [job.name for job in import_jobs(store, tmp_path, NOW)] == ["news"]
