"""One daemon per home, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.core.errors import EXIT_LOCKED, LockHeld, UserError
from hermes_agent.service.daemon_state import LOCK_NAME, HomeLock, lock_holder

HOLD = """
import sys
from pathlib import Path
from hermes_agent.service.daemon_state import HomeLock
HomeLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
if len(sys.argv) > 2:
    import subprocess
    code = "import sys; print('child', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], close_fds=False)
sys.stdin.read()
"""


def start_holder(home: Path, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home), *more],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_daemon_is_refused_and_told_who_has_the_home(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    try:
        with pytest.raises(LockHeld) as caught:
            HomeLock(tmp_path).acquire()
        assert caught.value.exit_status == EXIT_LOCKED
        assert str(caught.value) == (
            f"another hermes daemon (pid {process.pid}) runs with the home {tmp_path}\n"
            f"Stop it first (`systemctl stop hermes-agent` or `kill {process.pid}`),"
            " or set HERMES_HOME to another directory."
        )
        assert lock_holder(tmp_path) == process.pid
    finally:
        process.kill()
        process.wait(60)


def test_a_daemon_that_was_killed_leaves_the_home_free(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert (tmp_path / LOCK_NAME).read_text() == f"{process.pid}\n"
    assert lock_holder(tmp_path) is None
    with HomeLock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_child_that_outlives_the_daemon_does_not_keep_the_lock(tmp_path: Path) -> None:
    process = start_holder(tmp_path, "with a child")
    assert process.stdout is not None
    assert process.stdout.readline() == "child\n"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    try:
        with HomeLock(tmp_path):
            pass
    finally:
        assert process.stdin is not None
        process.stdin.close()  # ends the child


def test_a_released_lock_can_be_taken_again_and_names_nobody(tmp_path: Path) -> None:
    lock = HomeLock(tmp_path)
    lock.acquire()
    lock.acquire()
    lock.release()
    assert (tmp_path / LOCK_NAME).read_text() == ""
    with HomeLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid()
    assert lock_holder(tmp_path) is None


def test_the_lock_is_private_and_two_homes_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with HomeLock(tmp_path / "a"), HomeLock(tmp_path / "b"):
        assert (tmp_path / "a" / LOCK_NAME).stat().st_mode & 0o777 == 0o600


def test_a_home_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "none") is None
    with pytest.raises(UserError, match=r"none/gateway\.lock"):
        HomeLock(tmp_path / "none").acquire()
