from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hermes_agent.core.errors import UserError
from hermes_agent.system.locks import FileLock, KeyedLocks, LockTimeout, hold_lock

HOLD = """
import sys
from pathlib import Path
from hermes_agent.system.locks import FileLock
FileLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_that_another_process_holds_names_it_and_the_file_when_the_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = start_holder(path)
    try:
        began = time.monotonic()
        with pytest.raises(LockTimeout) as caught:
            FileLock(path, timeout_s=0.1, subject="the notes").acquire()
        assert 0.1 <= time.monotonic() - began < 5
        assert caught.value.message == f"the notes is locked by process {process.pid} for 0.1 s already"
        assert isinstance(caught.value, UserError) and isinstance(caught.value, OSError)
        assert not FileLock(path).try_acquire()
        assert FileLock(path).holder() == process.pid
    finally:
        process.kill()
        process.wait(60)
    with FileLock(path, timeout_s=0) as lock:
        assert lock.holder() == os.getpid()
    assert lock.holder() is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_waiting_lock_is_taken_when_it_becomes_free(tmp_path: Path) -> None:
    first, order = FileLock(tmp_path / "lock"), []
    first.acquire()

    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with FileLock(tmp_path / "lock", timeout_s=30):
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(30)
    order.append("first")
    first.release()
    thread.join(30)
    assert order == ["first", "second"]


def test_acquiring_and_releasing_twice_does_nothing_more(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.acquire()
    lock.acquire()
    assert lock.fd > 0
    lock.release()
    lock.release()
    with pytest.raises(RuntimeError, match="is not held"):
        _ = lock.fd


def test_shared_locks_meet_and_keep_an_exclusive_one_out(tmp_path: Path) -> None:
    with FileLock(tmp_path, shared=True), FileLock(tmp_path, shared=True):
        assert not FileLock(tmp_path).try_acquire()
    with FileLock(tmp_path):
        assert not FileLock(tmp_path, shared=True).try_acquire()
    assert os.listdir(tmp_path) == [], "the lock of a directory leaves nothing in it"
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "none", shared=True).try_acquire()


def test_a_file_with_content_of_its_own_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    path.write_text("4711:12")
    with FileLock(path, names_holder=False) as lock:
        assert os.pread(lock.fd, 100, 0) == b"4711:12"
        assert lock.holder() is None
    assert path.read_text() == "4711:12"


def test_a_link_is_no_lock_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("kept")
    (tmp_path / "lock").symlink_to("real")
    with pytest.raises(OSError):
        FileLock(tmp_path / "lock").acquire()
    assert (tmp_path / "real").read_text() == "kept"


def test_the_lock_beside_a_file_is_of_that_file(tmp_path: Path) -> None:
    with FileLock.for_file(tmp_path / "a.json"):
        assert os.listdir(tmp_path) == [".a.json.lock"]
        with pytest.raises(LockTimeout, match=rf"a\.json is locked by process {os.getpid()}\n"):
            FileLock.for_file(tmp_path / "a.json", timeout_s=0).acquire()


def test_a_file_in_a_directory_that_is_missing_cannot_be_edited(tmp_path: Path) -> None:
    missing = hold_lock(tmp_path / "none" / "config.yaml")
    with pytest.raises(UserError, match=r"none/config\.yaml cannot be changed: \.config\.yaml\.lock: No such"):
        missing.__enter__()
    with pytest.raises(OSError, match="of the block"), hold_lock(tmp_path / "config.yaml"):
        raise OSError("of the block")


def test_one_key_is_held_by_one_thread_and_forgotten_afterwards() -> None:
    locks, inside, most = KeyedLocks(), [0], [0]

    def work() -> None:
        for _ in range(50):
            with locks.hold("a"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    with locks.hold("b"):
        for thread in threads:
            thread.join(30)
    assert most == [1]
    assert locks._held == {}
