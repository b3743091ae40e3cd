from __future__ import annotations

import pytest

from hermes_agent.app.main import main
from hermes_agent.core.messages import Message
from hermes_agent.service.daemon_state import HomeLock
from hermes_agent.sessions import SCHEMA, Transcript
from hermes_agent.store.database import check_database, expire_rows
from hermes_agent.store.migrations import list_restore_points

DAY = 86400.0


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def path(home):
    """Ten sessions, used 1, 2, … days ago, of 200 kB each."""
    path = home / "state.db"
    transcript = Transcript(path)
    for number in range(1, 11):
        name = f"s{number}"
        transcript.create(name, source="cli", model="m", system_prompt="", cwd="")
        transcript.append(name, [Message("user", "x" * 200_000)])
        with transcript._db.write() as db:
            db.execute("UPDATE sessions SET updated_at = ? WHERE id = ?", (1e9 - number * DAY, name))
    transcript.close()
    return path


def left(path):
    transcript = Transcript(path)
    try:
        return [one.id for one in transcript.recent(99)]
    finally:
        transcript.close()


def test_what_nobody_used_for_long_goes_with_its_messages_and_the_file_shrinks(path):
    before = path.stat().st_size
    assert expire_rows(path, (SCHEMA,), 4.5, 0, now=1e9) == 6

    assert left(path) == ["s1", "s2", "s3", "s4"]
    assert check_database(path).rows["messages"] == 4
    assert path.stat().st_size < before * 0.6  # four of ten, and the empty tables


def test_a_file_that_is_too_big_loses_its_oldest_sessions_but_none_of_the_last_day(path):
    expire_rows(path, (SCHEMA,), 0, 1.1, now=1e9)
    assert left(path)[0] == "s1"
    assert 2 <= len(left(path)) <= 5
    expire_rows(path, (SCHEMA,), 0, 0.001, now=1e9 - DAY / 2)

    assert left(path) == ["s1"]


def test_zero_keeps_everything(path):
    assert expire_rows(path, (SCHEMA,), 0, 0, now=9e9) == 0
    assert len(left(path)) == 10


def test_the_command_says_that_a_database_is_whole_or_where_it_is_damaged(path, capsys):
    assert main(["state", "check"]) == 0
    assert "whole" in capsys.readouterr().out
    content = bytearray(path.read_bytes())
    content[40960:45056] = b"\xff" * 4096
    path.write_bytes(content)

    assert main(["state", "check"]) == 1
    said = "".join(capsys.readouterr())
    assert "damaged" in said or "cannot read" in said
    assert "restore-points" in said


def test_a_restore_point_is_listed_and_put_back_and_what_was_there_is_kept(path, home, capsys):
    with Transcript(path)._db.write() as db:
        db.execute("UPDATE schema_version SET version = version - 1 WHERE owner = 'compactions'")
        db.execute("DELETE FROM sessions WHERE id <> 's1'")
        db.execute("DROP TABLE compactions")
    Transcript(path).close()
    name = list_restore_points(path)[0].name
    expire_rows(path, (SCHEMA,), 0.1, 0)
    assert left(path) == []
    assert main(["state", "restore-points"]) == 0
    assert name in capsys.readouterr().out
    with HomeLock(home):
        assert main(["state", "restore", name]) == 75
    capsys.readouterr()

    assert main(["state", "restore", name]) == 0
    assert "replaced" in capsys.readouterr().out
    assert left(path) == ["s1"]
    assert main(["state", "restore", "nonsense"]) == 1


def test_the_command_removes_what_the_config_says(path, home, capsys):
    (home / "config.yaml").write_text("sessions:\n  retention_days: 1\n")
    assert main(["state", "expire"]) == 0

    assert capsys.readouterr().out == "10 rows removed\n"
